"""The linear filters that several corruptions share, on (N, C, H, W) float tensors.

Separable filters and resamplings are two matrix products: the rule at the border is folded into
the matrix once, so that it costs nothing and cannot be forgotten.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor


def gaussian(x: Tensor, sigma: float, *, border: str = "nearest", truncate: float = 4) -> Tensor:
    """Gaussian blur as scipy and scikit-image have it, border "nearest" or "reflect"."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return x
    rows = _gaussian_matrix(x.shape[-2], sigma, radius, border).to(x)
    columns = _gaussian_matrix(x.shape[-1], sigma, radius, border).to(x)
    return rows @ x @ columns.T


@lru_cache(maxsize=64)
def _gaussian_matrix(size: int, sigma: float, radius: int, border: str) -> Tensor:
    taps = torch.arange(-radius, radius + 1)
    weights = torch.exp(-0.5 * (taps.double() / sigma) ** 2)
    positions = torch.arange(size)[:, None] + taps
    if border == "nearest":
        positions = positions.clamp(0, size - 1)
    else:  # d c b a | a b c d | d c b a, as often as the radius asks for
        positions = positions.remainder(2 * size)
        positions = torch.minimum(positions, 2 * size - 1 - positions)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return matrix.scatter_add_(1, positions, (weights / weights.sum()).expand(size, -1))


@lru_cache(maxsize=64)
def box_matrix(size: int, new_size: int) -> Tensor:
    """Resampling by area means: row i holds the weights of new pixel i (Pillow's BOX)."""
    ratio = size / new_size
    support = max(ratio, 1.0)
    centres = (torch.arange(new_size, dtype=torch.float64)[:, None] + 0.5) * ratio
    offsets = (torch.arange(size) + 0.5 - centres) / support
    weights = ((offsets > -0.5) & (offsets <= 0.5)).double()
    return weights / weights.sum(1, keepdim=True)


def zoom(x: Tensor, factor: float) -> Tensor:
    """Magnify the middle by `factor` (bilinear, corners on corners) and keep the size."""
    sizes = x.shape[-2:]
    crops = [math.ceil(size / factor) for size in sizes]
    top, left = ((size - crop) // 2 for size, crop in zip(sizes, crops, strict=True))
    middle = x[..., top : top + crops[0], left : left + crops[1]]
    grown = F.interpolate(
        middle,
        size=[round(crop * factor) for crop in crops],
        mode="bilinear",
        align_corners=True,
    )
    top, left = ((big - size) // 2 for big, size in zip(grown.shape[-2:], sizes, strict=True))
    return grown[..., top : top + sizes[0], left : left + sizes[1]]


def motion(x: Tensor, degrees: Tensor, radius: float, sigma: float) -> Tensor:
    """Blur along one direction an image, as ImageMagick does it.

    The mean of 2 radius + 1 pixels on the ray that starts at the pixel itself, with the weights of
    half a gaussian; positions are rounded to whole pixels and the border is repeated.
    """
    height, width = x.shape[-2:]
    steps = torch.arange(2 * math.ceil(radius) + 1, device=x.device)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    weights = weights / weights.sum()
    angles = torch.deg2rad(degrees)[:, None]
    columns = torch.ceil(steps * angles.cos() - 0.5).long()
    rows = torch.ceil(steps * angles.sin() - 0.5).long()

    flat = x.flatten(2)
    blurred = torch.zeros_like(flat)
    for step, weight in enumerate(weights.tolist()):
        row = (torch.arange(height, device=x.device) + rows[:, step, None]).clamp(0, height - 1)
        column = (torch.arange(width, device=x.device) + columns[:, step, None]).clamp(0, width - 1)
        index = (row[:, :, None] * width + column[:, None, :]).flatten(1)
        blurred.add_(flat.gather(2, index[:, None].expand_as(flat)), alpha=weight)
    return blurred.view_as(x)
