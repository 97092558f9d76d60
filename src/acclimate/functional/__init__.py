"""Pure functions of tensors, without state: the mathematics that everything else calls."""

from .losses import class_correlation, entropy, information_maximisation, mcc
from .normalisation import batch_statistics, calibrated_norm, mix_statistics

__all__ = [
    "batch_statistics",
    "calibrated_norm",
    "class_correlation",
    "entropy",
    "information_maximisation",
    "mcc",
    "mix_statistics",
]
