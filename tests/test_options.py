"""The options of an adapter: one place, their effect, and what does not fit."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate as ac
from networks import assert_equal, batches, fresh, net, run


def core(model: nn.Module | None = None, **options: Any) -> ac.Core:
    return ac.Core(net() if model is None else model, **{"alpha": 0.9, **options})


def test_options_are_stated_once_and_kept_together() -> None:
    adapter = core(optimizer="sgd", nesterov=True, steps=2)
    assert list(adapter.options) == [
        *("alpha", "mix", "statistics", "memory", "parameters", "optimizer", "lr", "betas"),
        *("momentum", "nesterov", "steps", "episodic", "temperature", "logits", "check"),
    ]
    defaults = {
        "mix": "std", "statistics": "batch", "memory": 1000, "parameters": "bn", "lr": 1e-3,
        "optimizer": "adam", "betas": (0.9, 0.999), "momentum": 0.9, "nesterov": False,
        "steps": 1, "episodic": False, "temperature": 1.0, "logits": None, "check": True,
    }  # fmt: skip
    assert defaults.items() <= ac.Tent(net()).options.items()
    assert (ac.Tent(net()).options["alpha"], core().options["temperature"]) == (0.0, 2.5)
    assert repr(adapter).startswith("Core(Net, alpha=0.9, mix='std'")
    assert callable(adapter.parameters)  # no option hides nn.Module's own
    for cls in (ac.Source, ac.TBN, ac.AlphaBN, ac.Tent, ac.Core):
        with pytest.raises(TypeError, match="positional"):
            cls(net(), 0.9)  # type: ignore[call-arg]


OPTIONS: dict[str, tuple[Any, type[Exception], str]] = {
    "statistics": ("running", ValueError, "must be 'batch' or 'stream', but is 'running'"),
    "parameters": ("all", ValueError, "must be 'bn' or 'norm', but is 'all'"),
    "mix": ("mean", ValueError, "must be 'std' or 'var', but is 'mean'"),
    "memory": (0, ValueError, "must be a number above 0, but is 0"),
    "lr": (-1.0, ValueError, r"must be a finite number above 0, but is -1\.0"),
    "temperature": (math.nan, ValueError, "must be a finite number above 0, but is nan"),
    "momentum": (1.0, ValueError, r"must be a number in \[0, 1\), but is 1\.0"),
    "steps": (0, ValueError, "must be a whole number of at least 1, but is 0"),
    "optimizer": ("lion", ValueError, "must be 'adam' or 'sgd', or a function .* but is 'lion'"),
    "logits": ("out", TypeError, "must be a function that finds the logits .* but is 'out'"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_do_not_fit(name: str) -> None:
    value, error, sentence = OPTIONS[name]
    model = net()
    before = fresh(model)
    with pytest.raises(error, match=f"{name} {sentence}"):
        core(model, **{name: value})
    assert fresh(model)["attributes"] == before["attributes"]


@pytest.mark.parametrize("bad", [True, 1.5, "2", None, -1])
def test_steps_are_a_whole_number(bad: Any) -> None:
    with pytest.raises(ValueError, match="steps must be a whole number of at least 1, but is"):
        core(steps=bad)


@pytest.mark.parametrize(
    ("use", "error", "sentence"),
    [
        (lambda m: ac.adapt(m, "cor"), LookupError,
         r"no method 'cor'; did you mean 'core'\? the known ones are 'source', 'tbn', 'alpha_bn'"),
        (lambda m: ac.adapt(m, "zzz"), LookupError, "no method 'zzz'; the known ones are 'source'"),
        (lambda m: ac.adapt(m, "core", alpah=1), TypeError,
         r"Core has no option 'alpah'; did you mean 'alpha'\? the known ones are .*'lr'"),
        (lambda m: ac.Core(m), ValueError, r"Core needs alpha, the weight of the source.*0\.9"),
        (lambda m: ac.AlphaBN(m), ValueError, r"AlphaBN needs alpha"),
        (lambda m: ac.TBN(m, alpha=0.5), ValueError,
         r"alpha=0\.5 was given, but TBN has alpha 0: leave it out, or use AlphaBN"),
        (lambda m: ac.Source(m, alpha=0), ValueError, r"alpha=0 was given, but Source has alpha 1"),
    ],
)  # fmt: skip
def test_refusals_of_methods(use: Any, error: type[Exception], sentence: str) -> None:
    model = net()
    with pytest.raises(error, match=sentence):
        use(model)
    assert_equal(fresh(model)["values"], fresh(net())["values"])
    core(model)  # nothing holds it


def test_a_user_made_optimizer() -> None:
    seen: list[list[Tensor]] = []

    def make(parameters: list[Tensor]) -> torch.optim.Optimizer:
        seen.append(parameters)
        return torch.optim.RMSprop(parameters, lr=1e-3)

    adapter = core(optimizer=make)
    first = run(adapter, batches())
    assert [p.shape for p in seen[0]] == [(8,), (8,), (16,), (16,)]
    adapter.reset()
    assert_equal(run(adapter, batches()), first)
    assert (run(core(), batches())[-1] - first[-1]).abs().max() > 0


def test_options_reach_the_optimiser() -> None:
    """Each of them changes the third answer."""
    answers = [
        run(core(**options), batches())[-1]
        for options in (
            {}, {"lr": 1e-2}, {"betas": (0.5, 0.9)}, {"steps": 2}, {"temperature": 1.0},
            {"mix": "var"}, {"optimizer": "sgd", "lr": 1.0},
            {"optimizer": "sgd", "lr": 1.0, "momentum": 0.1},
            {"optimizer": "sgd", "lr": 1.0, "nesterov": True},
        )
    ]  # fmt: skip
    for i, one in enumerate(answers):
        for other in answers[:i]:
            assert (one - other).abs().max() > 1e-7
