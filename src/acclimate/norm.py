"""Alpha-BN on a whole model: calibrate it, give it back, look at it."""

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from typing import Any, TypeVar, cast

from torch import Tensor, nn
from torch.nn.modules.instancenorm import _InstanceNorm

from .alpha import Alpha, Prior, check_alpha, describe
from .functional.normalisation import check_mix
from .layers import (
    Calibration,
    base_class,
    calibrate,
    calibration_of,
    holds_statistics,
    uncalibrate,
)
from .statistics import Batch, Source

Alphas = float | Tensor | Prior | Mapping[str, Any] | Sequence[Any]
"""Alpha of a whole model: one, a mapping from path globs to them, or a sequence of them."""

Model = TypeVar("Model", bound=nn.Module)

OTHER_NORMS = {
    nn.LayerNorm: "layer",
    nn.GroupNorm: "group",
    _InstanceNorm: "instance",
    nn.RMSNorm: "rms",
}


def alpha_bn(model: Model, alpha: Alphas, *, mix: str = "std") -> Model:
    """Calibrate every BN layer of a model in place (Eq. 3 and 4); returns the same model.

    Training-free: from now on a layer normalises by a mix of its source's statistics and those of
    the batch at hand, in `train()` and `eval()` alike:

        mu    = alpha mu_s    + (1 - alpha) mu_t
        sigma = alpha sigma_s + (1 - alpha) sigma_t

    Weights, buffers and the keys of `state_dict` stay; `restore` gives the source model back bit
    for bit.

    Args:
        model: any network with batch normalisation that holds running statistics.
        alpha: weight of the **source**: 1 is the source model, 0 the batch's statistics (T-BN). A
            number, `prior(N)`, a 0-dim tensor (which may take a gradient), a mapping from layer
            paths with wildcards to those (the last match wins, no match is the source), or a
            sequence of them in the order of `named_modules`.
        mix: "std" mixes standard deviations as the paper does, "var" variances as others do.

    Raises:
        ValueError: no layer holds statistics, one of them cannot be calibrated, alpha does not
            fit, or an adapter holds the model. The model is then as it was.
        TypeError: alpha is no number and nothing else that is taken.
        LookupError: a path of the mapping matches no layer.

    >>> import acclimate as ac
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    >>> type(ac.alpha_bn(model, alpha=0.9)[1]).__name__
    'CalibratedBatchNorm2d'
    >>> type(ac.restore(model)[1]).__name__
    'BatchNorm2d'
    """
    refuse_held(model)
    batch = Batch()
    calibrate_all(model, alpha, mix, lambda path, layer: batch)
    return model


def restore(model: Model) -> Model:
    """Give the source model back, bit for bit: whatever calibrates or holds it, ends here.

    That includes an adapter that is gone (a notebook cell run again). Returns the same model.
    """
    for hold in _holds(model):
        hold.release()
    for layer in layers_of(model):
        uncalibrate(layer)
    return model


@contextmanager
def calibrated(model: Model, alpha: Alphas, *, mix: str = "std") -> Iterator[Model]:
    """Calibrate for the length of a block; afterwards the model is as it was found.

    >>> import acclimate as ac
    >>> import torch
    >>> model = nn.Sequential(nn.BatchNorm1d(4)).eval()
    >>> with ac.calibrated(model, alpha=0.5):
    ...     y = model(torch.randn(8, 4))
    """
    refuse_held(model)
    found = {layer: calibration_of(layer) for layer in layers_of(model)}
    try:
        yield alpha_bn(model, alpha, mix=mix)
    finally:
        restore(model)  # an adapter may have been made inside
        for layer, calibration in found.items():
            if calibration is not None:
                calibrate(layer, calibration)


@dataclass(frozen=True)
class NormLayer:
    """One row of `inspect`: `alpha` is None for a layer that is not calibrated."""

    path: str
    type: str
    kind: str
    channels: int
    calibrated: bool
    alpha: float | str | None


