"""Equations 1 to 4: normalisation by a mix of source and target statistics, and its gradient."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

MIXES = ("std", "var")
ROWS_PAY = 2**15
"""Values in a layer's input from which on sums over its rows beat ATen's pass (measured)."""


def widen(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if that is what it is: where statistics are safe."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def is_tracing() -> bool:
    """Whether torch.jit.trace records this code."""
    return torch._C._get_tracing_state() is not None


def is_exporting() -> bool:
    """Whether torch.export records this code; under torch.compile torch 2.10 says so wrongly."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


def functorch_is_active() -> bool:
    """Whether torch.func transforms this code: then only plain operations may be used."""
    if torch.compiler.is_compiling():  # dynamo cannot trace the question
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None


def mix_statistics(
    source_mean: Tensor,
    source_var: Tensor,
    mean: Tensor,
    var: Tensor,
    alpha: float | Tensor,
    *,
    eps: float = 1e-5,
    mix: str = "std",
) -> tuple[Tensor, Tensor]:
    """Mix source and target statistics: Eq. 3 and Eq. 4.

        mu    = alpha mu_s    + (1 - alpha) mu_t
        sigma = alpha sigma_s + (1 - alpha) sigma_t,    sigma_. = sqrt(var_. + eps)

    The trap: alpha weighs the **source**, and it is standard deviations that are mixed. Other
    code weighs the batch and mixes variances; ``mix="var"`` is that mix.

    >>> one, four = torch.tensor([1.0]), torch.tensor([4.0])
    >>> mu, sigma = mix_statistics(one, one, one * 3, four, 0.5, eps=0.0)
    >>> mu.item(), sigma.item()
    (2.0, 1.5)
    """
    check_mix(mix)
    if isinstance(alpha, Tensor):
        alpha = alpha.to(mean.dtype)
    mu = torch.lerp(mean, source_mean, alpha)
    if mix == "std":
        return mu, torch.lerp((var + eps).sqrt(), (source_var + eps).sqrt(), alpha)
    return mu, (torch.lerp(var, source_var, alpha) + eps).sqrt()


def check_mix(mix: str) -> None:
    """Refuse a mix that is not known."""
    if mix not in MIXES:
        raise ValueError(f"mix must be one of {', '.join(map(repr, MIXES))}, but is {mix!r}.")


def values_a_channel(x: Tensor) -> int:
    """Over how many values a channel's mean is taken: samples times positions."""
    return x.numel() // x.shape[1]


def batch_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of every channel (dimension 1), in float32 or wider.

    Without a gradient: that goes through `calibrated_norm`, in closed form.

    >>> mean, var = batch_statistics(torch.tensor([[1.0], [3.0]]))
    >>> mean.item(), var.item()
    (2.0, 1.0)
    """
    x = x.detach()
    if torch.compiler.is_compiling() or is_tracing() or functorch_is_active():
        return _var_mean(x)  # a compiler fuses it; export refuses the faster ways below
    if x.is_cuda:
        mean, inverse_std = torch.batch_norm_stats(x, 0.0)  # float32 whatever the input's type
        return mean, inverse_std.pow(-2)
    if x.dtype not in (torch.float32, torch.float64) or not x.is_cpu:
        return _var_mean(x)
    if x.dim() > 2 and x.numel() >= ROWS_PAY and x.is_contiguous():
        mean, var = _row_statistics(x)
        # A difference of squares keeps 1e-5 of the variance at a mean of five deviations.
        if not (mean.square() > 25 * var).any():
            return mean, var
    mean, var = torch.ops.aten.batch_norm_update_stats(x, None, None, 0.0)
    return mean, var


def _var_mean(x: Tensor) -> tuple[Tensor, Tensor]:
    var, mean = torch.var_mean(widen(x), [d for d in range(x.dim()) if d != 1], correction=0)
    return mean, var


def _row_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over contiguous rows are vectorised, as ATen's own statistics pass is not."""
    rows = x.flatten(2)
    values = values_a_channel(x)
    mean = rows.sum(-1).double().sum(0) / values
    squares = torch.linalg.vector_norm(rows, dim=-1).double().square().sum(0) / values
    return mean.to(x.dtype), (squares - mean.square()).to(x.dtype)


