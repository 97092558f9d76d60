"""What an adapter did so far, and the two warnings that follow from it."""

import warnings
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from .alpha import Prior
from .layers import Calibration

SMALL_BATCH = 16
LEANS_ON_SOURCE = 0.9


class Counts(dict[str, Any]):
    """Batches, samples and updates, and the updates that were skipped, by reason."""

    def __init__(self, counts: dict[str, Any] | None = None, *, advised: bool = False):
        super().__init__(counts or {"batches": 0, "samples": 0, "updates": 0, "skipped": {}})
        self.advised = advised

    def add(self, method: str, samples: int, updates: int, skipped: str | None) -> None:
        """Count one call; the first skipped update warns."""
        for name, n in (("batches", 1), ("samples", samples), ("updates", updates)):
            self[name] += n
        if skipped is None:
            return
        if not self["skipped"]:
            warnings.warn(
                f"{method} did not update on this batch: {skipped}. Later ones are counted in "
                "adapter.counts without a warning.",
                stacklevel=5,
            )
        self["skipped"][skipped] = self["skipped"].get(skipped, 0) + 1

    def may_advise(self, samples: int) -> bool:
        """Whether `advise` could have anything to say, before the logits are looked for."""
        return not self.advised and samples < SMALL_BATCH

    def advise(
        self, samples: int, logits: Tensor | None, calibrations: Iterable[Calibration | None]
    ) -> None:
        """Warn once where a classifier's batch is too small for statistics of its own."""
        if not self.may_advise(samples) or logits is None or logits.dim() != 2:
            return
        alphas = [c.alpha for c in calibrations if c is not None]
        if any(not isinstance(a, Prior) and a < LEANS_ON_SOURCE for a in alphas):
            self.advised = True
            warnings.warn(
                f"{samples} samples are few to estimate statistics from: statistics='stream' "
                "carries them over the batches, and alpha=acclimate.prior(16) leans on the source "
                "where samples are few.",
                stacklevel=5,
            )
