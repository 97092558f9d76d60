"""The adapted network as a plain one, which any tool loads."""

import copy
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .adapter import Adapter
from .alpha import alpha_of, is_source
from .functional import mix_statistics
from .functional.normalisation import widen
from .layers import calibration_of
from .methods import AlphaBN
from .norm import Alphas, layers_of, refuse_held
from .statistics import StreamLayer


@torch.inference_mode(False)
def freeze(adapter: Adapter) -> nn.Module:
    """A copy of the adapted network as an ordinary one; the adapter goes on.

    BN holds the mixed statistics (as a variance, sigma^2 - eps) and the adapted
    affine parameters; classes and `state_dict` keys are the source's. Equal to `predict`.

    The trap: statistics must be known, so carried (`statistics="stream"`) or the source's
    (alpha 1). Those of each batch are not; `recalibrate` fixes some for a network.

    >>> import acclimate as ac
    >>> model = nn.Sequential(nn.BatchNorm1d(4))
    >>> adapter = ac.AlphaBN(model, alpha=0.5, statistics="stream")
    >>> y = adapter(torch.randn(8, 4))
    >>> type(ac.freeze(adapter)[0]).__name__
    'BatchNorm1d'
    """
    if not isinstance(adapter, Adapter):
        raise TypeError(
            f"freeze takes an adapter, but got a {type(adapter).__name__}; recalibrate(model, "
            "batches, alpha=...) makes a plain network from a model."
        )
    adapter.require_alive()
    for layer, paths in layers_of(adapter.model).items():
        calibration = calibration_of(layer)  # None: Source leaves every layer as it is
        if calibration is not None and not (
            is_source(calibration.alpha) or isinstance(calibration.statistics, StreamLayer)
        ):
            raise ValueError(
                f"freeze needs statistics that are known, but the layer {paths[0]!r} takes those "
                "of each batch: adapt with statistics='stream', or use acclimate.recalibrate."
            )
    return _settle(copy.deepcopy(_uncompiled(adapter.model)))


@torch.inference_mode(False)
def recalibrate(
    model: nn.Module,
    batches: Iterable[Tensor | Mapping[str, Any]],
    *,
    alpha: Alphas,
    mix: str = "std",
) -> nn.Module:
    """A plain copy of a model after one pass over unlabelled batches, all of them counted.

    Batches are tensors, or mappings of the model's own keywords. Pairs are refused: labels have
    no business here.

    >>> import acclimate as ac
    >>> model = nn.Sequential(nn.BatchNorm1d(4))
    >>> plain = ac.recalibrate(model, torch.randn(3, 16, 4), alpha=0.0)
    >>> plain[0].running_mean.shape
    torch.Size([4])
    """
    refuse_held(model)
    model = copy.deepcopy(_uncompiled(model))
    adapter = AlphaBN(model, alpha=alpha, mix=mix, statistics="stream", memory=math.inf)
    for batch in batches:
        if not isinstance(batch, (Tensor, Mapping)):
            raise TypeError(
                f"recalibrate takes batches that are tensors or mappings of the model's keywords, "
                f"but got a {type(batch).__name__}; of a pair (images, labels) pass the images."
            )
        if isinstance(batch, Tensor):
            adapter(batch)
        else:
            adapter(**batch)
    if not adapter.counts["batches"]:
        raise ValueError("recalibrate got no batch: a generator may be used up, so make it anew.")
    return _settle(model)


@torch.no_grad()
def _settle(model: nn.Module) -> nn.Module:
    """A held model as an ordinary one in evaluation: what was mixed and adapted becomes its own."""
    for layer in layers_of(model):
        calibration, mean, var = calibration_of(layer), layer.running_mean, layer.running_var
        if calibration is not None and isinstance(calibration.statistics, StreamLayer):
            source = widen(mean), widen(var)
            carried = calibration.statistics.read(*source)
            alpha = alpha_of(calibration.alpha, carried.n, carried.mean)
            if not is_source(alpha):
                mu, sigma = mix_statistics(
                    *source, carried.mean, carried.var, alpha, eps=layer.eps, mix=calibration.mix
                )
                mean.copy_(mu)
                var.copy_(sigma.square() - layer.eps)
                if not var.isfinite().all():
                    raise ValueError(
                        f"A mixed variance of {float(sigma.square().max()):g} does not fit into "
                        f"{var.dtype}: adapt and freeze a float32 or bfloat16 network instead."
                    )
    hold = model.__dict__["_hold"]
    hold.values.clear()
    hold.release()
    return model.eval()


def _uncompiled(model: nn.Module) -> nn.Module:
    return getattr(model, "_orig_mod", model)
