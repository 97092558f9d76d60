"""freeze and recalibrate: the adapted network as a plain one, which any tool loads."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import acclimate as ac
from conformance.table import ACT2D, FAMILIES, FROZEN, ZOO, Family
from networks import (
    Net,
    assert_close,
    assert_equal,
    assert_same,
    batches,
    clone,
    fresh,
    net,
    run,
    shifted,
    snapshot,
)

X = shifted(16, 3, 8, 8, seed=9)


def stream(model: nn.Module, **options: Any) -> ac.Adapter:
    return ac.AlphaBN(model, **{"alpha": 0.5, "statistics": "stream", **options})


@pytest.mark.parametrize("mix", ["std", "var"])
@pytest.mark.parametrize("family", [*FAMILIES, ZOO[1]], ids=str)
def test_freeze_equals_predict_in_ordinary_classes(family: Family, mix: str) -> None:
    source = fresh(family.model())
    adapter = stream(family.model(), mix=mix)
    run(adapter, family.stream())
    plain, x = ac.freeze(adapter), family.batch(seed=9)
    assert_close(plain(x), adapter.predict(x))
    after = fresh(plain)
    for name in ("classes", "attributes", "requires_grad"):
        assert after[name] == source[name]
    assert list(plain.state_dict()) == list(source["values"])
    assert not any(module.training for module in plain.modules())
    family.model().load_state_dict(plain.state_dict())


@pytest.mark.parametrize("family", [FAMILIES[0], ACT2D], ids=str)
def test_freeze_holds_the_adapted_affine(family: Family) -> None:
    adapter = ac.Core(family.model(), alpha=0.5, statistics="stream", lr=1e-2)
    run(adapter, family.stream())
    plain, x = ac.freeze(adapter), family.batch(seed=9)
    assert_close(plain(x), adapter.predict(x))
    assert_equal(
        {k: v.detach() for k, v in plain.named_parameters()},
        {k: v.detach() for k, v in adapter.model.named_parameters()},
    )
    assert all(p.requires_grad for p in plain.parameters())


ALPHAS: list[Any] = [0.0, 0.3, 1, ac.prior(16), {"bn1": 0.2}, [0.9, 1], torch.tensor(0.4)]


@pytest.mark.parametrize("alpha", ALPHAS, ids=str)
def test_freeze_of_alpha_in_every_form(alpha: Any) -> None:
    adapter = stream(net(), alpha=alpha)
    run(adapter, batches())
    assert_close(ac.freeze(adapter)(X), adapter.predict(X))


def test_the_adapter_goes_on_and_the_copy_is_its_own(tmp_path: Path) -> None:
    adapter, reference = (ac.Core(net(), alpha=0.5, statistics="stream") for _ in range(2))
    assert_equal(run(adapter, batches(2)), run(reference, batches(2)))
    plain = ac.freeze(adapter)
    expected = plain(X).detach()
    before = snapshot(plain)
    assert_equal(run(adapter, batches()), run(reference, batches()))
    assert_same(snapshot(plain), before)
    assert_equal(plain(X).detach(), expected)
    assert_same(fresh(adapter.release()), fresh(net()))
    ac.alpha_bn(plain, 0.5)  # nothing holds it: it is a source itself now
    assert_equal(ac.restore(plain)(X).detach(), expected)


def test_freeze_before_any_batch_and_of_alpha_1_is_the_source() -> None:
    for adapter in (stream(net()), ac.Source(net()), ac.AlphaBN(net(), alpha=1)):
        plain = ac.freeze(adapter)
        assert_close(plain(X), net()(X))
    assert_same(fresh(ac.freeze(ac.Source(net()))), fresh(net()))
    tent = ac.Tent(net(), alpha=1.0)
    tent(X)
    assert_equal(ac.freeze(tent)(X).detach(), tent.predict(X))


def test_freeze_of_a_half_precision_network() -> None:
    adapter = stream(net().bfloat16())
    run(adapter, [x.bfloat16() for x in batches()])
    plain = ac.freeze(adapter)
    assert next(plain.parameters()).dtype == torch.bfloat16
    found, expected = plain(X.bfloat16()), adapter.predict(X.bfloat16())
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


def test_freeze_needs_statistics_that_are_known() -> None:
    sentence = r"known, but the layer 'bn2' takes those of each batch.*'stream'.*recalibrate"
    adapter = ac.AlphaBN(net(), alpha={"bn2": 0.5})
    before = snapshot(adapter.model)
    with pytest.raises(ValueError, match=sentence):
        ac.freeze(adapter)
    assert_same(snapshot(adapter.model), before)
    with pytest.raises(ValueError, match="'bn1' takes those of each batch"):
        ac.freeze(ac.Tent(net()))


def test_freeze_takes_an_adapter() -> None:
    with pytest.raises(TypeError, match=r"freeze takes an adapter, but got a Net; recalibrate\("):
        ac.freeze(net())  # type: ignore[arg-type]


def test_freeze_of_a_compiled_model_is_a_plain_one() -> None:
    torch._dynamo.reset()
    model: Any = torch.compile(net(), backend="eager")
    adapter = stream(model)
    run(adapter, batches())
    plain = ac.freeze(adapter)
    assert type(plain) is Net
    assert_close(plain(X), adapter.predict(X))


ALONE = """
import sys
import torch
sys.modules["acclimate"] = None  # as if it were not installed
sys.path.insert(0, sys.argv[2])
import networks_alone
model = networks_alone.Net()
state = torch.load(sys.argv[1], weights_only=True)
model.load_state_dict(state["state"])
whole = torch.load(sys.argv[1] + ".whole", weights_only=False)
for plain in (model.eval(), whole):
    assert torch.equal(plain(state["x"]), state["y"])
