"""Several methods on one stream, a batch at a time in turn, so that their times can be compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from .. import Adapter, adapt
from ..functional import entropy
from ..methods import METHODS
from .streams import stream

__all__ = ["Contender", "Record", "compare"]


@dataclass(frozen=True)
class Contender:
    """A method with its options.

    Example:
        >>> Contender("tent", {"alpha": 0.0, "lr": 1e-3}).labels()["alpha"]
        0.0
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self, model: nn.Module) -> Adapter:
        """Builds the adapter, on a copy of the model."""
        return adapt(deepcopy(model), self.method, **self.options)

    def labels(self) -> dict[str, Any]:
        """What the rows of a result say of it."""
        return {
            "method": self.method,
            "alpha": self.options.get("alpha", METHODS[self.method].fixed_alpha),
            "temperature": self.options.get("temperature"),
            "statistics": self.options.get("statistics", "batch"),
        }


@dataclass
class Record:
    """What one method answered on one stream: by image in the set's order, and by batch."""

    wrong: NDArray[np.bool_]
    entropy: list[float] = field(default_factory=list)
    seconds_per_image: list[float] = field(default_factory=list)


def compare(
    adapters: Sequence[Adapter],
    images: Tensor,
    labels: Tensor,
    *,
    batch: int,
    seed: int = 0,
    progress: Callable[[], None] | None = None,
) -> list[Record]:
    """Resets the adapters and sends each batch of the stream through all of them in turn.

    The order in which they take their turn moves on by one a batch, so that none of them always
    finds the caches as the same neighbour left them. Times of the last batch are left out where it
    is smaller than the others.

    Args:
        adapters: Each on a model of its own.
        images: uint8 (N, 3, H, W); the models see them scaled to [0, 1].
        labels: Their classes, for counting alone: no adapter sees them.
        batch: Images a step.
        seed: Of the stream's order.
        progress: Called after each batch.
    """
    records = [Record(np.zeros(len(labels), dtype=bool)) for _ in adapters]
    for adapter in adapters:
        adapter.reset()
    for number, part in enumerate(stream(images, labels, batch=batch, seed=seed)):
        x = part.images.float() / 255
        for turn in range(len(adapters)):
            chosen = (number + turn) % len(adapters)
            start = time.perf_counter()
            logits = adapters[chosen](x)
            seconds = time.perf_counter() - start
            record = records[chosen]
            record.wrong[part.places.numpy()] = (logits.argmax(1) != part.labels).numpy()
            record.entropy.append(_entropy(logits))
            if len(part.labels) == batch:
                record.seconds_per_image.append(seconds / batch)
        if progress is not None:
            progress()
    return records


def _entropy(logits: Tensor) -> float:
    return round(float(entropy(logits)), 4)
