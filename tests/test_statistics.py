"""Carried statistics: what they count, what they forget, and when they answer."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate as ac
from networks import (
    Shared,
    assert_close,
    assert_equal,
    batches,
    contents,
    net,
    run,
    settle,
    shifted,
)


def layer(channels: int = 3) -> nn.Module:
    return settle(nn.BatchNorm2d(channels))


def carried(adapter: ac.Adapter, path: Path, name: str = "") -> dict[str, Tensor]:
    """What a layer carries, from the adapter's file."""
    _, tensors = contents(adapter, path)
    start = f"statistics.{name}."
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}


def by_hand(stream: list[Tensor], memory: float = 1000) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of a stream, batch by batch in float64."""
    samples, mean, var = 0.0, torch.zeros(()), torch.zeros(())
    for x in stream:
        rows = x.double().movedim(1, 0).flatten(1)
        now, spread, n = rows.mean(1), rows.var(1, correction=0), len(x)
        own = max(n / (samples + n), min(n / memory, 0.2))
        var = (1 - own) * var + own * spread + own * (1 - own) * (now - mean).square()
        mean = (1 - own) * mean + own * now
        samples += n
    return mean, var


def affine(x: Tensor, mean: Tensor, var: Tensor, layer: Any, bias: Tensor) -> Any:
    """Eq. 1 for given statistics."""
    shape = (1, -1, 1, 1)
    y = (x - mean.view(shape)) / (var + layer.eps).sqrt().view(shape)
    return y * layer.weight.detach().view(shape) + bias.view(shape)


def test_the_stream_carries_the_cumulative_mean_and_variance(tmp_path: Path) -> None:
    stream = [shifted(n, 3, 5, 4, seed=n) for n in (4, 1, 7, 2, 16)]
    adapter = ac.TBN(layer(), statistics="stream")
    run(adapter, stream)
    found = carried(adapter, tmp_path / "state")
    whole = torch.cat(stream)
    rows = whole.double().movedim(1, 0).flatten(1)
    assert_close(found["mean"].double(), rows.mean(1))
    assert_close(found["var"].double(), rows.var(1, correction=0))
    assert found["samples"] == 30
    # What is carried is what answers.
    assert_close(adapter.predict(whole), ac.alpha_bn(layer(), 0.0)(whole))


@pytest.mark.parametrize("memory", [10, 20, 1000, math.inf])
def test_memory_bounds_the_weight_of_the_past(memory: float, tmp_path: Path) -> None:
    """Cumulative up to `memory` samples, then exponential; an update weighs a fifth at most."""
    stream = [shifted(4, 3, 4, 4, seed=n) + n for n in range(12)]
    adapter = ac.TBN(layer(), statistics="stream", memory=memory)
    run(adapter, stream)
    found, (mean, var) = carried(adapter, tmp_path / "state"), by_hand(stream, memory)
    torch.testing.assert_close(found["mean"].double(), mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found["var"].double(), var, rtol=1e-4, atol=1e-4)


def test_the_first_batch_brings_its_own_statistics_and_counts_itself_in_first() -> None:
    x = shifted(8, 3, 4, 4)
    adapter = ac.TBN(layer(), statistics="stream", memory=5)
    assert_close(adapter(x), ac.alpha_bn(layer(), 0.0)(x))
    # The second batch is in the statistics that it is normalised by.
    second = shifted(8, 3, 4, 4, seed=2) + 3
    mean, var = by_hand([x, second], 5)
    source: Any = layer()
    expected = affine(second.double(), mean, var, source, source.bias.detach())
    assert_close(adapter(second).double(), expected, 1e-4)


def test_before_the_first_batch_predict_answers_with_the_source() -> None:
    model, x = net(), shifted(4, 3, 8, 8)
    expected = model(x).detach()
    adapter = ac.TBN(model, statistics="stream")
    assert_close(adapter.predict(x), expected)
    adapter(x)
    assert (adapter.predict(x) - expected).abs().max() > 1e-2
    adapter.reset()
    assert_close(adapter.predict(x), expected)


def test_a_batch_1_stream_approaches_the_whole_batchs_statistics() -> None:
    model, images = net(), shifted(400, 3, 8, 8)
    source = model(images[:100]).detach()
    expected = ac.alpha_bn(net(), 0.2)(images)[:100].detach()
    adapter = ac.AlphaBN(model, alpha=0.2, statistics="stream")
    for image in images[:300]:
        adapter(image[None])
    found = adapter.predict(images[:100])
    alone = torch.cat([ac.alpha_bn(net(), 0.2)(x[None]).detach() for x in images[:100]])
    distance = (found - expected).abs().mean()
    assert distance < 0.1 * (source - expected).abs().mean()
    assert distance < 0.2 * (alone - expected).abs().mean()


@pytest.mark.parametrize(("first", "known"), [((1, 3), False), ((1, 3, 2), True), ((2, 3), True)])
def test_two_values_a_channel_are_asked_before_the_source_is_left(
    first: tuple[int, ...], known: bool, tmp_path: Path
) -> None:
    """A pooling head would emit its bias on the first frame; that frame counts all the same."""
    source = settle(nn.BatchNorm1d(3))
    frames = shifted(*first), shifted(*first, seed=2)
    expected = source(frames[0]).detach()
    adapter = ac.TBN(source, statistics="stream")
    assert torch.allclose(adapter(frames[0]), expected, atol=1e-5) != known
    assert carried(adapter, tmp_path / "state")["samples"] == first[0]
    adapter(frames[1])
    both = torch.cat(frames)
    mean = both.double().movedim(1, 0).flatten(1).mean(1)
    assert_close(carried(adapter, tmp_path / "state")["mean"].double(), mean)
    assert_close(adapter.predict(both), ac.alpha_bn(settle(nn.BatchNorm1d(3)), 0.0)(both))


class Keep(torch.optim.SGD):
    """An optimiser that moves nothing and keeps the gradients by the second parameter."""

    def __init__(self, parameters: list[Tensor], kept: list[Tensor]):
        super().__init__(parameters, lr=0.0)
        self.kept = kept

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.kept.append(self.param_groups[0]["params"][1].grad.clone())


class Square(ac.Adapter):
    """A loss that every value enters."""

    def loss(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return logits.square().mean()


def test_the_gradient_flows_by_the_weight_of_the_batch() -> None:
    """Against autograd over the whole stream, of which only the last batch moves."""
    stream = [shifted(4, 3, 3, 3, seed=s).double() for s in (1, 2, 3)]
    model: Any = settle(nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3))).double()
    first, second = model
    gradients: list[Tensor] = []
    adapter = Square(
        model, alpha={"1": 0.0}, statistics="stream", optimizer=lambda p: Keep(p, gradients)
    )
    run(adapter, stream)
    assert len(gradients) == 3
    for i, found in enumerate(gradients):
        bias = first.bias.detach().clone().requires_grad_()
        seen = [
            affine(
                x, first.running_mean, first.running_var, first, bias if k == i else bias.detach()
            )
            for k, x in enumerate(stream[: i + 1])
        ]
        var, mean = torch.var_mean(torch.cat(seen), (0, 2, 3), correction=0)
        answer = affine(seen[i], mean, var, second, second.bias.detach())
        (expected,) = torch.autograd.grad(answer.square().mean(), bias)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_a_shared_layer_counts_each_use_in_one_forward(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = settle(Shared()), shifted(6, 3, 5, 5)
    seen: list[Tensor] = []
    model.get_submodule("norm").register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    adapter = ac.Tent(model, statistics="stream", lr=1e-6)
    adapter(x)
    assert adapter.counts["updates"] == 1
    found = carried(adapter, tmp_path / "state", "norm")
    assert found["samples"] == 12
    mean, var = by_hand([value.detach() for value in seen])
    assert_close(found["mean"].double(), mean, 1e-4)
    assert_close(found["var"].double(), var, 1e-4)


def test_predict_counts_nothing(tmp_path: Path) -> None:
    adapter = ac.AlphaBN(layer(), alpha=0.5, statistics="stream")
    adapter(shifted(4, 3, 4, 4))
    before = contents(adapter, tmp_path / "state")[1]
    adapter.predict(shifted(4, 3, 4, 4, seed=2) + 100)
    adapter.model(shifted(4, 3, 4, 4, seed=2) + 100)  # nor does the model called by itself
    assert_equal(contents(adapter, tmp_path / "state")[1], before)


def test_several_steps_count_a_batch_once(tmp_path: Path) -> None:
    for steps in (1, 3):
        adapter = ac.Core(net(), alpha=0.5, statistics="stream", steps=steps)
        run(adapter, batches(2))
        assert carried(adapter, tmp_path / "state", "bn1")["samples"] == 32
        assert adapter.counts["updates"] == 2 * steps
        assert_close(
            carried(adapter, tmp_path / "state", "bn1")["mean"].double(),
            by_hand([adapter.model.get_submodule("conv1")(x).detach() for x in batches(2)])[0],
            1e-4,
        )


class Picky(ac.Adapter):
    """Counts no sample of a batch whose mean is above 1."""

    batch_is_good = True

    def select(self, logits: Tensor) -> Tensor:
        return torch.full((len(logits),), self.batch_is_good)

    def loss(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return ac.functional.entropy(logits, mask=mask)


def test_a_skipped_step_carries_nothing(tmp_path: Path) -> None:
    adapter = Picky(net(), alpha=0.5, statistics="stream")
    adapter(batches()[0])
    before = contents(adapter, tmp_path / "state")[1]
    adapter.batch_is_good = False
    with pytest.warns(UserWarning, match="Picky did not update on this batch: empty selection"):
        adapter(batches()[1])
    assert_equal(contents(adapter, tmp_path / "state")[1], before)
    adapter.batch_is_good = True
    other = Picky(net(), alpha=0.5, statistics="stream")
    assert_equal(run(other, [batches()[0], batches()[2]])[1], adapter(batches()[2]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_layer_whose_statistics_are_not_finite_is_not_counted(bad: float, tmp_path: Path) -> None:
    adapter = ac.AlphaBN(net(), alpha=0.5, statistics="stream", check=False)
    first, second = batches(2)
    adapter(first)
    before = contents(adapter, tmp_path / "state")[1]
    spoilt = second.clone()
    spoilt[0, 0, 0, 0] = bad
    adapter(spoilt)
    assert_equal(contents(adapter, tmp_path / "state")[1], before)
    assert adapter(second).isfinite().all()
    assert adapter.counts["batches"] == 3


def test_only_the_layer_that_is_not_finite_is_left_out(tmp_path: Path) -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.BatchNorm1d(2), nn.BatchNorm1d(2)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([self.one(x[:, :2]), self.other(x[:, 2:])], 1)

    adapter = ac.TBN(settle(Branches()), statistics="stream", check=False)
    x = shifted(4, 4)
    x[1, 3] = math.nan
    adapter(x)
    assert carried(adapter, tmp_path / "state", "one")["samples"] == 4
    assert carried(adapter, tmp_path / "state", "other")["samples"] == 0


def test_prior_falls_with_the_samples_that_are_carried() -> None:
    frames = [shifted(1, 3, 4, 4, seed=s) for s in range(6)]
    adapter = ac.AlphaBN(layer(), alpha=ac.prior(4), statistics="stream")
    for k, frame in enumerate(frames, 1):
        fixed = ac.AlphaBN(layer(), alpha=4 / (4 + k), statistics="stream")
        assert_close(adapter(frame), run(fixed, frames[:k])[-1])


def test_prior_counts_the_samples_of_a_batch_not_its_positions() -> None:
    x = shifted(12, 3, 4, 4)
    expected = ac.alpha_bn(layer(), 4 / 16)(x)
    assert_close(ac.alpha_bn(layer(), ac.prior(4))(x), expected)


def test_what_is_carried_of_a_half_precision_stream_is_float32(tmp_path: Path) -> None:
    stream = batches(3)
    full, half = (ac.TBN(model, statistics="stream") for model in (net(), net().bfloat16()))
    run(full, stream)
    run(half, [x.bfloat16() for x in stream])
    for name, value in carried(half, tmp_path / "half", "bn1").items():
        assert value.dtype == torch.float32
        expected = carried(full, tmp_path / "full", "bn1")[name]
        torch.testing.assert_close(value, expected, rtol=0.02, atol=0.02)
