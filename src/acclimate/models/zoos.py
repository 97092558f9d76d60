"""Other libraries' networks by name: one function a library, which imports it when called."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..extras import require

__all__ = ["ZOOS"]


def torchvision(name: str, pretrained: bool) -> nn.Module:
    """Builds ``torchvision.models``' network of that name."""
    models = require("torchvision.models", "torchvision")
    _check_known("torchvision", name, models.list_models())
    builder: Callable[..., nn.Module] = models.get_model_builder(name)
    if pretrained:
        return builder(weights="DEFAULT")
    options = inspect.signature(builder).parameters
    bare: dict[str, Any] = {"weights": None}
    if "weights_backbone" in options:
        bare["weights_backbone"] = None  # segmentation and detection would download these
    if "aux_loss" in options:
        bare["aux_loss"] = True  # published segmentation weights hold this head
    return builder(**bare)


def timm(name: str, pretrained: bool) -> nn.Module:
    """Builds timm's network of that name, which may carry a tag: ``resnet50.a1_in1k``."""
    library = require("timm", "timm")
    _check_known("timm", name, [*library.list_models(), *library.list_pretrained()])
    if pretrained and not library.is_model_pretrained(name):
        raise ValueError(
            f"timm has no weights for {name!r}: give them with file=, or pretrained=False for the "
            "bare architecture"
        )
    model: nn.Module = library.create_model(name, pretrained=pretrained)
    return model


def robustbench(name: str, pretrained: bool) -> nn.Module:
    """Builds RobustBench's ``NAME``, or ``DATASET/THREAT/NAME`` such as ``cifar100/Linf/NAME``."""
    zoo = require("robustbench.model_zoo", "robustbench").model_dicts
    builders: dict[str, Callable[[], nn.Module]] = {
        f"{data.value}/{threat.value}/{network}": entry["model"]
        for data, threats in zoo.items()
        for threat, networks in threats.items()
        for network, entry in networks.items()
    }
    path = name if "/" in name else f"cifar10/corruptions/{name}"
    _check_known("robustbench", path, builders)
    if not pretrained:
        return builders[path]()
    data, threat, network = path.split("/")
    library = require("robustbench.utils", "robustbench")
    # Its own default is ./models, which would fill whatever folder the user stands in.
    folder = Path(torch.hub.get_dir()) / "robustbench"
    model: nn.Module = library.load_model(
        network, model_dir=folder, dataset=data, threat_model=threat
    )
    return model


ZOOS: dict[str, Callable[[str, bool], nn.Module]] = {
    "torchvision": torchvision,
    "timm": timm,
    "robustbench": robustbench,
}


def _check_known(zoo: str, name: str, known: Collection[str]) -> None:
    if name in known:
        return
    nearest = difflib.get_close_matches(name, known, n=3) or sorted(known)[:3]
    raise LookupError(
        f"{zoo} has no network {name!r}; the nearest of its {len(known)} are {', '.join(nearest)}"
    )
