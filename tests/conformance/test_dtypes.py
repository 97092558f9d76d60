"""Half precision, autocast and changes of type, before and after wrapping and after a step."""

from pathlib import Path

import pytest
import torch
from torch import nn

import acclimate as ac
from conformance.table import (
    BN2D,
    FAMILIES,
    METHODS,
    TRAINING,
    Family,
    Row,
    over_methods,
)
from networks import (
    assert_equal,
    batches,
    clone,
    contents,
    net,
    run,
    settle,
    shifted,
)

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
over_halves = pytest.mark.parametrize("dtype", HALF.values(), ids=list(HALF))


@over_halves
@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name != "root"], ids=str)
def test_half_precision_networks_answer_in_their_type(family: Family, dtype: torch.dtype) -> None:
    model, x = family.model(), family.batch()
    for alpha in (0.0, 0.6, 1.0):
        expected = ac.alpha_bn(model, alpha)(x)
        half = ac.alpha_bn(ac.restore(clone(model)).to(dtype), alpha)
        after = ac.alpha_bn(clone(model), alpha).to(dtype)
        for gradient in (False, True):
            with torch.set_grad_enabled(gradient):
                y = half(x.to(dtype))
                assert y.dtype == dtype
                torch.testing.assert_close(y.float(), expected, rtol=0.1, atol=0.1)
                assert_equal(after(x.to(dtype)), y)


@over_halves
def test_statistics_of_half_precision_inputs_are_float32(dtype: torch.dtype) -> None:
    """Sums of squares beyond 65,504, and means with more digits than the input's type has."""
    layer = settle(nn.BatchNorm2d(4)).to(dtype)
    x = (shifted(64, 4, 16, 16) + 300).to(dtype)
    exact = ac.alpha_bn(clone(layer).double(), 0.0)(x.double())
    for gradient in (False, True):
        y = ac.alpha_bn(layer, 0.0)(x.clone().requires_grad_(gradient))
        torch.testing.assert_close(y.double(), exact, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("when", ["before wrapping", "after wrapping", "after a step"])
@over_halves
@pytest.mark.parametrize("row", TRAINING, ids=str)
def test_half_precision_networks_really_adapt(
    row: Row, dtype: torch.dtype, when: str, tmp_path: Path
) -> None:
    """The float32 copies follow the float32 network; no moment is stored in half precision."""
    steps, x = 4, BN2D.batch()
    full, half = row.on(net()), net()
    if when == "before wrapping":
        half.to(dtype)
    adapter = row.on(half)
    if when == "after a step":
        adapter(x)
        full(x)
    half.to(dtype)
    for _ in range(steps):
        y = adapter(x.to(dtype))
        full(x)
    assert y.dtype == dtype
    assert adapter.counts["updates"] == full.counts["updates"]
    _, state = contents(adapter, tmp_path / "half")
    _, expected = contents(full, tmp_path / "full")
    assert {k: v.dtype for k, v in state.items()} == {k: v.dtype for k, v in expected.items()}
    start = net().to(dtype).float() if when == "before wrapping" else net()
    moved = [
        torch.cat([v - of.get_parameter(k[6:]) for k, v in values.items() if "value." in k])
        for of, values in ((start, state), (net(), expected))
    ]
    assert torch.cosine_similarity(moved[0], moved[1], dim=0) > 0.8
    for name, parameter in adapter.model.named_parameters():
        if f"value.{name}" in state:
            assert_equal(parameter.detach(), state[f"value.{name}"].to(dtype))
    if "sgd" not in row.name:  # whose steps are as small as the rounding
        x = x.to(dtype)
        assert not torch.equal(adapter.predict(x), row.on(net().to(dtype)).predict(x))


def test_gradients_below_the_least_float16_arrive(tmp_path: Path) -> None:
    """A loss over many positions and small weights: 1e-9 at the layer, where float16 has 6e-8."""
    torch.manual_seed(0)
    source = settle(nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 5, 1)))
    source.get_parameter("1.weight").data.mul_(1e-3)
    source = source.half().float()  # so that both start at the same values
    x, moved = shifted(4, 3, 64, 64), []
    for dtype in (torch.float32, torch.float16):
        adapter = ac.Tent(clone(source).to(dtype), alpha=0.5)
        adapter(x.to(dtype))
        assert adapter.counts["updates"] == 1
        _, state = contents(adapter, tmp_path / "state")
        values = [state[f"value.0.{name}"] for name in ("weight", "bias")]
        moved.append(torch.cat(values) - torch.cat(list(source.get_submodule("0").parameters())))
    assert torch.cosine_similarity(moved[0], moved[1], dim=0) > 0.9


