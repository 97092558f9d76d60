"""The optional parts: each is imported where it is used, and its absence is one clear sentence."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["NEEDED_FOR", "MissingExtraError", "require"]

NEEDED_FOR = {
    "demo": "the demonstration on MNIST digits",
    "report": "pictures and reports",
    "torchvision": "torchvision's networks",
    "timm": "timm's networks",
    "onnx": "the export to ONNX",
    "robustbench": "RobustBench's networks",
}


class MissingExtraError(ImportError, LookupError):
    """A package of an extra is not installed; the text says how to install it."""


def require(module: str, extra: str) -> Any:
    """Imports ``module``, which the extra ``extra`` installs.

    Only what is not installed is explained. A package that is there but fails, such as a
    torchvision built for another torch, raises its own error.

    Example:
        >>> require("math", "demo").pi
        3.141592653589793

    Raises:
        MissingExtraError: ``module``, or something it imports, is not installed.
        LookupError: there is no such extra.
    """
    if extra not in NEEDED_FOR:
        raise LookupError(f"acclimate has no extra {extra!r}; it has {', '.join(NEEDED_FOR)}")
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{error.name} is not installed; it is needed for {NEEDED_FOR[extra]}: "
            f'pip install "acclimate[{extra}]"'
        ) from error
