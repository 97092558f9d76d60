"""What every method shares: verbs, counts, warnings, steps that fail, and the way out."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate as ac
from networks import Net, assert_close, assert_equal, batches, fresh, net, run, shifted

X = shifted(16, 3, 8, 8)


def core(model: nn.Module | None = None, **options: Any) -> ac.Core:
    return ac.Core(net() if model is None else model, **{"alpha": 0.9, **options})


class Odd(ac.Adapter, temperature=2.0, lr=0.01):
    """A method of one's own: its defaults, a loss, a selection and a hook for the tests."""

    default_alpha = 0.5

    def __init__(self, model: nn.Module, *, margin: float = math.inf, **options: Any):
        super().__init__(model, **options)
        self.options["margin"] = margin
        self.spoil: Callable[[Tensor], Tensor] = lambda loss: loss

    def select(self, logits: Tensor) -> Tensor:
        margin: float = self.options["margin"]
        return ac.functional.entropy(logits, reduction="none") < margin

    def loss(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        temperature = self.options["temperature"]
        return self.spoil(ac.functional.entropy(logits, mask=mask, temperature=temperature))


class Odder(Odd, lr=0.1):
    """A subclass of it, which states one more default."""


def test_a_method_of_ones_own_works_like_ours() -> None:
    assert core().options.keys() | {"margin"} == Odd(net()).options.keys()
    for cls, lr in ((Odd, 0.01), (Odder, 0.1)):
        adapter = cls(net())
        assert adapter.method == cls.__name__
        wanted = {"alpha": 0.5, "temperature": 2.0, "lr": lr, "margin": math.inf}
        assert wanted.items() <= adapter.options.items()
        assert cls(net(), lr=0.5, alpha=0.1, margin=1.0).options["lr"] == 0.5
        run(adapter, batches())
        assert adapter.counts["updates"] == 3
        assert_equal(fresh(adapter.release())["values"], fresh(net())["values"])
    with pytest.raises(TypeError, match="unexpected keyword argument 'marginal'"):
        Odd(net(), marginal=1)


def test_the_loss_is_taken_of_the_selected_samples_alone() -> None:
    margin = float(ac.functional.entropy(Odd(net()).predict(X), reduction="none").median())
    adapter = Odd(net(), margin=margin, alpha=1.0)
    kept = ac.functional.entropy(adapter.predict(X), reduction="none") < margin
    other = Odd(net(), alpha=1.0)
    adapter(X)
    other(X[kept])  # at alpha 1 the samples do not meet in the statistics
    for one, two in zip(adapter.model.parameters(), other.model.parameters(), strict=True):
        assert_close(one, two)


def test_counts() -> None:
    adapter = core(steps=2)
    assert dict(adapter.counts) == {"batches": 0, "samples": 0, "updates": 0, "skipped": {}}
    adapter(X)
    adapter(X[:7])
    adapter.predict(X)
    assert dict(adapter.counts) == {"batches": 2, "samples": 23, "updates": 4, "skipped": {}}
    adapter.reset()
    assert adapter.counts["batches"] == 0
    for other in (ac.Source(net()), ac.AlphaBN(net(), alpha=0.9)):
        other(X)
        assert dict(other.counts) == {"batches": 1, "samples": 16, "updates": 0, "skipped": {}}


def test_episodic_starts_every_batch_from_the_source_and_keeps_the_counts() -> None:
    adapter = core(episodic=True, steps=3, statistics="stream", alpha=0.5)
    first = adapter(X)
    run(adapter, batches())
    assert_equal(adapter(X), first)
    assert adapter.counts["batches"] == 5
    assert adapter.counts["updates"] == 15


BAD_LOSSES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "nan": (lambda loss: loss * math.nan, "non-finite loss"),
    "infinite": (lambda loss: loss * math.inf, "non-finite loss"),
    "gradient": (lambda loss: loss + (loss * 0).sqrt(), "non-finite gradient"),
}


@pytest.mark.parametrize("name", BAD_LOSSES)
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_step_that_is_not_finite_is_no_step(name: str, optimizer: str) -> None:
    """Not a step of gradient zero either: the momentum would coast."""
    spoil, reason = BAD_LOSSES[name]
    adapter = Odd(net(), optimizer=optimizer, statistics="stream")
    reference = Odd(net(), optimizer=optimizer, statistics="stream")
    run(adapter, batches(2))
    run(reference, batches(2))
    adapter.spoil = spoil
    sentence = rf"Odd did not update on this batch: {reason}.*adapter\.counts"
    with pytest.warns(UserWarning, match=sentence) as caught:
        y = adapter(X)
    assert caught[0].filename == __file__
    assert y.isfinite().all()
    adapter(X)  # the second is counted without a warning
    assert adapter.counts["skipped"] == {reason: 2}
    assert adapter.counts["batches"] == 4
    assert adapter.counts["updates"] == 2
    adapter.spoil = lambda loss: loss
    assert_equal(run(adapter, batches()), run(reference, batches()))
    adapter.reset()
    assert adapter.counts["skipped"] == {}


def test_no_update_from_the_step_that_fails_on() -> None:
    adapter, reference = Odd(net(), steps=3), Odd(net(), steps=1)
    losses = []

    def spoil(loss: Tensor) -> Tensor:
        losses.append(loss)
        return loss * math.nan if len(losses) == 2 else loss

    adapter.spoil = spoil
    with pytest.warns(UserWarning, match="non-finite loss"):
        adapter(X)
    assert len(losses) == 2
    assert adapter.counts["updates"] == 1
    reference(X)
    assert_equal(adapter.predict(X), reference.predict(X))


