"""There is always a way back, it is bit-exact, and nothing is wrapped twice."""

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import acclimate as ac
from conformance.table import (
    BN2D,
    METHODS,
    STREAMING,
    Family,
    Row,
    over_families,
    over_methods,
    over_pairs,
)
from networks import (
    assert_close,
    assert_equal,
    assert_same,
    assert_same_state,
    batches,
    contents,
    fresh,
    net,
    run,
    snapshot,
)


def _mixed(model: nn.Module) -> nn.Module:
    """Flags as a user may have left them: some training, some parameters frozen."""
    model.train()
    for i, module in enumerate(model.modules()):
        module.training = i % 2 == 0
    for i, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(i % 3 != 0)
    return model


BACK: dict[str, Callable[[ac.Adapter], Any]] = {
    "release": lambda adapter: adapter.release(),
    "restore": lambda adapter: ac.restore(adapter.model),
    "exit": lambda adapter: adapter.__exit__(None, None, None),
}


@pytest.mark.parametrize("way", BACK)
@over_pairs
def test_the_way_back_is_bit_exact(family: Family, row: Row, way: str) -> None:
    model = _mixed(family.model())
    before = snapshot(model)
    adapter = row.on(model)
    run(adapter, family.stream())
    BACK[way](adapter)
    assert_same(snapshot(model), before)
    adapter.release()  # a second time changes nothing
    assert_same(snapshot(ac.restore(model)), before)


@over_families
def test_restore_after_alpha_bn_is_bit_exact(family: Family) -> None:
    model = _mixed(family.model())
    before = snapshot(model)
    assert ac.alpha_bn(model, 0.2) is model
    model(family.batch())
    assert ac.restore(model) is model
    assert_same(snapshot(model), before)


@over_pairs
def test_the_sources_buffers_and_keys_are_untouched(family: Family, row: Row) -> None:
    model = family.model()
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    keys = list(model.state_dict())
    other = {k: v.clone() for k, v in model.named_parameters() if "bn" not in k and "norm" not in k}
    adapter = row.on(model)
    run(adapter, family.stream())
    assert_equal(dict(model.named_buffers()), buffers)
    assert list(model.state_dict()) == keys
    if family is BN2D:
        assert_equal({k: dict(model.named_parameters())[k] for k in other}, other)


@over_pairs
def test_training_moves_the_affine_parameters_and_nothing_else_does(
    family: Family, row: Row
) -> None:
    model = family.model()
    before = {k: v.clone() for k, v in model.named_parameters()}
    run(row.on(model), family.stream())
    moved = {k for k, v in model.named_parameters() if not torch.equal(v, before[k])}
    norms = {
        f"{path}.{name}".lstrip(".")
        for path, module in model.named_modules()
        if hasattr(module, "running_mean")
        for name in ("weight", "bias")
    }
    assert moved == (norms if row.trains else set())


@over_pairs
def test_reset_is_the_state_of_construction(family: Family, row: Row, tmp_path: Path) -> None:
    adapter = row.on(family.model())
    constructed, state = snapshot(adapter.model), contents(adapter, tmp_path / "state")
    first = run(adapter, family.stream())
    adapted = contents(adapter, tmp_path / "state")
    assert json.loads(adapted[0]["counts"])["batches"] == 3
    adapter.reset()
    assert_same(snapshot(adapter.model), constructed)
    assert_same_state(contents(adapter, tmp_path / "state"), state)
    assert_equal(run(adapter, family.stream()), first)
    assert_same_state(contents(adapter, tmp_path / "state"), adapted)


@over_pairs
def test_predict_changes_nothing_at_all(family: Family, row: Row, tmp_path: Path) -> None:
    adapter = row.on(family.model())
    adapter(family.batch())
    before, state = snapshot(adapter.model), contents(adapter, tmp_path / "state")
    answers = [adapter.predict(family.batch(seed=9)) for _ in range(2)]
    assert_equal(*answers)
    assert_same(snapshot(adapter.model), before)
    assert_same_state(contents(adapter, tmp_path / "state"), state)


@pytest.mark.parametrize("row", [r for r in METHODS if r not in STREAMING], ids=str)
def test_the_answer_comes_before_the_update_without_a_graph(row: Row) -> None:
    adapter, other = row.on(net()), row.on(net())
    for x in batches():
        if row.options.get("episodic"):
            other.reset()
        expected = other.predict(x)
        found = adapter(x)
        assert_close(found, expected)
        assert not found.requires_grad
        other(x)


