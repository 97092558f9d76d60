"""The published implementations and the paper's equations, figure by figure, in float64."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import acclimate as ac
from networks import Net, assert_close

SGD = {"optimizer": "sgd", "momentum": 0.9}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "source_eval": ("source", {}),
    "norm_no_stats": ("tbn", {}),
    "tent_adam_1e-3": ("tent", {"lr": 1e-3}),
    "tent_adam_1e-3_steps3": ("tent", {"steps": 3}),
    "tent_adam_1e-3_episodic": ("tent", {"episodic": True}),
    "tent_adam_1e-3_episodic_steps3": ("tent", {"episodic": True, "steps": 3}),
    "tent_sgd_nesterov_1e-2": ("tent", {**SGD, "lr": 1e-2, "nesterov": True}),
    "tent_sgd_2.5e-4": ("tent", {**SGD, "lr": 2.5e-4}),
    **{
        f"eq34_{name}_alpha{alpha}": ("alpha_bn", {"alpha": alpha, "mix": mix})
        for name, mix in (("std_epsin", "std"), ("var", "var"))
        for alpha in (0.0, 0.5, 0.7, 0.9, 1.0)
    },
    **{
        f"core_alpha{alpha}_mean_gradstats": ("core", {"alpha": alpha, "temperature": 1.0})
        for alpha in (0.7, 0.9)
    },
}


@pytest.fixture(scope="module")
def figures(fixtures: Path) -> Any:
    return torch.load(fixtures / "tiny_bn_f64.pt", weights_only=True)


def source(figures: Any) -> nn.Module:
    model = Net().double()
    model.load_state_dict(figures["state_dict"])
    return model.eval()


@pytest.mark.filterwarnings(r"ignore:\d+ samples are few")  # the last batch is ragged: seven
@pytest.mark.parametrize("name", RUNS)
def test_parity(figures: Any, name: str) -> None:
    method, options = RUNS[name]
    run = figures["runs"][name]
    adapter = ac.adapt(source(figures), method, **options)
    after = run.get("affine_after")
    for i, (x, expected) in enumerate(zip(figures["inputs"], run["logits"], strict=True)):
        assert_close(adapter(x), expected, 1e-9)
        if after is not None:
            for path, value in after[i].items():
                assert_close(adapter.model.get_parameter(path).detach(), value, 1e-9)


@pytest.mark.parametrize("name", [name for name in RUNS if RUNS[name][0] in ("tbn", "alpha_bn")])
def test_parity_of_the_function(figures: Any, name: str) -> None:
    _, options = RUNS[name]
    model = ac.alpha_bn(source(figures), **{"alpha": 0.0, **options})
    for x, expected in zip(figures["inputs"], figures["runs"][name]["logits"], strict=True):
        assert_close(model(x), expected, 1e-9)
        with torch.no_grad():
            assert_close(model(x), expected, 1e-9)


@pytest.mark.parametrize(
    ("name", "equal"),
    [("eq34_std_epsin_alpha0.9", "eq34_var_alpha0.9"), ("tent_adam_1e-3", "norm_no_stats")],
)
def test_the_figures_tell_the_variants_apart(figures: Any, name: str, equal: str) -> None:
    one, other = (torch.cat(figures["runs"][n]["logits"]) for n in (name, equal))
    assert (one - other).abs().max() > 1e-4
