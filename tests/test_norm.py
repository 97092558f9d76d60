"""inspect, and what alpha_bn and restore say and do on a whole model."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate as ac
from networks import (
    Net,
    Shared,
    assert_equal,
    assert_same,
    fresh,
    net,
    settle,
    shifted,
    snapshot,
)

X = shifted(8, 3, 8, 8)


class Zoo(nn.Module):
    """Every kind of normalisation that torch has."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.BatchNorm1d(2)
        self.two = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU())
        self.three = nn.BatchNorm3d(4, affine=False)
        self.sync = nn.SyncBatchNorm(5)
        self.layer = nn.LayerNorm((6, 7))
        self.group = nn.GroupNorm(2, 8)
        self.instance = nn.InstanceNorm2d(9, track_running_stats=True)
        self.rms = nn.RMSNorm(10)


def test_inspect_lists_every_normalisation_layer() -> None:
    model = Zoo()
    ac.alpha_bn(model, {"two.0": 0.25, "sync": ac.prior(16)})
    assert [tuple(vars(row).values()) for row in ac.inspect(model)] == [
        ("one", "BatchNorm1d", "batch", 2, True, 1.0),
        ("two.0", "BatchNorm2d", "batch", 3, True, 0.25),
        ("three", "BatchNorm3d", "batch", 4, True, 1.0),
        ("sync", "SyncBatchNorm", "batch", 5, True, "prior(16)"),
        ("layer", "LayerNorm", "layer", 7, False, None),
        ("group", "GroupNorm", "group", 8, False, None),
        ("instance", "InstanceNorm2d", "instance", 9, False, None),
        ("rms", "RMSNorm", "rms", 10, False, None),
    ]
    assert not any(row.calibrated or row.alpha for row in ac.inspect(ac.restore(model)))


def test_inspect_prints_a_table_and_names_the_columns() -> None:
    lines = str(ac.inspect(Zoo())).splitlines()
    assert lines[0].split() == ["path", "type", "kind", "channels", "calibrated", "alpha"]
    assert len(lines) == 9
    assert lines[1].split() == ["one", "BatchNorm1d", "batch", "2", "False", "None"]
    assert (
        len({line.index(word) for line, word in zip(lines[1:3], ["batch"] * 2, strict=True)}) == 1
    )
    assert repr(ac.inspect(Zoo())) == str(ac.inspect(Zoo()))
    assert list(ac.inspect(nn.Linear(2, 2))) == []


def test_inspect_of_subclasses_and_frozen_layers_names_their_own_class() -> None:
    class Mine(nn.BatchNorm2d):
        pass

    model = nn.Sequential(Mine(3))
    ac.alpha_bn(model, 0.5)
    assert ac.inspect(model)[0].type == "Mine"
    ops = pytest.importorskip("torchvision.ops")
    assert (
        ac.inspect(ops.FrozenBatchNorm2d(7))[0]
        == ac.inspect(ac.restore(ac.alpha_bn(ops.FrozenBatchNorm2d(7), 1)))[0]
    )


def test_inspect_of_an_adapter_shows_its_model() -> None:
    adapter = ac.Core(net(), alpha=0.9)
    assert [row.alpha for row in ac.inspect(adapter.model)] == [0.9, 0.9]


def test_calibrated_layers_are_still_what_they_were() -> None:
    model = net()
    hooks = []
    model.get_submodule("bn1").register_forward_hook(lambda m, i, y: hooks.append(type(m).__name__))
    layer = model.get_submodule("bn1")
    ac.alpha_bn(model, 0.5)
    model(X)
    assert model.get_submodule("bn1") is layer
    assert isinstance(layer, nn.BatchNorm2d)
    assert hooks == ["CalibratedBatchNorm2d"]
    assert type(layer).__module__ == nn.BatchNorm2d.__module__
    assert type(layer).__doc__ == nn.BatchNorm2d.__doc__
    assert "BatchNorm2d(8, eps=1e-05" in repr(layer)
    model.load_state_dict(net(3).state_dict())
    assert_equal(model(X), ac.alpha_bn(net(3), 0.5)(X))


