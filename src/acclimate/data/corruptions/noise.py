"""Noise of the sensor: gaussian, shot, impulse. Values are grey levels from 0 to 255."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from .draws import Draws


def gaussian_noise(x: Tensor, draws: Draws, scale: float, std: float) -> Tensor:
    """Adds N(0, std): the electronics' noise in low light."""
    del scale
    return x + 255 * std * draws.normal(*x.shape[1:])


def shot_noise(x: Tensor, draws: Draws, scale: float, photons: float) -> Tensor:
    """Poisson(photons * x) / photons: white is as many photons as that.

    Drawn exactly, by inverting the distribution function. A pixel has only 256 possible rates, so
    one sorted table (level + F_level) answers all of them with one binary search.
    """
    del scale
    table = _poisson_tables(photons).to(x.device)
    key = x.double() + draws.uniform(*x.shape[1:])
    counts = torch.searchsorted(table.flatten(), key) - x.long() * table.shape[1]
    return counts.to(x.dtype) * (255 / photons)


def impulse_noise(x: Tensor, draws: Draws, scale: float, share: float) -> Tensor:
    """Salt and pepper: that share of all values becomes 0 or 255, half and half."""
    del scale
    uniform = draws.uniform(*x.shape[1:])
    salted = torch.where(uniform < share / 2, 255.0, x)
    return torch.where(uniform >= 1 - share / 2, 0.0, salted)


@lru_cache(maxsize=16)
def _poisson_tables(photons: float) -> Tensor:
    """Row v: v + P(count <= k) for k = 0, 1, ... where grey level v has the rate photons * v / 255.

    The last columns lie beyond every uniform number of 23 bits, so no search leaves its row.
    """
    rates = torch.arange(256, dtype=torch.float64)[:, None] * (photons / 255)
    counts = torch.arange(int(photons + 8 * photons**0.5 + 16), dtype=torch.float64)
    log_share = torch.special.xlogy(counts, rates) - rates - torch.lgamma(counts + 1)
    cumulative: Tensor = log_share.exp().cumsum(1).clamp(max=1)
    cumulative[:, -1] = 1
    return torch.arange(256, dtype=torch.float64)[:, None] + cumulative
