"""What an adapter changed of a model, and the way back. It lives with the model.

Every module of a held model knows its hold, so the way back outlives the adapter, and holding a
part of a held model is noticed.
"""

from typing import Any

import torch
from torch import Tensor, nn

from .layers import calibrate, calibration_of, uncalibrate
from .norm import layers_of, refuse_held


class Hold:
    """A model held by an adapter: the classes, flags and values to give back."""

    def __init__(self, model: nn.Module, name: str):
        refuse_held(model)
        self.layers = list(layers_of(model))
        self.found = {layer: calibration_of(layer) for layer in self.layers}
        for layer in self.layers:  # every calibration starts from the source
            uncalibrate(layer)
        self.name = name
        self.released = False
        # Not torch.compile's own wrappers: a copy of a wrapper is not whole while it is made.
        self.modules = [m for m in model.modules() if "_orig_mod" not in m._modules]
        self.were_training = [module for module in self.modules if module.training]
        self.gradients: list[tuple[tuple[nn.Module, str], bool]] = []
        self.slots: dict[str, tuple[nn.Module, str]] = {}
        self.values: dict[str, Tensor] = {}
        for module in self.modules:
            module.__dict__["_hold"] = self

    def quiet(self) -> None:
        """Keep dropout and stochastic depth off, whatever `train()` said since the last call."""
        for module in self.modules:
            if module.training:
                module.training = False

    def train_only(self, slots: dict[str, tuple[nn.Module, str]]) -> None:
        """Let these parameters alone take a gradient, and keep their values, by path."""
        self.slots = slots
        parameters = {path: parameter_of(slot) for path, slot in slots.items()}
        self.values = {path: p.detach().clone() for path, p in parameters.items()}
        trained = {id(parameter) for parameter in parameters.values()}
        for module in self.modules:
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter.is_floating_point():
                    self.gradients.append(((module, name), parameter.requires_grad))
                    parameter.requires_grad_(id(parameter) in trained)

    @torch.no_grad()
    def restore_values(self) -> None:
        """Write the source's values back, in the type that the model has now."""
        for path, value in self.values.items():
            parameter_of(self.slots[path]).copy_(value)

    def release(self) -> None:
        """The source model again, bit for bit. A second call does nothing."""
        if self.released:
            return
        self.released = True
        for layer in self.layers:
            uncalibrate(layer)
        self.restore_values()
        for slot, requires_grad in reversed(self.gradients):  # a shared one has several slots
            parameter_of(slot).requires_grad_(requires_grad)
        for module in self.were_training:
            module.training = True
        for module in self.modules:
            module.__dict__.pop("_hold", None)

    def undo(self) -> None:
        """The model as it was found, a calibration of its own included: for a failed start."""
        self.release()
        for layer, calibration in self.found.items():
            if calibration is not None:
                calibrate(layer, calibration)


def parameter_of(slot: tuple[nn.Module, str]) -> Any:
    """The parameter that a module holds now under a name; `half()` or `to()` may replace it."""
    module, name = slot
    return module._parameters[name]
