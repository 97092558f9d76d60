"""Pictures of ice, made here: they stand in for the photographs of the published recipe.

Veins of ice are the ridges of clouds: 1 - |2 clouds - 1| is largest where the height map crosses
its middle. Fine grain and a slow change of thickness come on top.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from .draws import Draws
from .plasma import plasma

_PICTURES, _SIDE = 5, 1024
_TINT = (0.93, 0.98, 1.06)  # ice is a little blue


@lru_cache(maxsize=2)
def frost_pictures(*, small: bool) -> Tensor:
    """(5, 3, side, side) float pictures, 0 to 255; small ones are a fifth as large.

    CIFAR's recipe scales its photographs to a fifth, ImageNet's takes them as they are.
    """
    draws = Draws(0, "frost pictures", 0, torch.arange(_PICTURES))
    veins = 1 - (2 * plasma(draws, _SIDE, 1.6) - 1).abs()
    thickness, grain = plasma(draws, _SIDE, 2.2), plasma(draws, _SIDE, 1.2)
    grey = (125 + 160 * thickness * veins**2 + 220 * (grain - 0.5)).clamp(0, 255)[:, None]
    pictures = (grey * torch.tensor(_TINT)[:, None, None]).clamp(0, 255)
    if not small:
        return pictures
    return F.interpolate(pictures, scale_factor=0.2, mode="bilinear")
