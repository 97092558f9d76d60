"""The losses that adapt without labels: Eq. 5 (class correlation), entropy, MCC and SHOT's.

All take logits of any shape with the classes in dimension 1, so segmentation needs nothing
special, and an optional boolean mask of the logits' shape without that dimension: True counts.
They work on log-probabilities in float32 or wider, so that a logit of -inf (a class that is ruled
out) and a one-hot answer have finite losses and gradients.
"""

import torch
from torch import Tensor

from .normalisation import widen

REDUCTIONS = ("mean", "sum", "none")


def class_correlation(
    logits: Tensor,
    mask: Tensor | None = None,
    *,
    temperature: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    """Pairwise class correlation: Eq. 5, the loss of Core.

        sum_{j != j'} p_.j^T p_.j'  =  B - sum_i |p_i|^2  =  sum_i sum_j p_ij (1 - p_ij)

    with the B-vector p_.j of class j's probabilities: the Gini impurity, O(BC), no C x C matrix.
    `reduction="sum"` is Eq. 5 as printed.

    The trap: "averaged softmax" read literally (the mean over the batch) is least when the whole
    batch goes to one class; this is the per-sample reading.

    >>> class_correlation(torch.zeros(2, 4), reduction="sum")
    tensor(1.5000)
    """
    log_p = _log_probabilities(logits, mask, temperature)
    # 1 - p as expm1 keeps its digits where p is close to 1.
    return _reduce(-(log_p.exp() * torch.expm1(log_p)).sum(1), mask, reduction)


def entropy(
    logits: Tensor,
    mask: Tensor | None = None,
    *,
    temperature: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    """Shannon entropy of the predictions in nats, the loss of Tent.

        H_i = - sum_j p_ij log p_ij

    >>> entropy(torch.tensor([[0.0, 0.0], [9.0, float("-inf")]]), reduction="none")
    tensor([0.6931, 0.0000])
    """
    log_p = _log_probabilities(logits, mask, temperature)
    return _reduce(_entropy(log_p), mask, reduction)


def mcc(logits: Tensor, mask: Tensor | None = None, *, temperature: float = 1.0) -> Tensor:
    """Minimum class confusion (Jin et al., 2020), which the paper's Eq. 5 grew from.

        1/C  sum_{j != j'} M_jj' / sum_k M_jk,    M = P^T diag(w) P,    w_i ~ 1 + exp(-H_i)

    with weights that sum to the number of samples and carry no gradient, from the published
    code's entropy, -sum_j p_ij log(p_ij + 1e-5). Published with a temperature of 2.5.

    >>> mcc(torch.zeros(3, 4))
    tensor(0.7500)
    """
    p = _rows(_log_probabilities(logits, mask, temperature).exp())
    counted = _counted(p, mask)
    weight = counted * (1 + (p * (p + 1e-5).log()).sum(1).exp()).detach()
    weight = weight * counted.sum() / weight.sum()
    confusion = (p * weight.unsqueeze(1)).T @ p
    total = confusion.sum(1, keepdim=True)
    confusion = confusion / torch.where(total > 0, total, 1)  # 0: a class that is ruled out
    return (confusion.sum() - confusion.trace()) / p.shape[1]


def information_maximisation(
    logits: Tensor, mask: Tensor | None = None, *, temperature: float = 1.0
) -> Tensor:
    """SHOT's loss (Liang et al., 2020): confident answers that differ from one another.

        mean_i H(p_i) - H(mean_i p_i)

    >>> information_maximisation(torch.tensor([[50.0, 0.0], [0.0, 50.0]]))
    tensor(-0.6931)
    """
    log_p = _rows(_log_probabilities(logits, mask, temperature))
    counted = _counted(log_p, mask)
    share = (counted / counted.sum()).unsqueeze(1)
    mean_entropy = (share.squeeze(1) * _entropy(log_p)).sum()
    mean_p = (share * log_p.exp()).sum(0)
    smallest = torch.finfo(mean_p.dtype).tiny  # 0 log 0 is 0
    return mean_entropy + (mean_p * mean_p.clamp(min=smallest).log()).sum()


def _log_probabilities(logits: Tensor, mask: Tensor | None, temperature: float) -> Tensor:
    if mask is not None:
        if mask.dtype != torch.bool or mask.shape != logits[:, 0].shape:
            raise ValueError(
                f"The mask is {mask.dtype} of shape {tuple(mask.shape)}; it must be torch.bool "
                f"of the logits' shape without the classes, {tuple(logits[:, 0].shape)}."
            )
        # Before the softmax, so that a NaN that is masked out does not reach the gradient.
        logits = torch.where(mask.unsqueeze(1), logits, torch.zeros_like(logits))
    return torch.log_softmax(widen(logits) / temperature, dim=1)


def _entropy(log_p: Tensor) -> Tensor:
    """The clamp makes 0 log 0 the 0 that it is, in the gradient too."""
    return (log_p.exp() * -log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(1)


def _rows(log_p: Tensor) -> Tensor:
    """One row a sample, whatever the positions: (N, C, ...) to (N * ..., C)."""
    return log_p.movedim(1, -1).flatten(0, -2)


def _counted(rows: Tensor, mask: Tensor | None) -> Tensor:
    return rows.new_ones(rows.shape[0]) if mask is None else mask.flatten().to(rows.dtype)


def _reduce(values: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
    if mask is not None:
        values = values * mask
    if reduction == "none":
        return values
    if reduction == "sum":
        return values.sum()
    if reduction == "mean":
        return values.mean() if mask is None else values.sum() / mask.sum()
    raise ValueError(
        f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, but is {reduction!r}."
    )
