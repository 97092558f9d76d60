"""A set as a stream of batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Batch", "stream"]


class Batch(NamedTuple):
    """What arrives at once; `places` are the images' places in the set."""

    images: Tensor
    labels: Tensor
    places: Tensor


def stream(images: Tensor, labels: Tensor, *, batch: int, seed: int = 0) -> Iterator[Batch]:
    """Yields the set once, in the seed's order; the last batch may be smaller and is kept.

    Seeded, because a set in class order would break batch statistics, and because two methods can
    only be compared on the same batches.

    Example:
        >>> [len(part.labels) for part in stream(torch.zeros(5, 1), torch.zeros(5), batch=2)]
        [2, 2, 1]
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    for places in order.split(batch):
        yield Batch(images[places], labels[places], places)
