"""Copies, pickles and state files go on exactly where the original stands."""

import contextlib
import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate as ac
from conformance.table import (
    BN2D,
    METHODS,
    Family,
    Row,
    over_families,
    over_methods,
    over_pairs,
)
from networks import (
    assert_equal,
    assert_same,
    assert_same_state,
    batches,
    contents,
    fresh,
    net,
    run,
    shifted,
    snapshot,
    through_torch_save,
)

COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),  # noqa: S301
    "torch.save": through_torch_save,
}
over_copies = pytest.mark.parametrize("way", COPIES)


@over_pairs
def test_a_file_goes_on_bit_for_bit(family: Family, row: Row, tmp_path: Path) -> None:
    stream, path = family.stream(4), tmp_path / "state"
    adapter = row.on(family.model())
    run(adapter, stream[:2])
    state = contents(adapter, path)
    counts = copy.deepcopy(dict(adapter.counts))
    expected, x = run(adapter, stream[2:]), family.batch(seed=9)
    other = row.on(family.model())
    run(other, stream[3:])  # a state of its own, which is replaced
    other.load(path)
    assert dict(other.counts) == counts
    assert_same_state(contents(other, tmp_path / "again"), state)
    assert_equal(run(other, stream[2:]), expected)
    assert_equal(other.predict(x), adapter.predict(x))
    other.reset()
    assert_equal(run(other, stream), run(row.on(family.model()), stream))
    assert_same(fresh(other.release()), fresh(family.model()))


@over_methods
def test_a_file_of_a_fresh_adapter_is_a_reset(row: Row, tmp_path: Path) -> None:
    adapter = row.on(net())
    adapter.save(tmp_path / "state")
    first = run(adapter, batches())
    adapter.load(tmp_path / "state")
    assert_equal(run(adapter, batches()), first)


def test_a_file_of_another_dtype_goes_on(tmp_path: Path) -> None:
    """The float32 copies are what is kept of a half-precision network."""
    stream = [x.bfloat16() for x in batches(4)]
    adapter, other = (ac.Core(net().bfloat16(), alpha=0.9) for _ in range(2))
    run(adapter, stream[:2])
    adapter.save(tmp_path / "state")
    other.load(tmp_path / "state")
    assert_equal(run(other, stream[2:]), run(adapter, stream[2:]))
    assert_equal(other.model.state_dict(), adapter.model.state_dict())


@pytest.mark.parametrize("use", ["construct", "load", "reset", "adapt"])
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_an_adapter_may_be_made_and_used_where_gradients_are_off(
    use: str, context: Any, tmp_path: Path
) -> None:
    def scope(now: str) -> Any:
        return context() if use == now else contextlib.nullcontext()

    stream, model = batches(4), net()
    adapter = ac.Core(net(), alpha=0.5, statistics="stream")
    run(adapter, stream[:2])
    adapter.save(tmp_path / "state")
    expected = run(adapter, stream[2:])
    with scope("construct"):
        other = ac.Core(model, alpha=0.5, statistics="stream")
    with scope("adapt"):
        run(other, stream)
    with scope("load"):
        other.load(tmp_path / "state")
    assert_equal(run(other, stream[2:]), expected)
    with scope("reset"):
        other.reset()
    run(other, stream[:2])
    assert_equal(run(other, stream[2:]), expected)
    assert_same(fresh(other.release()), fresh(net()))


@over_copies
@over_families
def test_copies_of_a_calibrated_model_answer_the_same(family: Family, way: str) -> None:
    model, x = ac.alpha_bn(family.model(), 0.5), family.batch()
    expected = model(x).detach()
    other = COPIES[way](model)
    assert_equal(other(x).detach(), expected)
    assert list(other.state_dict()) == list(model.state_dict())
    assert_same(fresh(ac.restore(other)), fresh(family.model()))
    assert_equal(model(x).detach(), expected)
    assert_equal(ac.alpha_bn(other, 0.5)(x).detach(), expected)


@over_copies
@pytest.mark.parametrize("alpha", [ac.prior(16), torch.tensor(0.5, requires_grad=True)], ids=str)
def test_copies_keep_an_alpha_of_any_form(alpha: Any, way: str) -> None:
    model, x = ac.alpha_bn(net(), alpha), BN2D.batch()
    other = COPIES[way](model)
    assert_equal(other(x).detach(), model(x).detach())
    assert ac.inspect(other) == ac.inspect(model)


@over_copies
@over_pairs
def test_copies_of_an_adapter_go_on_by_themselves(family: Family, row: Row, way: str) -> None:
    stream, x = family.stream(4), family.batch(seed=9)
    adapter = row.on(family.model())
    run(adapter, stream[:2])
    other = COPIES[way](adapter)
    untouched = snapshot(adapter.model)
    expected = run(other, stream[2:])
    assert_same(snapshot(adapter.model), untouched)
    assert_equal(run(adapter, stream[2:]), expected)
    assert_equal(other.predict(x), adapter.predict(x))
    assert dict(other.counts) == dict(adapter.counts)
    other.reset()
    assert_equal(run(other, stream), run(row.on(family.model()), stream))
    assert_same(fresh(other.release()), fresh(family.model()))
    assert adapter.predict(x).isfinite().all()


@over_copies
def test_copies_of_a_held_model_are_held_and_can_be_restored(way: str) -> None:
    for row in METHODS:
        adapter = row.on(net())
        run(adapter, batches(2))
        model = COPIES[way](adapter.model)
        assert_equal(model(BN2D.batch()).detach(), adapter.predict(BN2D.batch()))
        with pytest.raises(ValueError, match=adapter.method):
            ac.alpha_bn(model, 0.5)
        assert_same(fresh(ac.restore(model)), fresh(net()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_copies_of_a_compiled_model_and_of_its_adapter(way: str) -> None:
    torch._dynamo.reset()
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(5)
    source = nn.Sequential(*layers)
    x = shifted(4, 3, 6, 6)
    source(x)
    model: Any = torch.compile(source.eval(), backend="eager")
    with ac.calibrated(model, 0.5):
        assert_equal(COPIES[way](model)(x).detach(), model(x).detach())
    adapter = ac.AlphaBN(model, alpha=0.5, statistics="stream")
    adapter(x)
    other = COPIES[way](adapter)
    assert_equal(other.predict(x), adapter.predict(x))
    ac.restore(other.model)
    adapter.predict(x)


def test_a_half_precision_copy_keeps_its_float32_copies() -> None:
    adapter = ac.Core(net().bfloat16(), alpha=0.9)
    stream: list[Tensor] = [x.bfloat16() for x in batches(4)]
    run(adapter, stream[:2])
    for copied in COPIES.values():
        other = copied(adapter)
        assert_equal(run(other, stream[2:]), run(copied(adapter), stream[2:]))
        assert_equal(other.predict(stream[0]), copied(other).predict(stream[0]))
