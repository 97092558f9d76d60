"""Clouds: height maps by the diamond-square algorithm, a whole batch at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from .draws import Draws


def plasma(draws: Draws, size: int, decay: float) -> Tensor:
    """(images, M, M) maps from 0 to 1, where M is the power of two from `size` upwards.

    Each round halves the distance of the known points: first the middle of every square, then the
    middle of every edge, each the mean of its four neighbours and a random part; the amplitude
    (100 squared at first) falls by decay squared. The map wraps around at its edges.
    """
    side = 1 << (size - 1).bit_length()
    heights = torch.zeros(draws.images, side, side, device=draws.device)
    step, amplitude = side, 100.0

    def middle(total: Tensor) -> Tensor:
        uniform = draws.uniform(*total.shape[1:])
        return total / 4 + amplitude**2 * (2 * uniform - 1)

    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        heights[:, half::step, half::step] = middle(pairs + pairs.roll(-1, 2))

        centres = heights[:, half::step, half::step]
        across = corners + corners.roll(-1, 2) + centres + centres.roll(1, 1)
        heights[:, ::step, half::step] = middle(across)
        down = corners + corners.roll(-1, 1) + centres + centres.roll(1, 2)
        heights[:, half::step, ::step] = middle(down)
        step, amplitude = half, amplitude / decay

    heights -= heights.amin((1, 2), keepdim=True)
    return heights / heights.amax((1, 2), keepdim=True)
