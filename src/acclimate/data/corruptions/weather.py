"""Weather: snow, frost, fog, brightness. Values are grey levels from 0 to 255."""

from __future__ import annotations

import torch
from torch import Tensor

from . import filters
from .draws import Draws
from .frost import frost_pictures
from .plasma import plasma


def snow(
    x: Tensor,
    draws: Draws,
    scale: float,
    mean: float,
    std: float,
    size: float,
    threshold: float,
    radius: float,
    sigma: float,
    keep: float,
) -> Tensor:
    """Flakes that fall, twice (the second layer turned by 180 degrees), over a whitened scene."""
    height, width = x.shape[-2:]
    flakes = filters.zoom(mean + std * draws.normal(1, height, width), max(1.0, size * scale))
    flakes = torch.where(flakes < threshold, 0.0, flakes.clamp(0, 1))
    degrees = 90 * draws.uniform(1)[:, 0] - 135
    fallen = filters.motion((255 * flakes).floor(), degrees, radius * scale, sigma * scale).round()

    red, green, blue = x.split(1, dim=1)
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    whitened = keep * x + (1 - keep) * torch.maximum(x, 1.5 * grey + 127.5)
    return whitened + fallen + fallen.rot90(2, (-2, -1))


def frost(x: Tensor, draws: Draws, scale: float, image: float, ice: float) -> Tensor:
    """Ice on the lens: image * x + ice * a random piece of one of five pictures."""
    del scale
    height, width = x.shape[-2:]
    pictures = frost_pictures(small=min(height, width) < 85).to(x.device)
    count, _, tall, wide = pictures.shape
    if height >= tall or width >= wide:
        raise ValueError(
            f"frost got images of {height} x {width} pixels; the frost pictures have "
            f"{tall} x {wide}, and a piece of the image's size is cut out of one: resize the "
            "images to less than that"
        )
    which = draws.integers(0, count, 1)
    top, left = draws.integers(0, tall - height, 1), draws.integers(0, wide - width, 1)
    rows = top + torch.arange(height, device=x.device)
    columns = left + torch.arange(width, device=x.device)
    # An index for each of (image, channel, row, column): one look-up cuts all the pieces.
    planes = torch.arange(3, device=x.device)[:, None, None]
    place = which[:, :, None, None], planes, rows[:, None, :, None], columns[:, None, None]
    piece = pictures[place]
    return image * x + ice * piece


def fog(x: Tensor, draws: Draws, scale: float, density: float, decay: float) -> Tensor:
    """(x + density * clouds), scaled back so that the brightest value stays within the image's."""
    del scale
    height, width = x.shape[-2:]
    brightest = x.amax((1, 2, 3), keepdim=True) / 255
    clouds = 255 * plasma(draws, max(height, width), decay)[:, None, :height, :width]
    return (x + density * clouds) * brightest / (brightest + density)


def brightness(x: Tensor, draws: Draws, scale: float, gain: float) -> Tensor:
    """V + gain in the HSV space.

    With hue and saturation fixed a colour is proportional to its V, so no conversion is needed:
    x * V' / V, and the grey V' where V is 0 (black has no hue).
    """
    del draws, scale
    value = x.amax(1, keepdim=True)
    raised = (value + 255 * gain).clamp(max=255)
    # Multiplied first: V = 255 must come out as 255, not as 254.99 that is cut to 254.
    return torch.where(value > 0, x * raised / value.clamp(min=1), raised)
