"""The parameters that are trained: which, their float32 copies, the optimiser, one step."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .alpha import is_source
from .functional.normalisation import widen
from .hold import parameter_of
from .layers import calibration_of
from .norm import clean, describe_norms, kind_of

SCALES = (2.0**16, 2.0**10, 2.0**4, 1.0)
"""Loss scales for float16, whose gradients underflow: the first without an overflow is taken."""

Optimizer = str | Callable[[list[Tensor]], torch.optim.Optimizer]


def slots_of(model: nn.Module, parameters: str) -> dict[str, tuple[nn.Module, str]]:
    """The affine parameters to train, by path: of BN, or of every norm.

    Held by module and name rather than by object, so that `half()` and `to()` need no hook.
    """
    slots = {}
    for path, module in model.named_modules():
        kind = kind_of(module)
        if kind == "batch" or (kind is not None and parameters == "norm"):
            for name in ("weight", "bias"):
                if module._parameters.get(name) is not None:
                    slots[clean(f"{path}.{name}".lstrip("."))] = (module, name)
    if not slots:
        raise ValueError(
            f"{type(model).__name__} has no affine parameter to train under "
            f"parameters={parameters!r}; it holds {describe_norms(model)}. parameters='norm' also "
            "takes LayerNorm, GroupNorm and InstanceNorm; AlphaBN needs no parameter."
        )
    return slots


class Trained:
    """The trained parameters of a held model and their optimiser.

    The optimiser works on float32 copies, which are written back after each step: bf16 weights
    near 1 would not move at all under a learning rate of 1e-3. A calibrated half-precision BN
    layer computes with the copies themselves.
    """

    def __init__(
        self,
        slots: dict[str, tuple[nn.Module, str]],
        make_optimizer: Callable[[list[Tensor]], torch.optim.Optimizer],
    ):
        self.slots = slots
        self.make_optimizer = make_optimizer
        self.copies = [
            widen(parameter_of(slot).detach()).clone().requires_grad_() for slot in slots.values()
        ]
        self.optimizer = make_optimizer(self.copies)
        if not isinstance(self.optimizer, torch.optim.Optimizer) or isinstance(
            self.optimizer, torch.optim.LBFGS
        ):
            raise TypeError(
                f"optimizer must make a torch.optim.Optimizer that steps without a closure, but "
                f"made a {type(self.optimizer).__name__}."
            )

    @torch.no_grad()
    def reset(self, values: Iterable[Tensor]) -> None:
        """Start again from these values, with a new optimiser."""
        for copy, value in zip(self.copies, values, strict=True):
            copy.copy_(value)
        self.optimizer = self.make_optimizer(self.copies)

    def follow(self) -> list[Tensor]:
        """The tensors that the forward uses now, after any `half()`, `to()` or `cuda()`."""
        used = []
        for (module, name), copy in zip(self.slots.values(), self.copies, strict=True):
            parameter = parameter_of((module, name))
            dtype = torch.promote_types(parameter.dtype, torch.float32)
            if copy.device != parameter.device or copy.dtype != dtype:
                copy.data = copy.data.to(parameter.device, dtype)
                state = self.optimizer.state.get(copy, {})
                state.update({key: _moved(value, key, copy) for key, value in state.items()})
            calibration = calibration_of(module)
            narrow = parameter.dtype in (torch.float16, torch.bfloat16)
            if calibration is not None and narrow and not is_source(calibration.alpha):
                calibration.trained[name] = copy
                used.append(copy)
            else:
                if calibration is not None:
                    calibration.trained.pop(name, None)
                used.append(parameter)
        return used

    def step(self, loss: Tensor, used: list[Tensor], *, scaled: bool) -> str | None:
        """One step down the loss, or the reason why there was none; then nothing has changed."""
        if not loss.isfinite():
            return "non-finite loss"
        for scale in SCALES if scaled else SCALES[-1:]:
            last = scale == SCALES[-1]
            found = _gradients(loss * scale, used, keep=not last)
            gradients = [g if g is None else widen(g) for g in found]
            if scale != 1:
                gradients = [g if g is None else g / scale for g in gradients]
            norms = torch._foreach_norm([g for g in gradients if g is not None], float("inf"))
            if torch.stack(list(norms)).isfinite().all():
                break
        else:
            return "non-finite gradient"
        for copy, gradient in zip(self.copies, gradients, strict=True):
            copy.grad = gradient
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.write()
        return None

    @torch.no_grad()
    def write(self) -> None:
        """Put the copies' values into the model, rounded to its type."""
        torch._foreach_copy_([parameter_of(slot) for slot in self.slots.values()], self.copies)

    def tensors(self) -> dict[str, Tensor]:
        """All that training changed, by name: values and the optimiser's moments."""
        named = {f"value.{path}": copy for path, copy in zip(self.slots, self.copies, strict=True)}
        for path, copy in zip(self.slots, self.copies, strict=True):
            for key, value in self.optimizer.state.get(copy, {}).items():
                if value is not None:  # SGD without momentum keeps a None
                    named[f"optimizer.{path}.{key}"] = torch.as_tensor(value)
        return {name: tensor.detach() for name, tensor in named.items()}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take values and moments from what `tensors` gave."""
        self.reset(tensors[f"value.{path}"] for path in self.slots)
        state: dict[int, dict[str, Tensor]] = {}
        for i, path in enumerate(self.slots):
            prefix = f"optimizer.{path}."
            kept = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            if kept:
                state[i] = kept
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.write()


def uses_float16(model: nn.Module, logits: Tensor) -> bool:
    """Whether gradients pass through float16, where small ones underflow."""
    device = logits.device.type
    autocast = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device)
    dtypes = (logits.dtype, autocast, *(parameter.dtype for parameter in model.parameters()))
    return torch.float16 in dtypes


def _gradients(loss: Tensor, used: list[Tensor], *, keep: bool) -> tuple[Tensor | None, ...]:
    found: tuple[Tensor | None, ...] = ()
    if loss.requires_grad:
        found = torch.autograd.grad(loss, used, retain_graph=keep, allow_unused=True)
    if all(gradient is None for gradient in found):
        raise ValueError(
            "The loss carries no gradient to the trained parameters: the network's forward runs "
            "under no_grad or detaches its answer, or the loss does not use it. Mend that, or use "
            "AlphaBN, which needs none."
        )
    return found


def _moved(value: Any, key: str, like: Tensor) -> Any:
    """A moment beside its parameter; Adam's step count stays where Adam keeps it, on the CPU."""
    return value.to(like) if isinstance(value, Tensor) and key != "step" else value


def optimizer_from(
    parameters: list[Tensor],
    *,
    optimizer: Optimizer,
    lr: float,
    betas: tuple[float, float],
    momentum: float,
    nesterov: bool,
) -> torch.optim.Optimizer:
    """An adapter's optimiser over these parameters."""
    if callable(optimizer):
        return optimizer(parameters)
    if optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum, nesterov=nesterov)
    return torch.optim.Adam(parameters, lr=lr, betas=betas)
