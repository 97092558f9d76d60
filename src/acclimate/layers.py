"""One calibrated layer: the class swap, its pickling, its way back.

A layer is kept and only its class changes, to a subclass of its own class whose forward takes the
statistics from elsewhere. So state_dict keys, hooks, isinstance and whatever a subclass adds (an
activation, say) survive. The swapped class never writes the layer's buffers or flags: its forward
runs on a shadow, an object of the base class that shares the layer's attributes, so threads that
share a network agree with one thread.
"""

import copy
import functools
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from .alpha import Alpha, alpha_of, is_source
from .functional import calibrated_norm, mix_statistics
from .functional.normalisation import functorch_is_active, is_exporting, is_tracing, widen
from .statistics import Source

TORCHS_OWN = (_BatchNorm.forward, nn.SyncBatchNorm.forward)
"""Forwards that are F.batch_norm and nothing else, so the calibrated one may stand for them."""


@dataclass
class Calibration:
    """What a calibrated layer needs to know. It hangs on the layer, outside torch's registries.

    `attributes` are the names of the layer's own attributes when it was wrapped. `trained` are
    float32 copies of half-precision affine parameters that an adapter trains; they are used
    instead of the layer's own.
    """

    path: str
    alpha: Alpha
    mix: str
    statistics: Source
    attributes: tuple[str, ...] = ()
    trained: dict[str, Tensor] = field(default_factory=dict)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Calibration":
        """Like any other, but for an alpha with a graph, which torch does not copy."""
        alpha = self.alpha
        if isinstance(alpha, Tensor) and not alpha.is_leaf:
            memo[id(alpha)] = alpha.detach().clone()
        values = {name: copy.deepcopy(value, memo) for name, value in vars(self).items()}
        return Calibration(**values)


def holds_statistics(module: nn.Module) -> bool:
    """Whether a layer normalises by statistics of its source: BN, and FrozenBatchNorm2d by form."""
    if isinstance(module, _BatchNorm):
        return True
    buffers = module._buffers
    frozen = "running_mean" in buffers and "running_var" in buffers and hasattr(module, "eps")
    return frozen and not isinstance(module, _InstanceNorm)


def calibration_of(module: nn.Module) -> Calibration | None:
    """The calibration of a layer, or None for a plain one."""
    return module.__dict__.get("_calibration")


def calibrate(layer: Any, calibration: Calibration) -> None:
    """Give a layer a calibration, in place of the one it may have."""
    uncalibrate(layer)
    calibration.attributes = tuple(layer.__dict__)
    base: Any = type(layer)
    layer.__class__ = _calibrated_class(base)
    layer.__dict__["_calibration"] = calibration


def uncalibrate(layer: nn.Module) -> None:
    """Give a layer its own class back."""
    if calibration_of(layer) is not None:
        layer.__class__ = base_class(layer)
        del layer.__dict__["_calibration"]


def base_class(layer: nn.Module) -> type[nn.Module]:
    """The layer's class without calibration."""
    cls = type(layer)
    return cls.__mro__[1] if calibration_of(layer) is not None else cls


