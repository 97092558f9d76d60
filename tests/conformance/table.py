"""The one table: every method with its options, and every family of BN. All batteries run over it.

A new method or a new kind of BN layer is one row here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate as ac
from guide import method_of_the_guide
from networks import Net, Shared, settle, shifted


@dataclass(frozen=True)
class Row:
    """A method, by its name or its class, with options. `trains`: it changes affine parameters."""

    name: str
    method: str | type[ac.Adapter]
    options: dict[str, Any] = field(default_factory=dict)
    trains: bool = False

    def __str__(self) -> str:
        return self.name

    def on(self, model: nn.Module, **options: Any) -> ac.Adapter:
        options = {**self.options, **options}
        if isinstance(self.method, str):
            return ac.adapt(model, self.method, **options)
        return self.method(model, **options)


METHODS = [
    Row("source", "source"),
    Row("tbn", "tbn"),
    Row("tbn-stream", "tbn", {"statistics": "stream"}),
    Row("alpha_bn", "alpha_bn", {"alpha": 0.9}),
    Row("alpha_bn-stream-prior", "alpha_bn", {"alpha": ac.prior(16), "statistics": "stream"}),
    Row("tent", "tent", {}, True),
    Row("tent-sgd-var", "tent", {"alpha": 0.9, "optimizer": "sgd", "mix": "var"}, True),
    Row("core", "core", {"alpha": 0.9}, True),
    Row("core-stream-steps", "core", {"alpha": 0.5, "statistics": "stream", "steps": 2}, True),
    Row("core-episodic", "core", {"alpha": 0.5, "episodic": True}, True),
    Row("guide", method_of_the_guide(), {"alpha": 0.5}, True),  # docs/guide/write-a-method.md
]
TRAINING = [row for row in METHODS if row.trains]
STREAMING = [row for row in METHODS if row.options.get("statistics") == "stream"]


@dataclass(frozen=True)
class Family:
    """A network around one kind of BN layer.

    `shape` is one sample's; `trainable`: its affine are parameters; `torch_trains`: torch's own
    training mode runs it on a CPU; `needs`: the module without which it is skipped.
    """

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...] = (3, 8, 8)
    trainable: bool = True
    torch_trains: bool = True
    needs: str = "torch"

    def __str__(self) -> str:
        return self.name

    def model(self, seed: int = 0) -> nn.Module:
        pytest.importorskip(self.needs)
        torch.manual_seed(seed)
        return settle(self.build(), seed)

    def batch(self, n: int = 16, seed: int = 1) -> Tensor:
        return shifted(n, *self.shape, seed=seed)

    def stream(self, count: int = 3, n: int = 16) -> list[Tensor]:
        return [self.batch(n, seed) for seed in range(1, count + 1)]


def _bn1d() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5))


def _bn1d_sequence() -> nn.Module:
    head = nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 5)
    return nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), *head)


def _bn3d() -> nn.Module:
    head = nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(6, 5)
    return nn.Sequential(nn.Conv3d(2, 6, 3), nn.BatchNorm3d(6), nn.ReLU(inplace=True), *head)


def _without_affine() -> nn.Module:
    return Net(lambda channels: nn.BatchNorm2d(channels, affine=False))


def _root() -> nn.Module:
    return nn.BatchNorm2d(3)


def _external(module: str, name: str) -> Callable[[], nn.Module]:
    return lambda: Net(getattr(import_module(module), name))


def _act2d() -> nn.Module:
    model = _external("timm.layers", "BatchNormAct2d")()
    model.relu = nn.Identity()  # the layer holds the activation
    return model


def _factory(module: str, name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        model: nn.Module = getattr(import_module(module), name)(**options)
        return model

    return build


BN2D = Family("bn2d", Net)
SYNC = Family("sync", lambda: Net(nn.SyncBatchNorm), torch_trains=False)
FROZEN = Family(
    "frozen",
    _external("torchvision.ops", "FrozenBatchNorm2d"),
    trainable=False,
    torch_trains=False,
    needs="torchvision",
)
ACT2D = Family("act2d", _act2d, needs="timm")
FAMILIES = [
    BN2D,
    Family("bn1d", _bn1d, (6,)),
    Family("bn1d-sequence", _bn1d_sequence, (3, 9)),
    Family("bn3d", _bn3d, (2, 4, 5, 5)),
    SYNC,
    ACT2D,
    FROZEN,
    Family("without-affine", _without_affine, trainable=False),
    Family("shared", Shared),
    Family("root", _root),
]
ZOO = [
    Family(
        "resnet18",
        _factory("torchvision.models", "resnet18"),
        (3, 32, 32),
        needs="torchvision",
    ),
    Family(
        "efficientnet_b0",
        _factory("timm", "create_model", model_name="efficientnet_b0", drop_rate=0.5),
        (3, 32, 32),
        torch_trains=False,  # its dropout would answer too
        needs="timm",
    ),
]

PAIRS = [(f, row) for f in FAMILIES for row in METHODS if f.trainable or not row.trains]
"""Every method on every family that it can run on."""

over_families = pytest.mark.parametrize("family", FAMILIES, ids=str)
over_methods = pytest.mark.parametrize("row", METHODS, ids=str)
over_pairs = pytest.mark.parametrize(("family", "row"), PAIRS, ids=lambda part: str(part))
