"""What the options of an adapter may be, and alpha where none is given."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from torch import nn

from .functional.normalisation import MIXES
from .norm import Alphas, describe_norms, layers_of

CHOICES = {
    "statistics": ("batch", "stream"),
    "parameters": ("bn", "norm"),
    "mix": MIXES,
    "nesterov": (False, True),
    "episodic": (False, True),
    "check": (False, True),
}


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse an option that does not fit: what came in, the rule, an example."""
    for name, known in CHOICES.items():
        if options[name] not in known:
            raise ValueError(f"{name} must be {_one_of(known)}, but is {options[name]!r}.")
    for name in ("lr", "temperature"):
        _check(options, name, "a finite number above 0", lambda value: 0 < value < math.inf)
    _check(options, "memory", "a number above 0", lambda value: value > 0)
    _check(options, "momentum", "a number in [0, 1)", lambda value: 0 <= value < 1)
    betas = options["betas"]
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ValueError(f"betas must be a pair, such as (0.9, 0.999), but is {betas!r}.")
    steps = options["steps"]
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps must be a whole number of at least 1, but is {steps!r}.")
    optimizer, known = options["optimizer"], ("adam", "sgd")
    if not callable(optimizer) and optimizer not in known:
        raise ValueError(
            f"optimizer must be {_one_of(known)}, or a function that takes the parameters and "
            f"returns a torch.optim.Optimizer, but is {optimizer!r}."
        )
    if options["logits"] is not None and not callable(options["logits"]):
        raise TypeError(
            "logits must be a function that finds the logits in the model's answer, such as "
            f"lambda answer: answer.scores, but is {options['logits']!r}."
        )


class AlphaPolicy(Protocol):
    """What a method says of alpha."""

    method: str
    trains: bool
    default_alpha: ClassVar[float | None]
    fixed_alpha: ClassVar[float | None]


def alpha_for(policy: AlphaPolicy, model: nn.Module, options: Mapping[str, Any]) -> Alphas | None:
    """Alpha for this model: what was given, or the method's own; None where nothing has BN."""
    alpha: Alphas | None = options["alpha"]
    if policy.fixed_alpha is not None:
        if alpha is not None and alpha != policy.fixed_alpha:
            raise ValueError(
                f"alpha={alpha!r} was given, but {policy.method} has alpha "
                f"{policy.fixed_alpha:g}: leave it out, or use AlphaBN, which takes one."
            )
        return policy.fixed_alpha
    if policy.trains and options["parameters"] == "norm" and not layers_of(model):
        if alpha is not None:
            raise ValueError(
                f"alpha={alpha!r} was given, but {type(model).__name__} has no batch "
                f"normalisation to calibrate (it holds {describe_norms(model)}): leave it out."
            )
        return None
    if alpha is None and policy.default_alpha is None:
        raise ValueError(
            f"{policy.method} needs alpha, the weight of the source's statistics in [0, 1]: 0.9 "
            "is the paper's for classification under domain shift, 0.7 for segmentation."
        )
    return policy.default_alpha if alpha is None else alpha


def _check(options: Mapping[str, Any], name: str, rule: str, fits: Any) -> None:
    value = options[name]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or math.isnan(value) or not fits(value):
        raise ValueError(f"{name} must be {rule}, but is {value!r}.")


def _one_of(known: tuple[object, ...]) -> str:
    return " or ".join(map(repr, known))