assert not any(name.startswith("acclimate.") for name in sys.modules)
"""

NETWORK = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)
    def forward(self, x):
        return self.fc(self.bn(self.conv(x)).relu().mean((2, 3)))
"""


@pytest.mark.parametrize("way", ["freeze", "recalibrate"])
def test_plain_torch_loads_it_where_acclimate_is_not_installed(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "networks_alone.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    import networks_alone  # type: ignore[import-not-found]

    model = networks_alone.Net().eval()
    if way == "freeze":
        adapter = ac.Core(model, alpha=0.5, statistics="stream")
        run(adapter, batches())
        plain = ac.freeze(adapter)
    else:
        plain = ac.recalibrate(model, batches(), alpha=0.5)
    state = {"state": plain.state_dict(), "x": X, "y": plain(X).detach()}
    torch.save(state, tmp_path / "plain")
    torch.save(plain, tmp_path / "plain.whole")
    (tmp_path / "alone.py").write_text(ALONE)
    arguments = [sys.executable, "-I", str(tmp_path / "alone.py"), str(tmp_path / "plain")]
    subprocess.run([*arguments, str(tmp_path)], check=True, timeout=120)
    monkeypatch.delitem(sys.modules, "networks_alone")


@pytest.mark.parametrize("family", [FAMILIES[0], FAMILIES[1], ACT2D, FROZEN], ids=str)
@pytest.mark.parametrize("mix", ["std", "var"])
def test_recalibrate_by_one_batch_is_alpha_bn_on_it(family: Family, mix: str) -> None:
    model, x = family.model(), family.batch()
    before = snapshot(model)
    plain = ac.recalibrate(model, [x], alpha=0.4, mix=mix)
    assert_same(snapshot(model), before)
    assert plain is not model
    assert fresh(plain)["classes"] == fresh(model)["classes"]
    assert_close(plain(x), ac.alpha_bn(model, 0.4, mix=mix)(x))


def test_recalibrate_counts_all_batches_alike() -> None:
    """Not the last thousand samples: 3,000 of one kind weigh as much as 3,000 of the next."""
    layer = nn.Sequential(nn.BatchNorm1d(3)).eval()
    kinds = [torch.randn(300, 3) + kind for kind in (0.0, 8.0) for _ in range(10)]
    plain = ac.recalibrate(layer, kinds, alpha=0.0)
    whole = torch.cat(kinds)
    assert_close(plain.get_buffer("0.running_mean"), whole.mean(0), 1e-3)
    assert_close(plain.get_buffer("0.running_var"), whole.var(0, correction=0), 1e-3)


class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, pixels: Tensor, scale: float = 1.0) -> Tensor:
        y: Tensor = self.net(pixels * scale)
        return y


