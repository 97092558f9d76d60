"""A small convolutional network with BatchNorm, which a CPU trains in seconds."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["SmallNet"]


class SmallNet(nn.Module):
    """Five 3 x 3 convolutions, each followed by BatchNorm and ReLU, a mean over the map, a layer.

    It takes grey levels scaled to [0, 1] and standardises them no further: its first BatchNorm
    does.

    Example:
        >>> import torch
        >>> SmallNet(classes=10)(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, classes: int, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_block(3, width, stride=1),
            *_block(width, 2 * width, stride=2),
            *_block(2 * width, 2 * width, stride=1),
            *_block(2 * width, 4 * width, stride=2),
            *_block(4 * width, 4 * width, stride=1),
        )
        self.classifier = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Answers with logits (N, classes) for images (N, 3, H, W)."""
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits


def _block(inputs: int, outputs: int, *, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