def test_calibrating_twice_replaces_alpha() -> None:
    model, x = net(), BN2D.batch()
    expected = ac.alpha_bn(net(), 0.9)(x)
    assert_equal(ac.alpha_bn(ac.alpha_bn(model, 0.5), 0.9)(x), expected)
    assert_same(snapshot(ac.restore(model)), fresh(net()))


def test_a_second_mapping_forgets_the_first() -> None:
    model, x = net(), BN2D.batch()
    ac.alpha_bn(ac.alpha_bn(model, {"bn1": 0.0}), {"bn2": 0.0})
    assert_equal(model(x), ac.alpha_bn(net(), {"bn2": 0.0})(x))
    assert [row.alpha for row in ac.inspect(model)] == [1.0, 0.0]


def test_an_adapter_on_a_calibrated_model_starts_from_the_source() -> None:
    for row in METHODS:
        model = ac.alpha_bn(net(), 0.2)
        adapter = row.on(model)
        assert_equal(run(adapter, batches()), run(row.on(net()), batches()))
        assert_same(snapshot(adapter.release()), fresh(net()))


USES: dict[str, Callable[[nn.Module], Any]] = {
    "adapter": lambda model: ac.Tent(model),
    "alpha_bn": lambda model: ac.alpha_bn(model, 0.5),
    "calibrated": lambda model: ac.calibrated(model, 0.5).__enter__(),
    "recalibrate": lambda model: ac.recalibrate(model, batches(), alpha=0.5),
    "a part": lambda model: ac.alpha_bn(model.get_submodule("bn1"), 0.5),
    "a whole around it": lambda model: ac.alpha_bn(nn.Sequential(model), 0.5),
    "compiled": lambda model: ac.Source(nn.Sequential(model)),
}


@pytest.mark.parametrize("use", USES)
@over_methods
def test_a_held_model_is_refused_naming_the_adapter_and_restore(row: Row, use: str) -> None:
    adapter = row.on(net())
    x = BN2D.batch()
    expected = adapter.predict(x)
    with pytest.raises(ValueError, match=rf"{adapter.method}.*acclimate\.restore\(model\)"):
        USES[use](adapter.model)
    assert_equal(adapter.predict(x), expected)


@over_methods
def test_restore_works_after_the_adapter_is_gone(row: Row) -> None:
    model = net()
    before = snapshot(model)
    run(row.on(model), batches())
    gc.collect()
    assert_same(snapshot(ac.restore(model)), before)
    again = row.on(ac.restore(model))  # a notebook cell, run again
    assert_equal(run(again, batches()), run(row.on(net()), batches()))


def test_restore_of_a_part_or_a_whole_releases_the_adapter() -> None:
    for part in (lambda m: m, lambda m: nn.Sequential(m), lambda m: m.bn1):
        adapter = ac.Core(net(), alpha=0.5)
        adapter(BN2D.batch())
        ac.restore(part(adapter.model))
        assert_same(snapshot(adapter.model), fresh(net()))
        with pytest.raises(ValueError, match="was released"):
            adapter(BN2D.batch())


def test_calibrated_gives_back_what_it_found() -> None:
    model, x = net(), BN2D.batch()
    before, plain = snapshot(model), model(x)
    with ac.calibrated(model, 0.5) as same:
        assert same is model
        half = model(x)
        assert_equal(half, ac.alpha_bn(net(), 0.5)(x))
        with ac.calibrated(model, {"bn1": 0.1}, mix="var"):
            assert not torch.equal(model(x), half)
        assert_equal(model(x), half)
    assert_same(snapshot(model), before)
    assert_equal(model(x), plain)


def test_calibrated_gives_back_what_it_found_after_an_error() -> None:
    model, x = ac.alpha_bn(net(), 0.7), BN2D.batch()
    before, expected = snapshot(model), model(x)
    with pytest.raises(ValueError, match=r"alpha is 2\.0"), ac.calibrated(model, 2):
        pass
    with pytest.raises(KeyError), ac.calibrated(model, 0.1):
        raise KeyError
    with ac.calibrated(model, 0.1):
        ac.restore(model)
    assert_same(snapshot(model), before)
    assert_equal(model(x), expected)


@over_methods
def test_calibrated_gives_back_what_it_found_though_an_adapter_was_made_inside(row: Row) -> None:
    model = net()
    before = snapshot(model)
    with ac.calibrated(model, 0.5):
        run(row.on(model), batches(2))
    assert_same(snapshot(model), before)
    row.on(model)  # nothing holds it
