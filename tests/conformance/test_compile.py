"""torch.compile: one graph, no more of them than the plain model has, the answers of eager."""

import functools
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

import acclimate as ac
from conformance.table import BN2D, FAMILIES, Family, Row
from networks import assert_close, clone, run, settle, shifted

SIZES = (7, 4, 3, 2, 1)

pytestmark = [
    # torch's own: a deprecated call within dynamo, and its advice on float32 precision
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    # torch 2.10, where dynamo asks a layer's input for its gradient
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings(r"ignore:\d+ samples are few"),
]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def small() -> nn.Module:
    """As little to compile as shows it: one BN2d in place, one BN1d head."""
    torch.manual_seed(0)
    features = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 5)
    return settle(nn.Sequential(*features, *head))


def compiled(model: nn.Module, counter: Any) -> Any:
    return torch.compile(model, backend=counter, fullgraph=True)


def graphs(use: Callable[[Tensor], Any], counter: Any) -> int:
    """How many a verb needs on batches of all sizes, twice; dynamo remembers shapes by code."""
    torch._dynamo.reset()
    counter.frame_count = 0
    for n in SIZES * 2:
        use(shifted(n, 3, 6, 6, seed=n))
    return int(counter.frame_count)


@functools.cache
def graphs_of_the_plain_model(gradient: bool) -> int:
    counter = CompileCounterWithBackend("aot_eager")
    with torch.set_grad_enabled(gradient):
        return graphs(compiled(small(), counter), counter)


@pytest.mark.parametrize("alpha", [0.5, 1, ac.prior(16), torch.tensor(0.5)], ids=str)
def test_alpha_bn_compiles_to_no_more_graphs_and_answers_the_same(alpha: Any) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    eager = ac.alpha_bn(small(), alpha)
    model = compiled(clone(eager), counter)
    for gradient in (False, True):
        with torch.set_grad_enabled(gradient):
            assert 0 < graphs(model, counter) <= graphs_of_the_plain_model(gradient)
            for n in SIZES:
                x = shifted(n, 3, 6, 6)
                assert_close(model(x), eager(x))


VERBS = [
    Row("stream", "alpha_bn", {"alpha": 0.5, "statistics": "stream"}),
    Row("core", "core", {"alpha": 0.9}, True),
    Row("tent-stream-prior", "tent", {"alpha": ac.prior(16), "statistics": "stream"}, True),
]


@pytest.mark.parametrize("row", VERBS, ids=str)
def test_a_verb_needs_no_more_graphs_than_the_plain_model(row: Row) -> None:
    """`adapter(x)` and `predict` on a compiled model; the adapter does what it does in eager."""
    counter = CompileCounterWithBackend("aot_eager")
    eager, adapter = row.on(small()), row.on(compiled(small(), counter))
    assert 0 < graphs(adapter, counter) <= graphs_of_the_plain_model(row.trains)
    assert 0 < graphs(adapter.predict, counter) <= graphs_of_the_plain_model(False)
    for n in SIZES * 2:
        eager(shifted(n, 3, 6, 6, seed=n))
    x = shifted(5, 3, 6, 6)
    torch.testing.assert_close(adapter.predict(x), eager.predict(x), rtol=1e-3, atol=1e-3)
    assert adapter.counts == eager.counts


def test_a_long_stream_of_one_shape_compiles_once() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    adapter = ac.Core(compiled(small(), counter), alpha=0.5, statistics="stream")
    for i in range(20):
        adapter(shifted(1, 3, 6, 6, seed=i))
    assert counter.frame_count == 1
    adapter.reset()
    adapter(shifted(1, 3, 6, 6))
    assert counter.frame_count == 1


def test_an_already_compiled_model_is_calibrated_and_restored() -> None:
    x, source = shifted(4, 3, 6, 6), small()
    expected, plain = ac.alpha_bn(clone(source), {"1": 0.2})(x), source(x)
    model: Any = compiled(source, "aot_eager")
    assert_close(model(x), plain)
    assert [row.path for row in ac.inspect(model)] == ["1", "5"]
    ac.alpha_bn(model, {"1": 0.2})
    assert_close(model(x), expected)
    ac.restore(model)
    assert_close(model(x), plain)
    with ac.calibrated(model, {"1": 0.2}):
        assert_close(model(x), expected)
    source.compile(backend="aot_eager")  # in place
    ac.alpha_bn(source, {"1": 0.2})
    assert_close(source(x), expected)


def test_an_adapter_of_a_compiled_model_shares_its_files_with_eager(tmp_path: Any) -> None:
    eager = ac.Core(small(), alpha=0.5, statistics="stream")
    run(eager, [shifted(4, 3, 6, 6)])
    eager.save(tmp_path / "state")
    adapter = ac.Core(compiled(small(), "aot_eager"), alpha=0.5, statistics="stream")
    adapter.load(tmp_path / "state")
    x = shifted(4, 3, 6, 6, seed=2)
    assert_close(adapter.predict(x), eager.predict(x))
    plain = ac.freeze(adapter)
    assert list(plain.state_dict()) == list(small().state_dict())
    assert_close(plain(x), eager.predict(x))


@pytest.mark.parametrize("name", ["act2d", "frozen", "shared", "sync", "bn3d", "without-affine"])
def test_each_family_compiles_with_and_without_a_gradient(name: str) -> None:
    family = next(f for f in FAMILIES if f.name == name)
    eager = ac.alpha_bn(family.model(), 0.5)
    model, x = compiled(clone(eager), "aot_eager"), family.batch(4)
    with torch.no_grad():
        assert_close(model(x), eager(x))
    x.requires_grad_()
    found, expected = (torch.autograd.grad(f(x).square().mean(), x)[0] for f in (model, eager))
    assert_close(found, expected)


@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")  # inductor's own
@pytest.mark.parametrize("family", [BN2D], ids=str)
def test_inductor(family: Family) -> None:
    pytest.importorskip("setuptools")  # torch 2.10's inductor imports it
    eager = ac.Core(family.model(), alpha=0.5, statistics="stream")
    model: Any = torch.compile(family.model(), fullgraph=True)
    adapter = ac.Core(model, alpha=0.5, statistics="stream")
    for x in family.stream():
        torch.testing.assert_close(adapter(x), eager(x), rtol=1e-3, atol=1e-3)
    x = family.batch(4)
    torch.testing.assert_close(adapter.predict(x), eager.predict(x), rtol=1e-3, atol=1e-3)
