"""`parameters="norm"`: Tent and Core on networks without BN, and on mixed ones."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import acclimate as ac
from networks import (
    Attention,
    Net,
    Permuted,
    assert_equal,
    assert_same,
    batches,
    clone,
    contents,
    fresh,
    group_norm,
    instance_norm,
    run,
    settle,
    snapshot,
)


@dataclass(frozen=True)
class Network:
    """A network without BN; `holds` is what a refusal says of it."""

    name: str
    build: Callable[[], nn.Module]
    holds: str
    needs: str = "torch"
    side: int = 8

    def __str__(self) -> str:
        return self.name

    def model(self) -> nn.Module:
        pytest.importorskip(self.needs)
        torch.manual_seed(0)
        return settle(self.build())

    def stream(self, count: int) -> list[torch.Tensor]:
        return batches(count, shape=(3, self.side, self.side))


def _vit() -> nn.Module:
    from torchvision.models import VisionTransformer

    vit: nn.Module = VisionTransformer(8, 4, 1, 2, 16, 32, num_classes=5)
    nn.init.normal_(vit.get_parameter("heads.head.weight"))  # zero at first
    return vit


def _convnext() -> nn.Module:
    from timm.models.convnext import ConvNeXt

    convnext: nn.Module = ConvNeXt(depths=(1,) * 4, dims=(8,) * 4, num_classes=5)
    nn.init.normal_(convnext.get_parameter("head.fc.weight"))
    return convnext


NETWORKS = [
    Network("vit", Attention, "3 LayerNorm"),
    Network("convnext", lambda: Net(Permuted), "2 LayerNorm"),
    Network("group-norm", lambda: Net(group_norm), "2 GroupNorm"),
    Network("instance-norm", lambda: Net(instance_norm), "2 InstanceNorm2d"),
    Network("torchvision-vit", _vit, "3 LayerNorm", "torchvision"),
    Network("timm-convnext", _convnext, r"\d+ LayerNorm", "timm", 32),
]
over_networks = pytest.mark.parametrize("network", NETWORKS, ids=str)
over_training = pytest.mark.parametrize("method", ["tent", "core"])


@over_training
@over_networks
def test_every_norm_is_trained_and_nothing_else(network: Network, method: str) -> None:
    model = network.model()
    before = snapshot(model)
    adapter = ac.adapt(model, method, parameters="norm", lr=1e-2)
    x = network.stream(1)[0]
    first = adapter.loss(adapter(x), None)
    for _ in range(10):
        last = adapter.loss(adapter(x), None)
    assert last < first
    norms = {row.path for row in ac.inspect(model)}
    changed = {
        name.rpartition(".")[0]
        for name, value in model.state_dict().items()
        if not torch.equal(value, before["values"][name])
    }
    assert changed == norms
    assert_same(snapshot(adapter.release()), before)


@over_training
@over_networks
def test_the_first_answer_is_the_sources(network: Network, method: str) -> None:
    (x,), model = network.stream(1), network.model()
    with torch.no_grad():
        expected = model(x)
    torch.testing.assert_close(ac.adapt(model, method, parameters="norm")(x), expected)


@over_training
@over_networks
def test_state_files_and_reset(network: Network, method: str, tmp_path: Path) -> None:
    stream = network.stream(4)
    adapter, other = (ac.adapt(network.model(), method, parameters="norm") for _ in range(2))
    first = run(adapter, stream[:2])
    adapter.save(tmp_path / "state")
    other.load(tmp_path / "state")
    assert_equal(run(other, stream[2:]), run(adapter, stream[2:]))
    adapter.reset()
    assert_equal(run(adapter, stream[:2]), first)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("network", NETWORKS[:3], ids=str)
def test_half_precision_norms_adapt_by_float32_copies(
    network: Network, dtype: torch.dtype, tmp_path: Path
) -> None:
    x, model = network.stream(1)[0].to(dtype), network.model().to(dtype)
    adapter = ac.Tent(model, parameters="norm")
    before = adapter.predict(x)
    run(adapter, [x] * 20)
    assert not torch.equal(adapter.predict(x), before)
    _, state = contents(adapter, tmp_path / "state")
    assert {value.dtype for value in state.values()} == {torch.float32}
    for name, value in state.items():
        if name.startswith("value."):
            assert_equal(model.get_parameter(name[6:]).detach(), value.to(dtype))


@over_networks
def test_alpha_is_refused_where_nothing_has_bn(network: Network) -> None:
    model = network.model()
    before = snapshot(model)
    for cls in (ac.Tent, ac.Core):
        with pytest.raises(ValueError, match=rf"alpha=0\.9 was given.*{network.holds}.*leave it"):
            cls(model, alpha=0.9, parameters="norm")
    assert_same(snapshot(model), before)


@over_networks
def test_what_calibrates_bn_names_what_there_is_and_the_option(network: Network) -> None:
    model = network.model()
    before = snapshot(model)
    sentence = rf"{type(model).__name__} has no batch.*{network.holds}.*parameters='norm'"
    uses: list[Callable[[], Any]] = [
        lambda: ac.alpha_bn(model, 0.9),
        lambda: ac.calibrated(model, 0.9).__enter__(),
        lambda: ac.AlphaBN(model, alpha=0.9),
        lambda: ac.AlphaBN(model, alpha=0.9, parameters="norm"),
        lambda: ac.TBN(model),
        lambda: ac.Tent(model),
        lambda: ac.Core(model, alpha=0.9),
        lambda: ac.recalibrate(model, network.stream(1), alpha=0.9),
    ]
    for use in uses:
        with pytest.raises(ValueError, match=sentence):
            use()
    assert_same(snapshot(model), before)


@over_networks
def test_source_works_anywhere(network: Network) -> None:
    (x,), model = network.stream(1), network.model()
    with torch.no_grad():
        expected = model(x)
    with ac.Source(model) as adapter:
        assert_equal(adapter(x), expected)
    assert_same(fresh(model), fresh(network.model()))


class Mixed(nn.Module):
    """BN first, LayerNorm behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.features = Net()
        self.norm = nn.LayerNorm(10)
        self.head = nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.norm(self.features(x)))
        return y


