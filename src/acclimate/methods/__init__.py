"""The methods, one a file, and `adapt`, which makes one by name."""

import difflib
import inspect
from typing import Any

from torch import nn

from ..adapter import Adapter
from .alpha_bn import AlphaBN
from .core import Core
from .source import Source
from .tbn import TBN
from .tent import Tent

METHODS: dict[str, type[Adapter]] = {
    "source": Source,
    "tbn": TBN,
    "alpha_bn": AlphaBN,
    "tent": Tent,
    "core": Core,
}

__all__ = ["METHODS", "TBN", "AlphaBN", "Core", "Source", "Tent", "adapt"]


def adapt(model: nn.Module, method: str, **options: Any) -> Adapter:
    """An adapter by the name of its method, for configurations.

    >>> import torch
    >>> adapt(torch.nn.Sequential(torch.nn.BatchNorm1d(4)), "core", alpha=0.9).method
    'Core'
    """
    if method not in METHODS:
        raise LookupError(f"There is no method {method!r}; {_known(method, METHODS)}.")
    cls = METHODS[method]
    known = options_of(cls)
    for name in options:
        if name not in known:
            raise TypeError(f"{cls.__name__} has no option {name!r}; {_known(name, known)}.")
    return cls(model, **options)


def options_of(cls: type[Adapter]) -> list[str]:
    """The names of a method's options: the shared ones and its own."""
    signatures = (inspect.signature(c.__init__) for c in cls.__mro__ if issubclass(c, Adapter))
    found = {
        name: None
        for signature in signatures
        for name, parameter in signature.parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    return list(found)


def _known(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}the known ones are {', '.join(map(repr, known))}"
