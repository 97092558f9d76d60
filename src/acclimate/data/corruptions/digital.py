"""What processing does: contrast, elastic, pixelate, JPEG. Values are grey levels, 0 to 255."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...extras import require
from . import filters
from .draws import Draws


def contrast(x: Tensor, draws: Draws, scale: float, factor: float) -> Tensor:
    """Every channel pulled towards its own mean."""
    del draws, scale
    mean = x.mean((2, 3), keepdim=True)
    return mean + factor * (x - mean)


def elastic_transform(
    x: Tensor, draws: Draws, scale: float, shift: float, sigma: float, jolt: float
) -> Tensor:
    """A random affine map (three points moved by up to `jolt`), then a smooth random shift.

    The shift is uniform noise in [-1, 1], blurred by sigma, times `shift` pixels.
    """
    height, width = x.shape[-2:]
    rows, columns = torch.meshgrid(
        torch.arange(height, device=x.device, dtype=x.dtype),
        torch.arange(width, device=x.device, dtype=x.dtype),
        indexing="ij",
    )
    # Written out: a matrix product may round by the number of images in it, and a level may flip.
    by_x, by_y, origin = (
        _affine(draws, height, width, jolt * scale).to(x)[..., None, None].unbind(2)
    )
    points = by_x * columns + by_y * rows + origin
    warped = _sample(x, points[:, 1], points[:, 0], mirror_at_centres=True)

    noise = 2 * draws.uniform(2, height, width) - 1
    wave = filters.gaussian(noise, sigma * scale, border="reflect", truncate=3) * (shift * scale)
    return _sample(warped, rows + wave[:, 0], columns + wave[:, 1], mirror_at_centres=False)


def _affine(draws: Draws, height: int, width: int, jolt: float) -> Tensor:
    """(images, 2, 3): where each new pixel (x, y, 1) is looked up, float64.

    The map takes three corners of a square in the middle to places up to `jolt` away; the look-up
    is its inverse, so it is solved the other way round.
    """
    centre = torch.tensor([width // 2, height // 2], dtype=torch.float64)
    side = min(height, width) // 3
    corners = centre + torch.tensor([[side, side], [side, -side], [-side, -side]])
    moved = corners + jolt * (2 * draws.uniform(3, 2).double().cpu() - 1)
    moved = torch.cat([moved, torch.ones(len(moved), 3, 1)], 2)
    lookup: Tensor = torch.linalg.solve(moved, corners.expand(len(moved), 3, 2))
    return lookup.mT


def _sample(x: Tensor, rows: Tensor, columns: Tensor, *, mirror_at_centres: bool) -> Tensor:
    """Bilinear look-up at (rows, columns); outside, the image mirrored.

    It is mirrored at the centres of its border pixels (c b | a b c) or at their outer edges
    (b a | a b c).
    """

    def normalised(position: Tensor, size: int) -> Tensor:
        if mirror_at_centres:
            return 2 * position / (size - 1) - 1
        return (2 * position + 1) / size - 1

    grid = torch.stack([normalised(columns, x.shape[-1]), normalised(rows, x.shape[-2])], dim=-1)
    return F.grid_sample(x, grid, padding_mode="reflection", align_corners=mirror_at_centres)


def pixelate(x: Tensor, draws: Draws, scale: float, factor: float) -> Tensor:
    """Shrunk by area means and blown up again; rounded after each of the four passes."""
    del draws, scale
    height, width = x.shape[-2:]
    small = int(height * factor), int(width * factor)
    return _box(_box(x, small[0], small[1]), height, width)


def _box(x: Tensor, height: int, width: int) -> Tensor:
    along = (x @ filters.box_matrix(x.shape[-1], width).to(x).T + 0.5).floor()
    return (filters.box_matrix(x.shape[-2], height).to(x) @ along + 0.5).floor()


def jpeg_compression(x: Tensor, draws: Draws, scale: float, quality: float) -> Tensor:
    """Through Pillow's JPEG and back: same library, same pixels as the published recipe."""
    del draws, scale
    pillow = require("PIL.Image", "demo")
    images = x.to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    decoded = np.empty_like(images)
    for image, out in zip(images, decoded, strict=True):
        file = BytesIO()
        pillow.fromarray(image).save(file, "JPEG", quality=int(quality))
        out[:] = np.asarray(pillow.open(file))
    return torch.from_numpy(decoded).permute(0, 3, 1, 2).to(x)