def test_a_subclass_keeps_what_it_adds() -> None:
    class Scaled(nn.BatchNorm2d):
        """Twice the answer, and a submodule, an attribute and a method of its own."""

        def __init__(self, channels: int):
            super().__init__(channels)
            self.act = nn.ReLU(inplace=True)
            self.factor = 2.0

        def twice(self, x: Tensor) -> Tensor:
            return self.factor * x

        def forward(self, x: Tensor) -> Tensor:
            return self.twice(self.act(super().forward(x)))

    model = nn.Sequential(Scaled(3), nn.Conv2d(3, 4, 1))
    settle(model)
    plain = settle(nn.BatchNorm2d(3))
    for alpha in (0.0, 0.5, 1):
        expected = 2 * ac.alpha_bn(plain, alpha)(X).relu()
        for gradient in (False, True):
            with torch.set_grad_enabled(gradient):
                found = ac.alpha_bn(model[0], alpha)(X)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_no_statistics_of_the_source_refuses_the_whole_model() -> None:
    model = nn.Sequential(
        nn.BatchNorm2d(3),
        nn.BatchNorm2d(3, track_running_stats=False),
        nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False)),
    )
    before = snapshot(model)
    sentence = r"no source statistics \(track_running_stats=False\): '1', '2\.0'.*load a network"
    uses: list[Callable[[], Any]] = [
        lambda: ac.alpha_bn(model, 0.5),
        lambda: ac.alpha_bn(model, {"0": 0.5}),
        lambda: ac.Tent(model),
        lambda: ac.Tent(model, parameters="norm"),
        lambda: ac.recalibrate(model, [X], alpha=0.5),
    ]
    for use in uses:
        with pytest.raises(ValueError, match=sentence):
            use()
    assert_same(snapshot(model), before)


def test_a_forward_of_its_own_as_an_attribute_is_refused() -> None:
    model = net()
    layer: Any = model.get_submodule("bn2")
    layer.forward = lambda x: x
    before = snapshot(model)
    with pytest.raises(ValueError, match=r"bypass the calibration: 'bn2'\. Delete it \(del layer"):
        ac.alpha_bn(model, 0.5)
    with pytest.raises(ValueError, match="'bn2'"):
        ac.Core(model, alpha=0.5)
    assert_same(snapshot(model), before)
    del layer.forward
    ac.alpha_bn(model, 0.5)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_the_wrong_number_of_channels_names_the_layer_and_the_rule(alpha: float) -> None:
    model = nn.Sequential(nn.Identity(), nn.BatchNorm2d(3))
    ac.alpha_bn(model, alpha)
    for x, shape in ((X[:, :2], r"\(8, 2, 8, 8\)"), (X.movedim(1, -1), r"\(8, 8, 8, 3\)")):
        sentence = rf"The layer '1' got an input of shape {shape}, but normalises 3 channels"
        for gradient in (False, True):
            with torch.set_grad_enabled(gradient), pytest.raises(ValueError, match=sentence):
                model(x)
    with pytest.raises(ValueError, match=r"shape \(8,\), but normalises 3 channels"):
        model(X[:, 0, 0, 0])


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_layers_own_check_of_dimensions_still_holds(alpha: float) -> None:
    model = ac.alpha_bn(nn.Sequential(nn.BatchNorm2d(3)).eval(), alpha)
    for gradient in (False, True):
        with torch.set_grad_enabled(gradient), pytest.raises(ValueError, match="expected 4D input"):
            model(X.flatten(2))


def test_restore_gives_back_whatever_it_meets() -> None:
    plain = net()
    before = snapshot(plain)
    assert_same(snapshot(ac.restore(plain)), before)
    bare = nn.Linear(2, 2)
    assert ac.restore(bare) is bare
    parts = ac.alpha_bn(net(), 0.5), ac.Core(net(), alpha=0.5).model
    ac.restore(nn.Sequential(parts[0], nn.Sequential(parts[1])))
    for part in parts:
        assert_same(fresh(part), fresh(net()))


def test_restore_leaves_training_alone_after_alpha_bn() -> None:
    model = ac.alpha_bn(net(), 0.5).train()
    ac.restore(model)
    assert all(module.training for module in model.modules())


def test_a_calibrated_part_of_a_model_leaves_the_rest() -> None:
    model = Net()
    ac.alpha_bn(model.bn2, 0.5)
    assert [row.calibrated for row in ac.inspect(model)] == [False, True]
    ac.restore(model.bn2)
    assert [row.calibrated for row in ac.inspect(model)] == [False, False]


def test_fine_tuning_through_alpha_bn_lowers_a_loss() -> None:
    torch.manual_seed(0)
    model = ac.alpha_bn(settle(Shared()), 0.5).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    labels = torch.arange(8) % 5
    losses = []
    for _ in range(15):
        losses.append(torch.nn.functional.cross_entropy(model(X), labels))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0]


def test_alpha_bn_takes_no_stream() -> None:
    with pytest.raises(TypeError, match="statistics"):
        ac.alpha_bn(Net(), 0.5, statistics="stream")  # type: ignore[call-arg]


def test_what_is_no_model_is_said() -> None:
    with pytest.raises(TypeError, match=r"The model is 'resnet50', but must be a torch\.nn\.Mod"):
        ac.alpha_bn("resnet50", 0.5)  # type: ignore[type-var]
