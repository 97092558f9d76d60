"""What a method's hooks may answer: of ours that is known, of a user's it is checked."""

from typing import Any

import torch
from torch import Tensor


def check_loss(loss: Any) -> Tensor:
    """A loss is one number in a tensor."""
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise TypeError(
            f"loss(logits, mask) must return a 0-dim tensor, but returned {got}: reduce it, such "
            "as by .mean()."
        )
    return loss


def check_mask(mask: Any) -> Tensor | None:
    """A selection is a boolean tensor, or None for all."""
    if mask is not None and not (isinstance(mask, Tensor) and mask.dtype == torch.bool):
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"select(logits) must return a boolean tensor, or None for all samples, but returned "
            f"{got}."
        )
    return mask