def test_recalibrate_takes_tensors_mappings_and_generators() -> None:
    expected = ac.recalibrate(net(), batches(), alpha=0.4)(X)
    assert_equal(ac.recalibrate(net(), (x for x in batches()), alpha=0.4)(X), expected)
    assert_equal(ac.recalibrate(net(), torch.stack(batches()), alpha=0.4)(X), expected)
    rows = [{"pixels": x} for x in batches()]
    assert_equal(ac.recalibrate(ByName(), rows, alpha=0.4)(X), expected)
    loader: Any = torch.utils.data.DataLoader(torch.cat(batches()), 16)  # type: ignore[arg-type]
    assert_equal(ac.recalibrate(net(), loader, alpha=0.4)(X), expected)
    for context in (torch.no_grad, torch.inference_mode):
        model = net()
        with context():
            plain = ac.recalibrate(model, batches(), alpha=0.4)
        assert_equal(plain(X).detach(), expected.detach())


REFUSED: dict[str, tuple[Callable[[nn.Module], Any], type[Exception], str]] = {
    "pair": (lambda m: ac.recalibrate(m, [(X, X[:, 0, 0, 0])], alpha=0.5), TypeError,  # type: ignore[list-item]
             r"but got a tuple; of a pair \(images, labels\) pass the images"),
    "list": (lambda m: ac.recalibrate(m, [[X, X]], alpha=0.5), TypeError, "but got a list"),  # type: ignore[list-item]
    "labels": (lambda m: ac.recalibrate(m, [{"x": X, "labels": X}], alpha=0.5), ValueError,
               "names a label"),
    "nothing": (lambda m: ac.recalibrate(m, [], alpha=0.5), ValueError,
                "recalibrate got no batch: a generator may be used up"),
    "nan": (lambda m: ac.recalibrate(m, [X / 0], alpha=0.5), ValueError, "NaN or infinite"),
    "mix": (lambda m: ac.recalibrate(m, [X], alpha=0.5, mix="mean"), ValueError, "mix must be"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_recalibrate_refuses(name: str) -> None:
    use, error, sentence = REFUSED[name]
    model = net()
    before = snapshot(model)
    with pytest.raises(error, match=sentence):
        use(model)
    assert_same(snapshot(model), before)


def test_recalibrate_needs_no_advice_on_small_batches_and_skips_empty_ones() -> None:
    plain = ac.recalibrate(net(), [X[:3], X[:0], X[3:]], alpha=0.0)
    mean = clone(net()).get_submodule("conv1")(X).mean((0, 2, 3))
    assert_close(plain.get_buffer("bn1.running_mean"), mean)


def test_a_plain_network_is_exported_and_compiled_like_any_other() -> None:
    plain = ac.recalibrate(net(), batches(), alpha=0.5)
    program = torch.export.export(plain, (X,))
    assert_close(program.module()(X), plain(X))
    torch.fx.symbolic_trace(plain)
    conv, bn = plain.get_submodule("conv1"), plain.get_submodule("bn1")
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(bn, nn.BatchNorm2d)
    assert_close(fuse_conv_bn_eval(conv, bn)(X), bn(conv(X)))
