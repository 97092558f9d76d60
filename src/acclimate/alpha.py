"""The forms that alpha, the weight of the source's statistics, takes in one layer."""

import math
import numbers
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Prior:
    """An alpha that falls as samples come in; `prior` makes it."""

    samples: float

    def __call__(self, n: int | Tensor) -> float | Tensor:
        """Alpha for statistics behind which n samples stand."""
        return self.samples / (self.samples + n)

    def __repr__(self) -> str:
        samples = self.samples
        return f"prior({int(samples) if samples.is_integer() else samples})"


def prior(samples: float) -> Prior:
    """Alpha as a prior: the source counts like `samples` samples of the target's.

    alpha = N / (N + n) for statistics of n samples, so that one frame leans on the source and a
    batch of 200 on itself.

    >>> prior(16)(16)
    0.5
    """
    if isinstance(samples, bool) or not isinstance(samples, (int, float)):
        raise TypeError(f"prior takes a number of samples, such as 16, but got {samples!r}.")
    if not (samples > 0 and math.isfinite(samples)):
        raise ValueError(f"prior takes a number of samples above 0, such as 16, but got {samples}.")
    return Prior(float(samples))


Alpha = float | Tensor | Prior
"""Alpha of one layer."""

FORMS = (
    "a number in [0, 1] (1: the source's statistics, 0: the batch's), acclimate.prior(N), a "
    "0-dim tensor, a mapping from layer paths to those, or a sequence of them"
)


def check_alpha(alpha: object) -> Alpha:
    """One layer's alpha, or an error that says what alpha can be."""
    if isinstance(alpha, Prior):
        return alpha
    if isinstance(alpha, Tensor):
        if alpha.dim() != 0 or not alpha.is_floating_point():
            raise ValueError(
                f"An alpha tensor must be floating point and 0-dim, but is {alpha.dtype} of shape "
                f"{tuple(alpha.shape)}: one number a layer, such as torch.tensor(0.9)."
            )
        value = alpha.detach().item()
    elif not isinstance(alpha, bool) and isinstance(alpha, numbers.Real):
        value = float(alpha)
    else:
        raise TypeError(f"alpha is {alpha!r}, but must be {FORMS}.")
    if not 0 <= value <= 1:
        raise ValueError(f"alpha is {value}, but must lie in [0, 1]: 1 is the source, 0 the batch.")
    return alpha if isinstance(alpha, Tensor) else value


def is_source(alpha: Alpha) -> bool:
    """A Python 1 is the layer's own evaluation forward; a tensor always takes the mixed path."""
    return isinstance(alpha, (int, float)) and alpha == 1


def alpha_of(alpha: Alpha, n: int | Tensor, like: Tensor) -> float | Tensor:
    """The number, or the tensor on the device of `like`, that mixes statistics of n samples."""
    if isinstance(alpha, Prior):
        alpha = alpha(n)
    if isinstance(alpha, Tensor) and alpha.device != like.device:
        alpha = alpha.to(like.device)
    return alpha


def describe(alpha: Alpha) -> float | str:
    """Alpha for a table or a file."""
    if isinstance(alpha, torch.Tensor):
        return float(alpha.detach())
    return repr(alpha) if isinstance(alpha, Prior) else alpha
