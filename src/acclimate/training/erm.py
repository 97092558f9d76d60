"""Empirical risk minimisation: the plain training that every source model starts from."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["erm"]

Progress = Callable[[int, int, float], None]


def erm(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    epochs: int,
    batch: int = 128,
    lr: float = 0.1,
    weight_decay: float = 5e-4,
    seed: int = 0,
    progress: Progress | None = None,
) -> nn.Module:
    """Minimises the mean cross-entropy by SGD with momentum, and leaves the model in `eval()`.

    The step size rises over the first tenth of the steps and falls to zero along a cosine. The
    seed orders the batches; the initial weights are the caller's. Batches have equal sizes: what
    is left over of an epoch waits for the next one's order, since BatchNorm would weigh it wrongly.

    Args:
        model: Trained in place.
        images: uint8 (N, 3, H, W); the model sees them scaled to [0, 1].
        labels: Their classes, (N,).
        epochs: Passes over the images.
        batch: Images a step.
        lr: The largest step size.
        weight_decay: Of all parameters.
        seed: Of the order of the images.
        progress: Called after each step with the steps done, their total, and the loss.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
        >>> images = torch.tensor([0, 255], dtype=torch.uint8).repeat(8)[:, None, None, None]
        >>> labels = torch.tensor([0, 1]).repeat(8)
        >>> _ = erm(model, images.expand(16, 3, 2, 2), labels, epochs=20, batch=8)
        >>> model(torch.ones(1, 3, 2, 2)).argmax().item()
        1

    Raises:
        ValueError: there are fewer images than a batch holds, or not one label for each.
    """
    if len(images) != len(labels):
        raise ValueError(f"{len(images)} images came with {len(labels)} labels: give one for each")
    if len(images) < batch:
        raise ValueError(
            f"{len(images)} images do not fill a batch of {batch}: lower batch to {len(images)}"
        )
    optimiser = torch.optim.SGD(
        model.parameters(), lr=lr, momentum=0.9, nesterov=True, weight_decay=weight_decay
    )
    total = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=lr, total_steps=total, pct_start=0.1, cycle_momentum=False
    )
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for step in range(total):
        if step % (len(images) // batch) == 0:
            order = torch.randperm(len(images), generator=generator).split(batch)
        chosen = order[step % (len(images) // batch)]
        loss = F.cross_entropy(model(images[chosen].float() / 255), labels[chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if progress is not None:
            progress(step + 1, total, loss.item())
    return model.eval()
