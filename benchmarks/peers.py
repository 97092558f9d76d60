"""The usual way of writing alpha-BN and Tent, from published descriptions, to compare with."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Wrapper(nn.Module):
    """A wrapper around BN: var_mean, a mix of variances, batch_norm."""

    def __init__(self, layer: Any, alpha: float) -> None:
        super().__init__()
        self.layer = layer
        self.alpha = alpha
        # A subclass may hold an activation, which a wrapper must not drop.
        self.rest = nn.Sequential(
            *(getattr(layer, n) for n in ("drop", "act") if hasattr(layer, n))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by the mix."""
        layer, alpha = self.layer, self.alpha
        var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
        mean = alpha * layer.running_mean + (1 - alpha) * mean
        var = alpha * layer.running_var + (1 - alpha) * var
        y: Tensor = self.rest(F.batch_norm(x, mean, var, layer.weight, layer.bias, eps=layer.eps))
        return y


def alpha_bn(model: nn.Module, alpha: float) -> nn.Module:
    """Put every BatchNorm2d into a wrapper."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, Wrapper(child, alpha))
    return model


def tent(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Tent as published: train mode, batch statistics, Adam on BN's affine parameters."""
    model.train()
    model.requires_grad_(False)
    trained = []
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.requires_grad_(True)
            layer.track_running_stats = False
            layer.running_mean = layer.running_var = None
            trained += [layer.weight, layer.bias]
    optimizer = torch.optim.Adam(trained, lr=1e-3)

    def step(x: Tensor) -> Tensor:
        logits: Tensor = model(x)
        loss = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return logits

    return step