def test_bn_computes_with_the_float32_copies_themselves() -> None:
    """bf16 weights between 1 and 2 do not move at all under this rate; the answer does."""
    model, x = net(), BN2D.batch().bfloat16()
    for name in ("bn1.weight", "bn1.bias", "bn2.weight", "bn2.bias"):
        nn.init.constant_(model.get_parameter(name), 1.5)
    adapter = ac.Core(model.bfloat16(), alpha=0.9, lr=2e-3)
    before, values = adapter.predict(x), {k: v.clone() for k, v in model.state_dict().items()}
    adapter(x)
    assert_equal(dict(model.state_dict()), values)
    assert not torch.equal(adapter.predict(x), before)


@over_halves
def test_release_and_reset_after_half_are_the_sources_values_rounded(dtype: torch.dtype) -> None:
    for row in METHODS:
        model = net()
        adapter = row.on(model)
        run(adapter, batches(2))
        model.to(dtype)
        adapter(BN2D.batch().to(dtype))
        adapter.reset()
        expected = net().to(dtype).state_dict()
        assert_equal(dict(model.state_dict()), dict(expected))
        run(adapter, [BN2D.batch().to(dtype)])
        assert_equal(dict(adapter.release().state_dict()), dict(expected))


@pytest.mark.parametrize("there", [torch.float16, torch.bfloat16, torch.float64])
@over_methods
def test_another_type_and_back_goes_on(row: Row, there: torch.dtype) -> None:
    adapter = row.on(net())
    for convert in (there, torch.float32, there):
        adapter.model.to(convert)
        dtype = next(adapter.model.parameters()).dtype
        y = adapter(BN2D.batch().to(dtype))
        assert y.dtype == dtype
        assert y.isfinite().all()
        assert adapter.predict(BN2D.batch().to(dtype)).dtype == dtype


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name != "root"], ids=str)
def test_autocast(family: Family) -> None:
    model, x = family.model(), family.batch()
    for alpha in (0.0, 0.5, 1):
        ac.restore(model)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            plain = model(x)
        expected = ac.alpha_bn(model, alpha)(x)
        for gradient in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16), torch.set_grad_enabled(gradient):
                y = model(x)
            assert y.dtype == plain.dtype
            torch.testing.assert_close(y.float(), expected, rtol=0.1, atol=0.1)


@over_methods
def test_an_adapter_under_autocast_adapts(row: Row, tmp_path: Path) -> None:
    adapter = row.on(net())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run(adapter, batches())
    assert adapter.counts["updates"] == 3 * row.trains * row.options.get("steps", 1)
    _, state = contents(adapter, tmp_path / "state")
    assert {v.dtype for v in state.values()} <= {torch.float32}


def test_running_variances_beyond_half_precision() -> None:
    """Keras-style weights have variances up to 83,615 (findings 5)."""
    layer = nn.BatchNorm2d(4).eval()
    assert layer.running_var is not None
    layer.running_var.fill_(83_615.0)
    x = 289 * torch.randn(16, 4, 8, 8)
    expected = ac.alpha_bn(layer, 0.5)(x)
    y = layer(x.half())
    assert y.isfinite().all()
    torch.testing.assert_close(y.float(), expected, rtol=0.02, atol=0.02)