class NormLayers(list[NormLayer]):
    """The rows of `inspect`; printed, a table."""

    def __str__(self) -> str:
        names = tuple(field.name for field in fields(NormLayer))
        rows = [names, *(tuple(map(str, astuple(row))) for row in self)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (zip(row, widths, strict=True) for row in rows)
        return "\n".join("  ".join(c.ljust(w) for c, w in line).rstrip() for line in lines)

    __repr__ = __str__


def inspect(model: nn.Module) -> NormLayers:
    """Every normalisation layer of a model: path, type, channels, whether calibrated, its alpha.

    Layers of kind "batch" are those that alpha-BN calibrates where they hold statistics; the
    others are listed because `parameters="norm"` trains them.

    >>> inspect(nn.Sequential(nn.BatchNorm2d(8), nn.LayerNorm(8)))
    path  type         kind   channels  calibrated  alpha
    0     BatchNorm2d  batch  8         False       None
    1     LayerNorm    layer  8         False       None
    """
    rows = NormLayers()
    for path, module in model.named_modules():
        kind = kind_of(module)
        if kind is not None:
            calibration = calibration_of(module)
            alpha = None if calibration is None else describe(calibration.alpha)
            name, calibrated = base_class(module).__name__, calibration is not None
            rows.append(NormLayer(clean(path), name, kind, _channels(module), calibrated, alpha))
    return rows


def kind_of(module: nn.Module) -> str | None:
    """Which norm a module is: "batch" if it holds statistics, "layer" and so on, or None."""
    if holds_statistics(module):
        return "batch"
    return next((kind for norm, kind in OTHER_NORMS.items() if isinstance(module, norm)), None)


def clean(path: str) -> str:
    """A module's path without what torch.compile adds."""
    return ".".join(part for part in path.split(".") if part != "_orig_mod")


def layers_of(model: nn.Module) -> dict[Any, list[str]]:
    """The layers that hold statistics, in order, each with all its paths."""
    found: dict[Any, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if holds_statistics(module):
            found.setdefault(module, []).append(clean(path))
    return found


def calibrate_all(
    model: nn.Module, alpha: Alphas, mix: str, source: Callable[[str, nn.Module], Source]
) -> None:
    """Calibrate every layer, each with the source of statistics that `source` makes for it."""
    layers = layers_of(model)
    _refuse_unfit(model, layers)
    alphas = _alphas(alpha, layers)
    check_mix(mix)
    for (layer, paths), value in zip(layers.items(), alphas, strict=True):
        calibrate(layer, Calibration(paths[0], value, mix, source(paths[0], layer)))


def refuse_held(model: nn.Module) -> None:
    """Raise if an adapter holds the model, or a part of it, or if it is none."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"The model is {model!r}, but must be a torch.nn.Module; acclimate.models.load makes "
            "one from a name such as 'torchvision:resnet50'."
        )
    for hold in _holds(model):
        raise ValueError(
            f"An adapter ({hold.name}) holds this {type(model).__name__}: call "
            "acclimate.restore(model), or release() on the adapter, first."
        )


def _holds(model: nn.Module) -> list[Any]:
    """What holds a module of this model; each module of a held model knows (see hold.py)."""
    held = {id(h): h for m in model.modules() if (h := m.__dict__.get("_hold")) is not None}
    return list(held.values())


def describe_norms(model: nn.Module) -> str:
    """What a model without BN holds instead: "12 LayerNorm", or "no normalisation layer"."""
    types = [row.type for row in inspect(model)]
    counts = {name: types.count(name) for name in types}
    return ", ".join(f"{n} {name}" for name, n in counts.items()) or "no normalisation layer"


def _refuse_unfit(model: nn.Module, layers: Mapping[Any, list[str]]) -> None:
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no batch normalisation to calibrate; it holds "
            f"{describe_norms(model)}. Tent and Core adapt such a network with parameters='norm'."
        )
    without = [p[0] for layer, p in layers.items() if layer.running_mean is None]
    if without:
        raise ValueError(
            f"These layers hold no source statistics (track_running_stats=False): "
            f"{', '.join(map(repr, without))}. alpha mixes source and target statistics, so load "
            "a network whose BN layers kept their running statistics."
        )
    bypassed = [p[0] for layer, p in layers.items() if "forward" in layer.__dict__]
    if bypassed:
        raise ValueError(
            f"These layers have a forward of their own as an attribute, which would bypass the "
            f"calibration: {', '.join(map(repr, bypassed))}. Delete it (del layer.forward) first."
        )


def _alphas(alpha: object, layers: Mapping[Any, list[str]]) -> list[Alpha]:
    """Alpha of every layer, in order."""
    if isinstance(alpha, Mapping):
        values = {glob: check_alpha(value) for glob, value in alpha.items()}
        paths = [path for all_of_one in layers.values() for path in all_of_one]
        for glob in values:
            if not _matches(paths, glob):
                raise LookupError(
                    f"alpha names {glob!r}, which matches no layer. The layers are "
                    f"{', '.join(map(repr, paths))}."
                )
        return [
            next(
                (values[glob] for glob in reversed(values) if _matches(paths, glob)),
                cast(Alpha, 1.0),
            )
            for paths in layers.values()
        ]
    if isinstance(alpha, (Sequence, nn.ParameterList)) and not isinstance(alpha, str):
        if len(alpha) != len(layers):
            raise ValueError(
                f"alpha has {len(alpha)} values, but the model has {len(layers)} layers with "
                "statistics: give one a layer, in the order of acclimate.inspect(model)."
            )
        return [check_alpha(value) for value in alpha]
    return [check_alpha(alpha)] * len(layers)


def _matches(paths: list[str], glob: str) -> bool:
    return any(fnmatch.fnmatchcase(path, glob) for path in paths)


def _channels(module: Any) -> int:
    if holds_statistics(module):
        running_mean = module.running_mean
        return int(module.num_features if running_mean is None else running_mean.shape[0])
    for name in ("num_channels", "num_features"):
        if hasattr(module, name):
            return int(getattr(module, name))
    return int(module.normalized_shape[-1])
