"""Blur: defocus, glass, motion, zoom. Values are grey levels from 0 to 255."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from . import filters
from .draws import Draws


def defocus_blur(x: Tensor, draws: Draws, scale: float, radius: float, softness: float) -> Tensor:
    """The mean over a disk: a lens out of focus."""
    del draws
    kernel = _disk(radius * scale, softness).to(x)
    pad = kernel.shape[-1] // 2
    planes = F.pad(x.flatten(0, 1)[:, None], [pad] * 4, mode="reflect")
    return F.conv2d(planes, kernel).view_as(x)


@lru_cache(maxsize=32)
def _disk(radius: float, softness: float) -> Tensor:
    """A disk whose edge is softened by a small gaussian, cut to the square where it is not zero."""
    reach, half = (8, 1) if radius <= 8 else (math.ceil(radius), 2)
    line = torch.arange(-reach, reach + 1, dtype=torch.float64)
    disk = (line**2 + line[:, None] ** 2 <= radius**2).double()
    taps = torch.exp(-0.5 * (torch.arange(-half, half + 1) / softness) ** 2).double()
    soft = (taps / taps.sum()).outer(taps / taps.sum())
    padded = F.pad((disk / disk.sum())[None, None], [half] * 4, mode="reflect")
    kernel = F.conv2d(padded, soft[None, None])
    empty = reach - min(reach, math.floor(radius) + half)
    return kernel[..., empty : 2 * reach + 1 - empty, empty : 2 * reach + 1 - empty]


def glass_blur(
    x: Tensor, draws: Draws, scale: float, sigma: float, reach: float, rounds: float
) -> Tensor:
    """Frosted glass: blur, let every pixel take the colour of a neighbour, blur."""
    reach = max(1, round(reach * scale))
    pixels = filters.gaussian(x, sigma * scale).floor().flatten(2)
    for _ in range(int(rounds)):
        origin = _neighbours(draws, x.shape[-2], x.shape[-1], reach)
        pixels = pixels.gather(2, origin[:, None].expand_as(pixels))
    return filters.gaussian(pixels.view_as(x), sigma * scale)


def _neighbours(draws: Draws, height: int, width: int, reach: int) -> Tensor:
    """For every image and pixel: which pixel its colour comes from, as a flat index.

    The published loop walks from the last pixel to the first and overwrites each by the pixel at a
    random offset in [-reach, reach) as it is by then. An offset towards pixels that the walk has
    already passed therefore takes *their* new colour. Followed to its end, each such chain is one
    look-up, and pointer doubling ends them all in the logarithm of the longest.
    """
    offsets = draws.integers(-reach, reach, 2, height, width)
    rows = torch.arange(height, device=offsets.device)[:, None]
    columns = torch.arange(width, device=offsets.device)
    walked = ((rows > reach) & (rows <= height - reach)) & (
        (columns > reach) & (columns <= width - reach)
    )
    itself = rows * width + columns
    origin = torch.where(walked, itself + offsets[:, 0] * width + offsets[:, 1], itself).flatten(1)
    # Passed already: the walk goes towards smaller indices, so a larger one was there before.
    pending = (origin > itself.flatten()) & walked.flatten()[origin]
    while pending.any():
        beyond = pending.gather(1, origin)
        origin = torch.where(pending, origin.gather(1, origin), origin)
        pending = pending & beyond
    return origin


def motion_blur(x: Tensor, draws: Draws, scale: float, radius: float, sigma: float) -> Tensor:
    """A camera that moves: blur along one random direction, -45 to 45 degrees."""
    degrees = 90 * draws.uniform(1)[:, 0] - 45
    return filters.motion(x, degrees, radius * scale, sigma * scale).round()


def zoom_blur(x: Tensor, draws: Draws, scale: float, end: float, step: float) -> Tensor:
    """A camera that moves towards the scene: the mean of ever larger magnifications."""
    del draws, scale  # factors are ratios already
    factors = np.arange(1, end, step)  # numpy's rounding decides whether `end` itself is in
    total = x.clone()
    for factor in factors:
        total += filters.zoom(x, float(factor))
    return total / (len(factors) + 1)
