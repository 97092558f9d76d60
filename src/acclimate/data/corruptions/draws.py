"""Random numbers that depend on the image and not on the batch it travels in.

A counter-based generator: every number is a hash of (seed, corruption, severity, image, call,
position), so there is no state to carry. The same image gets the same noise whatever its batch,
its place in it, the order of the batches or the number of workers.

The hash is the finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), written in int64
operations, which wrap around alike on every device.
"""

from __future__ import annotations

import math
import zlib

import torch
from torch import Tensor

_BITS = 23  # of a uniform number: with the half below, all of them are exact in float32
_MASK = (1 << _BITS) - 1


def _signed(number: int) -> int:
    """The int64 whose 64 bits are those of the number modulo 2^64."""
    return ((number + (1 << 63)) % (1 << 64)) - (1 << 63)


_STEP = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def _fold(x: Tensor, bits: int) -> Tensor:
    # int64 has only an arithmetic shift: the mask removes the copies of the sign.
    return x ^ ((x >> bits) & ((1 << (64 - bits)) - 1))


def _hash(x: Tensor) -> Tensor:
    x = _fold(x, 30) * _FIRST
    x = _fold(x, 27) * _SECOND
    return _fold(x, 31)


class Draws:
    """The random numbers of one corruption, a row an image.

    Each call draws afresh: the second `normal` differs from the first.

    >>> together = Draws(0, "fog", 3, torch.arange(4)).normal(2)
    >>> alone = Draws(0, "fog", 3, torch.tensor([2])).normal(2)
    >>> torch.equal(together[2:3], alone)
    True
    """

    def __init__(self, seed: int, name: str, severity: int, indices: Tensor) -> None:
        run = (_signed(seed), zlib.crc32(name.encode()), severity)
        key = torch.zeros((), dtype=torch.int64, device=indices.device)
        for part in (*torch.tensor(run, device=indices.device), indices):
            key = _hash(key + part * _STEP)
        self._keys = key
        self._calls = 0
        self.images = len(indices)
        self.device = indices.device

    def _raw(self, count: int) -> Tensor:
        """`count` integers of 23 bits for every image; one hash makes two of them."""
        self._calls += 1
        keys = _hash(self._keys + _signed(self._calls * _STEP))
        positions = torch.arange(1, (count + 1) // 2 + 1, device=keys.device)
        hashes = _hash(keys[:, None] + positions * _STEP)
        return torch.cat([hashes >> 41, hashes >> 18], 1)[:, :count] & _MASK

    def uniform(self, *shape: int) -> Tensor:
        """Numbers inside (0, 1), never an end, as float32 of shape (images, *shape)."""
        raw = self._raw(math.prod(shape))
        return ((raw.float() + 0.5) / (1 << _BITS)).view(-1, *shape)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Integers from low to high - 1, by integer arithmetic alone."""
        return ((self._raw(math.prod(shape)) * (high - low)) >> _BITS).view(-1, *shape) + low

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers (Box-Muller), as float32 of shape (images, *shape)."""
        count = math.prod(shape)
        half = (count + 1) // 2
        uniform = self.uniform(2, half)
        radius, angle = (-2 * uniform[:, 0].log()).sqrt(), 2 * math.pi * uniform[:, 1]
        pairs = torch.cat([radius * angle.cos(), radius * angle.sin()], 1)
        return pairs[:, :count].reshape(-1, *shape)
