"""The losses: published figures, their laws, and what must not become NaN."""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acclimate import functional as F
from networks import assert_close, shifted

SUMS: dict[str, Callable[..., Tensor]] = {
    "class_correlation": F.class_correlation,
    "entropy": F.entropy,
}
LOSSES: dict[str, Callable[..., Tensor]] = {
    **SUMS,
    "mcc": F.mcc,
    "information_maximisation": F.information_maximisation,
}
over_losses = pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
over_sums = pytest.mark.parametrize("loss", SUMS.values(), ids=list(SUMS))


def draw(*shape: int, seed: int = 1) -> Tensor:
    return 2 * shifted(*shape, seed=seed).double()


PUBLISHED: dict[str, Callable[[Tensor], Tensor]] = {
    "core_eq5_loops_sum": functools.partial(F.class_correlation, reduction="sum"),
    "gini_sum": functools.partial(F.class_correlation, reduction="sum"),
    "tent_entropy_mean": F.entropy,
    **{f"mcc_T{t}": functools.partial(F.mcc, temperature=t) for t in (1.0, 2.0, 2.5, 3.0)},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_value_and_gradient_of_the_published_losses(fixtures: Path, name: str) -> None:
    figures = torch.load(fixtures / "losses_metrics.pt", weights_only=True)["losses"]
    assert figures["rows"]
    for logits, row in zip(figures["logits"], figures["rows"], strict=True):
        z = logits.double().requires_grad_()
        value = PUBLISHED[name](z)
        expected, gradient = row[name]
        assert value.item() == pytest.approx(expected, abs=1e-9, rel=1e-9)
        assert_close(torch.autograd.grad(value, z)[0], gradient.double(), 1e-9)


def test_class_correlation_is_the_double_loop_of_equation_5() -> None:
    for temperature in (1.0, 2.5):
        z = draw(7, 5)
        p = (z / temperature).softmax(1)
        loops = sum(p[:, j] @ p[:, k] for j in range(5) for k in range(5) if j != k)
        found = F.class_correlation(z, temperature=temperature, reduction="sum")
        assert_close(found, torch.as_tensor(loops), 1e-12)
        assert_close(F.class_correlation(z, temperature=temperature), found / 7, 1e-12)


def test_entropy_and_information_maximisation_by_hand() -> None:
    z = draw(6, 4)
    p = z.softmax(1)
    by_row = -(p * p.log()).sum(1)
    assert_close(F.entropy(z, reduction="none"), by_row, 1e-12)
    mean = p.mean(0)
    expected = by_row.mean() + (mean * mean.log()).sum()
    assert_close(F.information_maximisation(z), expected, 1e-12)


def test_mcc_by_hand() -> None:
    z = draw(6, 4)
    p = (z / 2.5).softmax(1)
    weight = 1 + torch.exp((p * (p + 1e-5).log()).sum(1))  # the published code's entropy
    weight = 6 * weight / weight.sum()
    m = p.T @ torch.diag(weight) @ p
    m = m / m.sum(1, keepdim=True)
    expected = (m.sum() - m.trace()) / 4
    assert_close(F.mcc(z, temperature=2.5), expected, 1e-12)


@over_sums
def test_reductions(loss: Callable[..., Tensor]) -> None:
    z = draw(6, 4, 3)
    mask = torch.rand(6, 3) > 0.4
    rows = loss(z, reduction="none")
    assert rows.shape == (6, 3)
    assert_close(loss(z, reduction="sum"), rows.sum(), 1e-12)
    assert_close(loss(z), rows.mean(), 1e-12)
    assert_close(loss(z, mask=mask, reduction="none"), rows * mask, 1e-12)
    assert_close(loss(z, mask=mask, reduction="sum"), rows[mask].sum(), 1e-12)
    assert_close(loss(z, mask=mask), rows[mask].mean(), 1e-12)
    with pytest.raises(
        ValueError, match=r"reduction must be one of 'mean', 'sum', 'none', but is 'max'"
    ):
        loss(z, reduction="max")


@pytest.mark.parametrize("loss", [F.mcc, F.information_maximisation])
def test_losses_of_a_whole_batch_take_no_reduction(loss: Callable[..., Tensor]) -> None:
    assert loss(draw(4, 3)).dim() == 0
    with pytest.raises(TypeError, match="reduction"):
        loss(draw(4, 3), reduction="sum")


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@over_losses
def test_positions_are_samples_and_a_mask_selects_rows(
    loss: Callable[..., Tensor], temperature: float
) -> None:
    z = draw(3, 5, 2, 4)
    rows = z.movedim(1, -1).reshape(-1, 5)
    mask = torch.rand(3, 2, 4) > 0.4
    assert_close(loss(z, temperature=temperature), loss(rows, temperature=temperature), 1e-12)
    found = loss(z.requires_grad_(), mask=mask, temperature=temperature)
    picked = rows[mask.flatten()].requires_grad_()
    expected = loss(picked, temperature=temperature)
    assert_close(found, expected, 1e-12)
    (gradient,) = torch.autograd.grad(found, z)
    gradient = gradient.movedim(1, -1).reshape(-1, 5)
    assert_close(gradient[mask.flatten()], torch.autograd.grad(expected, picked)[0], 1e-12)
    assert gradient[~mask.flatten()].abs().max() == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@over_losses
def test_what_is_masked_out_is_harmless(loss: Callable[..., Tensor], bad: float) -> None:
    clean = draw(5, 4)
    mask = torch.tensor([True, False, True, True, False])
    spoilt = clean.clone()
    spoilt[~mask] = bad
    results = []
    for z in (clean, spoilt):
        value = loss(z.requires_grad_(), mask=mask)
        results.append((value, torch.autograd.grad(value, z)[0]))
    for one, other in zip(*results, strict=True):
        assert_close(one, other, 1e-12)


@over_losses
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_classes_ruled_out_and_one_hot_answers_are_finite(
    loss: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    """Logits of -inf, certain answers, and both at once; value and gradient."""
    rows = [[0.0, -math.inf, 1.0], [500.0, 0.0, -500.0], [9.0, -math.inf, -math.inf], [1, 2, 3]]
    for chosen in ([0], [1], [2], [3], [0, 1, 2, 3], [2, 2]):
        z = torch.tensor([rows[i] for i in chosen], dtype=dtype, requires_grad=True)
        value = loss(z)
        assert value.isfinite(), chosen
        assert torch.autograd.grad(value, z)[0].isfinite().all(), chosen


@over_sums
def test_one_hot_is_the_least_and_uniform_the_most(loss: Callable[..., Tensor]) -> None:
    assert loss(1e3 * torch.eye(4)).item() == pytest.approx(0, abs=1e-6)
    most = {"class_correlation": 0.75, "entropy": math.log(4)}[loss.__name__]
    assert loss(torch.zeros(3, 4)).item() == pytest.approx(most, rel=1e-6)


@over_losses
def test_half_precision_logits_are_summed_in_float32(loss: Callable[..., Tensor]) -> None:
    z = draw(4000, 10)
    for dtype in (torch.float16, torch.bfloat16):
        narrow = z.to(dtype).requires_grad_()
        value = loss(narrow)
        assert value.dtype == torch.float32
        assert_close(value.double(), loss(narrow.detach().double()), 1e-5)
        assert torch.autograd.grad(value, narrow)[0].dtype == dtype


@pytest.mark.parametrize(
    "mask",
    [torch.ones(4, dtype=torch.long), torch.ones(3, dtype=torch.bool)],
    ids=["type", "shape"],
)
@over_losses
def test_a_mask_that_does_not_fit_is_refused(loss: Callable[..., Tensor], mask: Tensor) -> None:
    with pytest.raises(ValueError, match=r"The mask is torch\.\w+ of shape .*torch\.bool.*\(4,\)"):
        loss(draw(4, 3), mask=mask)


logits = st.lists(st.lists(st.floats(-30, 30), min_size=4, max_size=4), min_size=2, max_size=6)


@given(logits, st.data())
@settings(max_examples=40, deadline=None)
def test_laws_that_every_loss_keeps(rows: list[list[float]], data: Any) -> None:
    """Order of samples, order of classes, and a constant added to a sample change nothing."""
    z = torch.tensor(rows, dtype=torch.float64)
    samples = data.draw(st.permutations(range(len(z))))
    classes = data.draw(st.permutations(range(4)))
    offset = data.draw(st.floats(-100, 100))
    for loss in LOSSES.values():
        value = loss(z)
        assert value.isfinite()
        for other in (z[samples], z[:, classes], z + offset):
            assert_close(loss(other), value, 1e-8)


@given(logits, st.floats(0.5, 5))
@settings(max_examples=40, deadline=None)
def test_bounds(rows: list[list[float]], temperature: float) -> None:
    z, slack = torch.tensor(rows, dtype=torch.float64), 1e-9
    assert -slack <= F.class_correlation(z, temperature=temperature) <= 1 - 1 / 4 + slack
    assert -slack <= F.entropy(z, temperature=temperature) <= math.log(4) + slack
    assert -slack <= F.mcc(z, temperature=temperature) <= 1 + slack
    # Concave, so the mean prediction is the least certain one.
    assert -math.log(4) - slack <= F.information_maximisation(z, temperature=temperature) <= slack


# Not mcc, whose weights carry no gradient: the published gradients hold that one.
@pytest.mark.parametrize("loss", [*SUMS.values(), F.information_maximisation])
def test_gradcheck(loss: Callable[..., Tensor]) -> None:
    mask = torch.tensor([True, False, True])
    assert torch.autograd.gradcheck(
        lambda z: loss(z, mask=mask, temperature=2.5), draw(3, 4).requires_grad_()
    )
