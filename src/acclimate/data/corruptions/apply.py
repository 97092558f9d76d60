"""`corrupt`: one corruption on a batch of images."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

import torch
from torch import Tensor

from . import blur, digital, noise, weather
from .draws import Draws
from .recipe import strength

_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": weather.brightness,
    "contrast": digital.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
}

CORRUPTIONS = tuple(_FUNCTIONS)
"""The names, in the order of the published tables."""

STAND_INS = {"frost": "textures made by acclimate instead of the published photographs"}
"""What differs from the published recipe; a result that used one of these must say so."""

_SMALLEST_SIDE = 16
_VALUES_AT_ONCE = 1 << 20  # bounds the memory for random numbers, and keeps a CPU's caches warm


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    *,
    seed: int = 0,
    indices: Tensor | None = None,
) -> Tensor:
    """Corrupt a uint8 batch (N, 3, H, W) as CIFAR-10-C (32 pixels) or ImageNet-C (224) does.

    `indices` are the images' places in their set, which key the random draws. The trap: without
    them the places are 0 to N - 1, so two pieces of one set would get the same noise.

    >>> images = torch.full((4, 3, 32, 32), 128, dtype=torch.uint8)
    >>> whole = corrupt(images, "gaussian_noise", 5)
    >>> piece = corrupt(images[2:], "gaussian_noise", 5, indices=torch.tensor([2, 3]))
    >>> torch.equal(whole[2:], piece)
    True

    Raises ValueError or TypeError for an unknown corruption, a severity outside 1 to 5, or images
    that are not what the first line says.
    """
    _check_request(name, severity)
    indices = _check_images(images, indices)
    numbers, scale = strength(name, severity, min(images.shape[-2:]))
    function = _FUNCTIONS[name]
    corrupted = torch.empty_like(images)
    count = max(1, _VALUES_AT_ONCE // max(1, images[:1].numel()))
    parts = zip(images.split(count), indices.split(count), corrupted.split(count), strict=True)
    for part, places, out in parts:
        if len(part) == 0:
            continue
        draws = Draws(seed, name, severity, places)
        levels = function(part.float(), draws, scale, *numbers)
        out.copy_(levels.clamp_(0, 255).to(torch.uint8))  # cut, not rounded, as published
    return corrupted


def _check_request(name: str, severity: int) -> None:
    if name not in _FUNCTIONS:
        near = get_close_matches(name, CORRUPTIONS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown corruption {name!r}: {hint}known are {', '.join(CORRUPTIONS)}")
    if isinstance(severity, bool) or severity not in range(1, 6):
        raise ValueError(
            f"severity is {severity!r}, but severities are the whole numbers 1 (mild) to 5 "
            "(strong); for clean images leave the corruption out"
        )


def _check_images(images: Tensor, indices: Tensor | None) -> Tensor:
    if images.dtype != torch.uint8:
        raise TypeError(
            f"images are {images.dtype}, but corruptions work on uint8 grey levels 0 to 255: pass "
            "the images before they are scaled and normalised"
        )
    if images.ndim != 4 or images.shape[1] != 3 or min(images.shape[2:]) < _SMALLEST_SIDE:
        raise ValueError(
            f"images have the shape {tuple(images.shape)}, but corruptions take (N, 3, H, W) with "
            f"sides of at least {_SMALLEST_SIDE} pixels: permute or repeat channels, or resize"
        )
    if indices is None:
        return torch.arange(len(images), device=images.device)
    if indices.shape != images.shape[:1] or indices.is_floating_point():
        raise ValueError(
            f"indices are {indices.dtype} of shape {tuple(indices.shape)}, but each of the "
            f"{len(images)} images needs one whole number: its place in the set"
        )
    return indices.to(images.device, torch.int64)
