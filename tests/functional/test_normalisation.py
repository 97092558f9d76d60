"""Equations 1 to 4: the mix, the statistics, the normalisation and its closed-form gradient."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acclimate.functional import batch_statistics, calibrated_norm, mix_statistics
from networks import assert_close, shifted

DOUBLE = torch.float64
numbers = st.floats(-50, 50)
variances = st.floats(0, 1e4)
alphas = st.floats(0, 1)
mixes = st.sampled_from(["std", "var"])


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=DOUBLE)


def double(*shape: int, seed: int = 1) -> Tensor:
    return shifted(*shape, seed=seed).to(DOUBLE)


def test_equation_3_and_4_by_hand() -> None:
    source, target = (tensor(1.0), tensor(4.0)), (tensor(3.0), tensor(25.0))
    mu, sigma = mix_statistics(*source, *target, 0.25, eps=0.0)
    assert_close(mu, tensor(0.25 * 1 + 0.75 * 3), 1e-12)
    assert_close(sigma, tensor(0.25 * 2 + 0.75 * 5), 1e-12)
    _, sigma = mix_statistics(*source, *target, 0.25, eps=0.0, mix="var")
    assert_close(sigma, tensor(0.25 * 4 + 0.75 * 25).sqrt(), 1e-12)


def test_eps_is_added_to_each_variance_and_is_1e_5() -> None:
    zero, one = tensor(0.0), tensor(1.0)
    _, sigma = mix_statistics(zero, zero, zero, one, 0.5)
    assert_close(sigma, 0.5 * tensor(1e-5).sqrt() + 0.5 * tensor(1 + 1e-5).sqrt(), 1e-12)
    _, sigma = mix_statistics(zero, zero, zero, one, 0.5, mix="var", eps=0.1)
    assert_close(sigma, tensor(0.6).sqrt(), 1e-12)


@given(numbers, variances, numbers, variances, alphas, mixes)
@settings(max_examples=50, deadline=None)
def test_the_mix_lies_between_its_ends_and_reaches_them(
    mean: float, var: float, other_mean: float, other_var: float, alpha: float, mix: str
) -> None:
    source, target = (tensor(mean), tensor(var)), (tensor(other_mean), tensor(other_var))

    def at(alpha: float) -> tuple[Tensor, Tensor]:
        return mix_statistics(*source, *target, alpha, mix=mix)

    for value, one, zero in zip(at(alpha), at(1.0), at(0.0), strict=True):
        assert torch.minimum(one, zero) - 1e-9 <= value <= torch.maximum(one, zero) + 1e-9
    assert_close(torch.stack(at(1.0)), torch.stack([source[0], (source[1] + 1e-5).sqrt()]), 1e-12)
    assert_close(torch.stack(at(0.0)), torch.stack([target[0], (target[1] + 1e-5).sqrt()]), 1e-12)
    # The variance mix never falls below the mix of deviations (Jensen).
    deviations = mix_statistics(*source, *target, alpha)[1]
    assert mix_statistics(*source, *target, alpha, mix="var")[1] >= deviations - 1e-9


@given(alphas, mixes)
@settings(max_examples=20, deadline=None)
def test_alpha_may_be_a_tensor(alpha: float, mix: str) -> None:
    args = tensor(1.0, 2.0), tensor(3.0, 0.5), tensor(-1.0, 0.0), tensor(0.2, 9.0)
    found = mix_statistics(*args, torch.tensor(alpha, dtype=DOUBLE), mix=mix)
    for one, other in zip(found, mix_statistics(*args, alpha, mix=mix), strict=True):
        assert_close(one, other, 1e-12)


def test_an_unknown_mix_names_the_known_ones() -> None:
    one = torch.ones(1)
    with pytest.raises(ValueError, match=r"mix must be one of 'std', 'var', but is 'mean'\."):
        mix_statistics(one, one, one, one, 0.5, mix="mean")


SHAPES = [(7, 4), (5, 4, 9), (6, 4, 5, 7), (3, 4, 2, 3, 4)]


def exact(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = x.double().movedim(1, 0).flatten(1)
    return rows.mean(1), rows.var(1, correction=0)


def layouts(x: Tensor) -> list[Tensor]:
    """The same values contiguous, channels last, and strided."""
    found = [x, x.mT.contiguous().mT]
    if x.dim() == 4:
        found.append(x.to(memory_format=torch.channels_last))
    if x.dim() == 5:
        found.append(x.to(memory_format=torch.channels_last_3d))
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mean", [0.0, 3.0, 1000.0, -1000.0])
def test_batch_statistics_agree_with_float64(
    shape: tuple[int, ...], dtype: torch.dtype, mean: float
) -> None:
    """x ~ N(1000, 1) too: a difference of squares would lose its variance."""
    x = (torch.randn(shape, dtype=DOUBLE) + mean).to(dtype)
    expected_mean, expected_var = exact(x)
    for layout in layouts(x):
        found_mean, found_var = batch_statistics(layout)
        assert found_mean.dtype == found_var.dtype == (DOUBLE if dtype == DOUBLE else torch.float32)
        torch.testing.assert_close(found_mean.double(), expected_mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found_var.double(), expected_var, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_batch_statistics_of_other_scales(scale: float) -> None:
    x = scale * torch.randn(8, 3, 10, 10)
    for layout in layouts(x):
        for found, expected in zip(batch_statistics(layout), exact(x), strict=True):
            torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6 * scale)


def test_batch_statistics_of_constant_channels_and_of_large_float16() -> None:
    for value in (0.0, 7.0, 1e4):
        for x in layouts(torch.full((4, 3, 5, 5), value)):
            mean, var = batch_statistics(x)
            assert_close(mean, torch.full((3,), value))
            assert (var >= 0).all()
            assert (var <= 1e-6 * max(1.0, value) ** 2).all()
    mean, var = batch_statistics(torch.full((8, 2, 64, 64), 60_000.0, dtype=torch.float16))
    assert_close(mean, torch.full((2,), 60_000.0))  # the sum of squares passes 65,504


def test_batch_statistics_carry_no_gradient() -> None:
    x = torch.randn(4, 3, 5, 5, requires_grad=True)
    assert not any(value.requires_grad for value in batch_statistics(x))


@given(st.permutations(range(6)), st.integers(0, 100))
@settings(max_examples=25, deadline=None)
def test_batch_statistics_know_no_order(order: list[int], seed: int) -> None:
    x = shifted(6, 4, 3, 3, seed=seed)
    for one, other in zip(batch_statistics(x), batch_statistics(x[order]), strict=True):
        assert_close(one, other)


def source(channels: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    mean, var = torch.rand(2, channels, generator=generator, dtype=DOUBLE)
    return mean, var + 0.3


def carried(x: Tensor, own: float) -> tuple[Tensor, Tensor]:
    """Statistics of which the batch is the part `own`, and a fixed past the rest."""
    past = tensor(0.3, -0.2, 0.1, 0.6), tensor(1.2, 0.7, 2.0, 0.4)
    mean, var = (own * now + (1 - own) * then for now, then in zip(exact(x), past, strict=True))
    return mean, var


def plain(
    x: Tensor, alpha: Any, weight: Tensor | None, bias: Tensor | None, *, own: float, mix: str
) -> Tensor:
    """Equations 1 to 4 left to autograd, for statistics of which this batch is the part `own`.

    d var / dx is 2 own (x - mean) / m with the *mixed* mean, which has its own constant offset.
    """
    shape = [1, -1, *[1] * (x.dim() - 2)]
    mean, var = carried(x.detach(), own)
    rows = x.movedim(1, 0).flatten(1)
    moving = own * (rows.mean(1) - rows.mean(1).detach()) + mean
    square = (rows - mean[:, None]).square().mean(1)
    mu, sigma = mix_statistics(
        *source(), moving, var + own * (square - square.detach()), alpha, mix=mix
    )
    y = (x - mu.view(shape)) / sigma.view(shape)
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


GRID = [(a, o, m) for a in (0.0, 0.5, 1.0) for o in (0.0, 0.2, 1.0) for m in ("std", "var")]
over_grid = pytest.mark.parametrize(("alpha", "own", "mix"), GRID)


@pytest.mark.parametrize("affine", [True, False], ids=["affine", "bare"])
@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 3, 2)], ids=str)
@over_grid
def test_the_closed_form_is_autograds_gradient(
    alpha: float, own: float, mix: str, shape: tuple[int, ...], affine: bool
) -> None:
    x = double(*shape).requires_grad_()
    value = torch.tensor(alpha, dtype=DOUBLE, requires_grad=True)
    weight, bias = (double(4, seed=s).requires_grad_() if affine else None for s in (2, 3))
    leaves = [t for t in (x, value, weight, bias) if t is not None]
    mean, var = carried(x.detach(), own)
    found = calibrated_norm(
        x, *source(), mean, var, value, weight=weight, bias=bias, own=own, mix=mix
    )
    expected = plain(x, value, weight, bias, own=own, mix=mix)
    assert_close(found, expected, 1e-10)
    upstream = double(*shape, seed=4)
    for one, other in zip(
        torch.autograd.grad(found, leaves, upstream),
        torch.autograd.grad(expected, leaves, upstream),
        strict=True,
    ):
        assert_close(one, other, 1e-9)


@over_grid
def test_gradcheck_by_finite_differences(alpha: float, own: float, mix: str) -> None:
    """The statistics move with x as the contract says, by the weight `own`."""
    fixed = double(3, 4, 2, 2)
    mean, var = carried(fixed, own)

    def function(x: Tensor, weight: Tensor, bias: Tensor, alpha: Tensor) -> Tensor:
        rows = (x.detach() - mean.view(1, -1, 1, 1)).movedim(1, 0).flatten(1)
        start = (fixed - mean.view(1, -1, 1, 1)).movedim(1, 0).flatten(1)
        now = mean + own * (rows - start).mean(1)
        spread = var + own * (rows.square() - start.square()).mean(1)
        return calibrated_norm(
            x, *source(), now, spread, alpha, weight=weight, bias=bias, own=own, mix=mix
        )

    inputs = fixed.clone(), double(4, seed=2), double(4, seed=3), torch.tensor(alpha, dtype=DOUBLE)
    assert torch.autograd.gradcheck(function, [value.requires_grad_() for value in inputs])


def test_detached_statistics_would_be_another_gradient() -> None:
    """What own=0 leaves out at own=1 is not small: findings 3d has what it costs."""
    x = double(8, 4).requires_grad_()
    upstream = double(8, 4, seed=2)
    gradients = [
        torch.autograd.grad(
            calibrated_norm(x, *source(), *batch_statistics(x), 0.0, own=own), x, upstream
        )[0]
        for own in (0.0, 1.0)
    ]
    assert (gradients[0] - gradients[1]).abs().max() > 0.1
    # A batch that normalises itself takes no push along itself.
    assert gradients[1].sum(0).abs().max() < 1e-9


@pytest.mark.parametrize("own", [0.25, torch.tensor(0.25, dtype=DOUBLE)], ids=["number", "tensor"])
def test_own_may_be_a_tensor_as_a_stream_gives_it(own: Any) -> None:
    x = double(6, 4).requires_grad_()
    mean, var = carried(x.detach(), 0.25)
    y = calibrated_norm(x, *source(), mean, var, 0.3, own=own)
    found = torch.autograd.grad(y.square().sum(), x)[0]
    expected = plain(x, 0.3, None, None, own=0.25, mix="std").square().sum()
    assert_close(found, torch.autograd.grad(expected, x)[0], 1e-9)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_layout_does_not_matter_and_is_kept(shape: tuple[int, ...]) -> None:
    x = double(*shape)
    expected = calibrated_norm(x, *source(), *batch_statistics(x), 0.4)
    for layout in layouts(x):
        y = calibrated_norm(layout, *source(), *batch_statistics(layout), 0.4)
        assert_close(y, expected, 1e-10)
    if len(shape) == 4:
        last = x.to(memory_format=torch.channels_last).requires_grad_()
        y = calibrated_norm(last, *source(), *batch_statistics(last), 0.4)
        assert y.is_contiguous(memory_format=torch.channels_last)
        (slope,) = torch.autograd.grad(y.square().sum(), last)
        assert slope.is_contiguous(memory_format=torch.channels_last)


def test_inputs_that_need_no_gradient_get_none() -> None:
    x, weight = double(5, 4), double(4, seed=2).requires_grad_()
    y = calibrated_norm(x, *source(), *batch_statistics(x), 0.5, weight=weight)
    (found,) = torch.autograd.grad(y.square().sum(), weight)
    assert found.shape == weight.shape
    assert x.grad is None