def test_an_empty_selection_is_no_step() -> None:
    adapter = Odd(net(), margin=0.0)
    expected = adapter.predict(X)
    with pytest.warns(UserWarning, match="Odd did not update on this batch: empty selection"):
        assert_close(adapter(X), expected)
    assert_equal(adapter.predict(X), expected)
    assert adapter.counts["skipped"] == {"empty selection": 1}


ADVICE = r"7 samples are few.*statistics='stream'.*acclimate\.prior\(16\)"


@pytest.mark.parametrize("make", [lambda: ac.TBN(net()), lambda: core(alpha=0.5)])
def test_small_batches_are_advised_on_once(make: Callable[[], ac.Adapter]) -> None:
    adapter = make()
    adapter(X)
    with pytest.warns(UserWarning, match=ADVICE) as caught:
        adapter(X[:7])
    assert [warning.filename for warning in caught] == [__file__]
    adapter(X[:7])
    adapter(X[:3])


@pytest.mark.parametrize(
    "make",
    [
        lambda: ac.Source(net()),
        lambda: core(alpha=0.9),
        lambda: core(alpha=0.5, statistics="stream"),
        lambda: core(alpha=ac.prior(16)),
        lambda: ac.TBN(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))),  # no classifier
    ],
)
def test_no_advice_where_it_would_not_help(make: Callable[[], ac.Adapter]) -> None:
    make()(X[:7])


def test_an_alpha_tensor_is_advised_on_like_its_number() -> None:
    with pytest.warns(UserWarning, match=ADVICE):
        core(alpha=torch.tensor(0.5))(X[:7])


def test_release_gives_back_the_flags_that_the_adapter_switched() -> None:
    model = net().train()
    model.get_parameter("bn1.weight").requires_grad_(False)
    with core(model) as adapter:
        assert isinstance(adapter, ac.Core)
        assert not any(module.training for module in model.modules())
        trained = {name for name, p in model.named_parameters() if p.requires_grad}
        assert trained == {"bn1.weight", "bn1.bias", "bn2.weight", "bn2.bias"}
        adapter(X)
    assert all(module.training for module in model.modules())
    assert {name for name, p in model.named_parameters() if not p.requires_grad} == {"bn1.weight"}
    assert adapter.release() is model


def test_an_error_inside_the_block_releases() -> None:
    model = net()
    with pytest.raises(KeyError), core(model):
        raise KeyError
    core(model)


def test_a_released_adapter_says_so() -> None:
    adapter = core()
    adapter.release()
    sentence = "This Core was released and Net is the source model again: construct a new adapter"
    for use in (
        lambda: adapter(X),
        lambda: adapter.predict(X),
        lambda: adapter.reset(),
        lambda: adapter.save("nowhere"),
        lambda: adapter.load("nowhere"),
        lambda: ac.freeze(adapter),
    ):
        with pytest.raises(ValueError, match=sentence):
            use()


class Blind(Net):
    """A network that lets no gradient through."""

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


def test_a_loss_without_a_gradient_is_an_error_with_a_repair() -> None:
    with pytest.raises(ValueError, match=r"no gradient to the trained.*no_grad.*use AlphaBN"):
        core(Blind())(X)


def test_a_loss_of_something_else_is_the_same_error() -> None:
    adapter, other = Odd(net()), torch.ones((), requires_grad=True)
    adapter.spoil = lambda loss: loss.detach() * other
    with pytest.raises(ValueError, match=r"no gradient to the trained"):
        adapter(X)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("make", [core, lambda: core(statistics="stream", alpha=0.5, steps=2)])
def test_adapters_work_where_gradients_are_off(
    make: Callable[[], ac.Adapter], context: Any
) -> None:
    expected = run(make(), batches())
    adapter = make()
    with context():
        found = [adapter(x.clone()) for x in batches()]  # made inside, as a user's batch is
        answer = adapter.predict(X)
    assert_equal(found, expected)
    assert not answer.is_inference()
    assert_equal(adapter.predict(X), answer)
    adapter(X)


def test_core_goes_down_the_class_correlation_and_tent_down_the_entropy() -> None:
    for cls, loss in ((ac.Core, ac.functional.class_correlation), (ac.Tent, ac.functional.entropy)):
        adapter = cls(net(), alpha=0.5, lr=0.1)
        t = adapter.options["temperature"]
        assert_close(adapter.loss(X[:, :, 0, 0], None), loss(X[:, :, 0, 0], temperature=t))
        first = loss(adapter.predict(X), temperature=t)
        run(adapter, [X] * 20)
        assert loss(adapter.predict(X), temperature=t) < first - 0.01


def test_the_base_class_trains_nothing_by_itself() -> None:
    adapter = ac.Adapter(net(), alpha=0.5)
    with pytest.raises(TypeError, match="Adapter trains nothing"):
        adapter.loss(X, None)
    adapter(X)
    assert adapter.counts["updates"] == 0


def test_parameters_that_a_module_replaces_are_followed() -> None:
    """`half()` and `to()` may put new parameter objects in place of the old ones."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        adapter = core()
        adapter(X)
        adapter.model.double()
        adapter.model.float()
        before = adapter.predict(X)
        adapter(X)
        assert (adapter.predict(X) - before).abs().max() > 0
        released = adapter.release()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert all(parameter.requires_grad for parameter in released.parameters())
