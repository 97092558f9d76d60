"""Error rates and how sure they are. Counts come in, percentages go out."""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval", "bootstrap", "error", "wilson"]

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """Both ends, in percent."""

    low: float
    high: float


def error(wrong: int, count: int) -> float:
    """The error in percent.

    Example:
        >>> error(1, 8)
        12.5

    Raises:
        ValueError: there is nothing to count, or more wrong than there is.
    """
    if not 0 <= wrong <= count or count == 0:
        raise ValueError(
            f"{wrong} wrong of {count}: an error rate needs at least one answer, and at most "
            "all of them wrong; count again"
        )
    return 100 * wrong / count


def wilson(wrong: int, count: int, confidence: float = CONFIDENCE) -> Interval:
    """Wilson's interval of an error rate, which stays honest where the rate is near 0 or 1.

    With p = wrong / count and the normal quantile z, its ends are
    (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n).

    Example:
        >>> low, high = wilson(0, 100)
        >>> round(low, 2), round(high, 2)
        (0.0, 3.7)
    """
    rate = error(wrong, count) / 100
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    centre = rate + z * z / (2 * count)
    reach = z * np.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
    scale = 100 / (1 + z * z / count)
    return Interval(max(0.0, float(scale * (centre - reach))), float(scale * (centre + reach)))


def bootstrap(
    wrong: NDArray[np.bool_], *, draws: int = 1000, confidence: float = CONFIDENCE, seed: int = 0
) -> Interval:
    """The interval of a mean error over conditions, by drawing the *images* again.

    The same images stand behind every condition, so the conditions are not independent: Wilson's
    interval on all answers together would be far too narrow. Drawing whole columns keeps what one
    image does to all of them.

    Args:
        wrong: Whether the answer was wrong, (conditions, images).
        draws: How often the images are drawn.
        confidence: The share of draws inside the interval.
        seed: Of the draws.

    Example:
        >>> bootstrap(np.ones((15, 20), dtype=bool))
        Interval(low=100.0, high=100.0)

    Raises:
        ValueError: the array is empty or not two-dimensional.
    """
    if wrong.ndim != 2 or wrong.size == 0:
        raise ValueError(
            f"answers of shape {wrong.shape}: the bootstrap takes (conditions, images), at least "
            "one of each; stack one row a condition"
        )
    by_image = wrong.mean(0)
    chosen = np.random.default_rng(seed).integers(0, len(by_image), (draws, len(by_image)))
    means = 100 * by_image[chosen].mean(1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))