@functools.cache
def _calibrated_class(base: Any) -> type[nn.Module]:
    def forward(self: Any, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # noqa: A002
        return _forward(base, self, input, *args, **kwargs)

    def __reduce_ex__(self: Any, protocol: Any) -> tuple[Any, ...]:
        """Pickle by the base class: the swapped one has no name that pickle could find."""
        _, _, *state = base.__reduce_ex__(self, protocol)
        return _new_calibrated, (base,), *state

    def __prepare_scriptable__(self: Any) -> None:
        raise TypeError(
            "torch.jit.script cannot compile a calibrated layer: export the network with "
            "torch.export or torch.jit.trace, or freeze it first with acclimate.freeze."
        )

    # The base's module, so that torch.fx takes the layer for the leaf that it was.
    namespace = {
        "__module__": base.__module__,
        "__doc__": base.__doc__,
        "forward": forward,
        "__reduce_ex__": __reduce_ex__,
        "__prepare_scriptable__": __prepare_scriptable__,
    }
    return type(f"Calibrated{base.__name__}", (base,), namespace)


def _new_calibrated(base: Any) -> nn.Module:
    cls = _calibrated_class(base)
    return cls.__new__(cls)


def _forward(base: Any, layer: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The layer's forward; what a subclass takes beside its input goes to the base's."""
    calibration: Calibration = layer._calibration
    _check(layer, calibration, x)
    if is_source(calibration.alpha) or x.numel() == 0:
        plain = _shadow(base, layer, calibration, {})
        return base.forward(plain, x, *args, **kwargs)  # type: ignore[no-any-return]
    source_mean, source_var = widen(layer.running_mean), widen(layer.running_var)
    mean, var, own, n = calibration.statistics(x, source_mean, source_var)
    alpha = alpha_of(calibration.alpha, n, mean)
    eps, mix = layer.eps, calibration.mix
    affine = {name: _affine(layer, calibration, name) for name in ("weight", "bias")}
    weight, bias = affine["weight"], affine["bias"]
    if _gradient_is_needed(x, weight, bias, alpha):
        own_class = base.forward in TORCHS_OWN
        if own_class:
            layer._check_input_dim(x)
        else:  # the class does with a normalised input what it does beside normalising
            weight = bias = None
        x = calibrated_norm(
            x,
            source_mean,
            source_var,
            mean,
            var,
            alpha,
            weight=weight,
            bias=bias,
            own=own,
            eps=eps,
            mix=mix,
        )
        if own_class:
            return x
        mu, running_var = torch.zeros_like(mean), torch.ones_like(var) - eps
    else:
        mu, sigma = mix_statistics(source_mean, source_var, mean, var, alpha, eps=eps, mix=mix)
        # Without a gradient by decision, not by chance: F.batch_norm refuses such statistics.
        mu, running_var = mu.detach(), (sigma.square() - eps).detach()
    values = {"running_mean": mu, "running_var": running_var, **affine}
    y: Tensor = base.forward(_shadow(base, layer, calibration, values), x, *args, **kwargs)
    # Only FrozenBatchNorm2d answers in float32 where its values were widened.
    return y if source_mean is layer.running_mean else y.to(x.dtype)


def _check(layer: Any, calibration: Calibration, x: Tensor) -> None:
    channels = layer.running_mean.shape[0]
    if x.dim() < 2 or x.shape[1] != channels:
        raise ValueError(
            f"The layer {calibration.path!r} got an input of shape {tuple(x.shape)}, but "
            f"normalises {channels} channels in dimension 1: check the network's input, (N, C, "
            f"...) with channels second."
        )
    if forward_ad._current_level >= 0:
        raise TypeError(
            f"Forward-mode differentiation reached the calibrated layer {calibration.path!r}, "
            "which has a reverse mode only: use torch.func.grad or backward, or "
            "acclimate.restore(model) first."
        )


def _affine(layer: Any, calibration: Calibration, name: str) -> Tensor | None:
    """Weight or bias in float32: F.batch_norm refuses float32 statistics beside a bf16 weight."""
    if name in calibration.trained:
        return calibration.trained[name]
    value = getattr(layer, name, None)
    return None if value is None else widen(value)


def _gradient_is_needed(*tensors: object) -> bool:
    if is_tracing() or is_exporting():
        return False  # what is recorded is for inference, and checked again under no_grad
    if functorch_is_active():
        return True
    return torch.is_grad_enabled() and any(
        isinstance(tensor, Tensor) and tensor.requires_grad for tensor in tensors
    )


def _shadow(
    base: type[nn.Module],
    layer: Any,
    calibration: Calibration,
    values: dict[str, Tensor | None],
) -> Any:
    """The layer as an object of its base class in evaluation, with other values in its registries.

    One attribute at a time, which is what torch.compile follows on every version.
    """
    shadow = object.__new__(base)
    for name in calibration.attributes:
        shadow.__dict__[name] = layer.__dict__[name]
    shadow.__dict__["training"] = False
    for registry in ("_parameters", "_buffers"):
        own = layer.__dict__[registry]
        shadow.__dict__[registry] = {name: values.get(name, own[name]) for name in own}
    return shadow