def calibrated_norm(
    x: Tensor,
    source_mean: Tensor,
    source_var: Tensor,
    mean: Tensor,
    var: Tensor,
    alpha: float | Tensor,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    own: float | Tensor = 1.0,
    eps: float = 1e-5,
    mix: str = "std",
) -> Tensor:
    """Normalise the channels of x (dimension 1) by mixed statistics.

        y = gamma (x - mu) / sigma + beta

    with Eq. 3 and 4's mu and sigma. `mean` and `var` are the target's statistics and `own` the
    weight with which this very x entered them: 1 for its own batch, 0 for values known before.
    They come without a gradient, and the backward adds their part in closed form, with m
    positions a channel: d mean / dx = own / m and d var / dx = 2 own (x - mean) / m.

    The trap that this avoids: detached statistics cost up to ten points of accuracy, and
    `torch.nn.functional.batch_norm` refuses statistics that need a gradient.

    >>> x = torch.randn(8, 3, 4, 4)
    >>> source = torch.zeros(3), torch.ones(3)
    >>> y = calibrated_norm(x, *source, *batch_statistics(x), alpha=0.0)
    >>> torch.allclose(y, torch.nn.functional.batch_norm(x, None, None, training=True), atol=1e-5)
    True
    """
    mean, var = mean.detach(), var.detach()
    with torch.no_grad():  # alpha's gradient, too, is in closed form
        mu, sigma = mix_statistics(source_mean, source_var, mean, var, alpha, eps=eps, mix=mix)
    inputs = (x, weight, bias, alpha, source_mean, source_var, mean, var, mu, sigma, own, eps, mix)
    if torch.compiler.is_compiling() or is_tracing():
        return _CalibratedNorm.apply(*inputs)  # type: ignore[no-any-return]
    if functorch_is_active():
        # vmap hands out a view, and an in-place ReLU behind it would raise.
        return _CalibratedNorm.apply(*inputs).clone()  # type: ignore[no-any-return]
    # What `apply` does in eager mode, without inspecting our signature for 200 us every time.
    return super(torch.autograd.Function, _CalibratedNorm).apply(*inputs)  # type: ignore[no-any-return]


class _CalibratedNorm(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        alpha: float | Tensor,
        source_mean: Tensor,
        source_var: Tensor,
        mean: Tensor,
        var: Tensor,
        mu: Tensor,
        sigma: Tensor,
        own: float | Tensor,
        eps: float,
        mix: str,
    ) -> Tensor:
        return _normalise(x, mu, sigma, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _, alpha, *statistics, own, ctx.eps, ctx.mix = inputs
        numbers = [None if isinstance(v, Tensor) else v for v in (alpha, own)]
        tensors = [v if isinstance(v, Tensor) else None for v in (alpha, own)]
        ctx.numbers = numbers
        ctx.save_for_backward(x, weight, *statistics, *tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, source_mean, source_var, mean, var, mu, sigma, *tensors = ctx.saved_tensors
        alpha, own = (n if t is None else t for n, t in zip(ctx.numbers, tensors, strict=True))
        to_x, to_weight, to_bias, to_alpha = ctx.needs_input_grad[:4]
        through_statistics = to_x and not (isinstance(own, (int, float)) and own == 0)
        sums = through_statistics or to_weight or to_bias or to_alpha
        inverse = sigma.reciprocal()
        weight = torch.ones_like(mu) if weight is None else weight  # without one, vmap has no sums
        # The statistics held fixed: the evaluation form of batch norm's backward, whose sums over
        # a channel of grad * x_hat and of grad are also all that the other gradients need.
        grad_x, sum_grad_x_hat, sum_grad = torch.ops.aten.native_batch_norm_backward(
            grad, x, weight, mu, sigma.square(), mu, inverse, False, 0.0, [to_x, sums, sums]
        )
        grad_alpha = None
        if through_statistics or to_alpha:
            scale = weight * inverse
            # Minus the gradients to mu and sigma.
            to_mu, to_sigma = scale * sum_grad, scale * sum_grad_x_hat
            spread = (var + ctx.eps).sqrt() if ctx.mix == "std" else sigma
            if to_alpha:
                if ctx.mix == "std":
                    sigma_by_alpha = (source_var + ctx.eps).sqrt() - spread
                else:
                    sigma_by_alpha = (source_var - var) / (2 * sigma)
                by_channel = to_mu * (mean - source_mean) - to_sigma * sigma_by_alpha
                grad_alpha = by_channel.sum().to(alpha.dtype)
            if through_statistics:
                share = own * (alpha - 1) / values_a_channel(x)
                ones = torch.ones_like(mean)
                through = _normalise(x, mean, ones, share * to_sigma / spread, share * to_mu)
                grad_x = grad_x + through
        gradients: list[Tensor | None] = [
            grad_x,
            sum_grad_x_hat if to_weight else None,
            sum_grad if to_bias else None,
            grad_alpha,
        ]
        if torch.is_grad_enabled():
            anchors = [t for t in (x, weight, alpha, grad) if isinstance(t, Tensor)]
            gradients = [g if g is None else _RefuseSecond.apply(g, *anchors) for g in gradients]
        return *gradients, *[None] * 9


def _normalise(
    x: Tensor, mu: Tensor, sigma: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    # sigma has its eps already, and torch wants one: one that vanishes beside any sigma.
    return F.batch_norm(x, mu, sigma.square(), weight, bias, eps=1e-30)


class _RefuseSecond(torch.autograd.Function):
    """The identity on a gradient; differentiated again it raises instead of answering wrongly.

    The anchors are what a second derivative could go to: they give the gradient its graph.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(grad: Tensor, *anchors: Tensor) -> Tensor:
        return grad.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        raise TypeError(
            "A second derivative was asked of a calibrated normalisation, whose backward is in "
            "closed form and differentiates once: use acclimate.restore(model) first, or leave "
            "out create_graph=True."
        )
