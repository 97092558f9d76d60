"""The 15 corruptions of CIFAR-10-C and ImageNet-C, made on batches of tensors."""

from .apply import CORRUPTIONS, STAND_INS, corrupt

__all__ = ["CORRUPTIONS", "STAND_INS", "corrupt"]