def test_a_network_with_both_is_calibrated_and_trains_both() -> None:
    model, x = settle(Mixed()), batches(1)[0]
    with pytest.raises(ValueError, match="Core needs alpha"):
        ac.Core(model, parameters="norm")
    expected = ac.alpha_bn(clone(model), 0.5)(x).detach()
    adapter = ac.Core(model, alpha=0.5, parameters="norm")
    torch.testing.assert_close(adapter(x), expected)
    before = settle(Mixed()).state_dict()
    trained = {k for k, v in model.state_dict().items() if "norm" in k or "bn" in k}
    moved = {k for k, p in model.named_parameters() if p.requires_grad}
    assert moved == {k for k in trained if k.endswith(("weight", "bias"))}
    assert list(before) == list(model.state_dict())
    only_bn = ac.Core(ac.restore(model), alpha=0.5)
    only_bn(x)
    assert not model.get_parameter("norm.weight").requires_grad
    assert model.get_parameter("features.bn1.weight").requires_grad


def test_a_network_without_any_norm_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    with pytest.raises(ValueError, match="holds no normalisation layer"):
        ac.alpha_bn(model, 0.9)
    with pytest.raises(ValueError, match=r"no affine parameter.*no normalisation layer"):
        ac.Tent(model, parameters="norm")


def test_a_norm_without_affine_has_nothing_to_train() -> None:
    model = Net(lambda channels: nn.GroupNorm(4, channels, affine=False))
    with pytest.raises(ValueError, match=r"no affine parameter to train.*2 GroupNorm"):
        ac.Tent(model, parameters="norm")
    bn = Net(lambda channels: nn.BatchNorm2d(channels, affine=False))
    with pytest.raises(ValueError, match=r"no affine parameter to train.*AlphaBN needs no param"):
        ac.Tent(bn)
    assert_same(snapshot(ac.restore(bn)), snapshot(bn))
