"""Wide residual networks for 32-pixel images (Zagoruyko and Komodakis, 2016)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["WideResNet"]


class WideResNet(nn.Module):
    """WRN-depth-width with pre-activation: WRN-40-2 is `WideResNet(40, 2)`.

    The shortcut of a block that changes its shape is taken after the first BatchNorm and ReLU.
    Images come in standardised as in training; nothing is standardised inside.

    Example:
        >>> import torch
        >>> WideResNet(10, 1)(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, depth: int, width: int, classes: int = 10) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if rest:
            raise ValueError(f"depth must be 6 n + 4, such as 28 or 40, but is {depth}")
        channels = [16, 16 * width, 32 * width, 64 * width]
        self.stem = nn.Conv2d(3, channels[0], 3, padding=1, bias=False)
        self.blocks = nn.Sequential(
            *(
                _Block(
                    channels[group] if block == 0 else channels[group + 1],
                    channels[group + 1],
                    stride=2 if block == 0 and group > 0 else 1,
                )
                for group in range(3)
                for block in range(blocks)
            )
        )
        self.bn = nn.BatchNorm2d(channels[3])
        self.fc = nn.Linear(channels[3], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Answers with logits (N, classes) for images (N, 3, 32, 32)."""
        features = F.relu(self.bn(self.blocks(self.stem(x))))
        logits: Tensor = self.fc(features.mean((2, 3)))
        return logits


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        same = inputs == outputs and stride == 1
        self.short = None if same else nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        activated = F.relu(self.bn1(x))
        shortcut: Tensor = x if self.short is None else self.short(activated)
        y: Tensor = shortcut + self.conv2(F.relu(self.bn2(self.conv1(activated))))
        return y
