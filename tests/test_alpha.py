"""alpha in every form, and every refusal."""

import math
from typing import Any

import pytest
import torch
from torch import nn

import acclimate as ac
from networks import Shared, assert_close, assert_equal, clone, net, settle, shifted, snapshot

X = shifted(8, 3, 8, 8)


def alphas(model: nn.Module) -> list[Any]:
    return [row.alpha for row in ac.inspect(model)]


FORMS: dict[str, tuple[Any, list[Any]]] = {
    "number": (0.3, [0.3, 0.3]),
    "integer": (0, [0.0, 0.0]),
    "one": (1, [1.0, 1.0]),
    "tensor": (torch.tensor(0.25), [0.25, 0.25]),
    "prior": (ac.prior(16), ["prior(16)", "prior(16)"]),
    "path": ({"bn2": 0.3}, [1.0, 0.3]),
    "glob": ({"bn*": 0.3}, [0.3, 0.3]),
    "character class": ({"bn[13]": 0.3}, [0.3, 1.0]),
    "last match wins": ({"*": 0.3, "bn1": 0.1}, [0.1, 0.3]),
    "order of the mapping": ({"bn1": 0.1, "*": 0.3}, [0.3, 0.3]),
    "empty mapping": ({}, [1.0, 1.0]),
    "mapping of forms": ({"bn1": ac.prior(4), "bn2": torch.tensor(0.5)}, ["prior(4)", 0.5]),
    "list": ([0.1, 0.2], [0.1, 0.2]),
    "tuple of forms": ((ac.prior(2.5), torch.tensor(0.5)), ["prior(2.5)", 0.5]),
}


@pytest.mark.parametrize(("alpha", "expected"), FORMS.values(), ids=list(FORMS))
def test_every_form(alpha: Any, expected: list[Any]) -> None:
    model = ac.alpha_bn(net(), alpha)
    assert alphas(model) == expected
    numbers = [value if isinstance(value, float) else None for value in expected]
    if None not in numbers:
        one_by_one = ac.alpha_bn(net(), numbers)
        assert_close(model(X), one_by_one(X))
    adapter = ac.AlphaBN(net(), alpha=alpha, statistics="stream")
    assert alphas(adapter.model) == expected
    assert adapter(X).isfinite().all()


def test_globs_cross_dots_and_the_root_is_empty() -> None:
    inner = nn.Sequential(nn.BatchNorm2d(3), nn.Sequential(nn.BatchNorm2d(3)))
    model = nn.Sequential(nn.BatchNorm2d(3), inner)
    assert alphas(ac.alpha_bn(model, {"1*": 0.5})) == [1.0, 0.5, 0.5]
    assert alphas(ac.alpha_bn(model, {"1.1.0": 0.5})) == [1.0, 1.0, 0.5]
    assert alphas(ac.alpha_bn(model, {"*.0": 0.5})) == [1.0, 0.5, 0.5]
    root = settle(nn.BatchNorm2d(3))
    assert alphas(ac.alpha_bn(root, {"": 0.5})) == [0.5]
    assert alphas(ac.alpha_bn(root, {"*": 0.4})) == [0.4]
    assert alphas(ac.alpha_bn(root, [0.2])) == [0.2]


def test_globs_heed_the_case_of_letters() -> None:
    with pytest.raises(LookupError, match="alpha names 'BN1'"):
        ac.alpha_bn(net(), {"BN1": 0.5})


@pytest.mark.parametrize("glob", ["norm", "again", "aga*"])
def test_a_shared_layer_answers_to_each_of_its_paths(glob: str) -> None:
    torch.manual_seed(0)
    model = settle(Shared())
    expected = ac.alpha_bn(clone(model), 0.5)(X)
    assert_equal(ac.alpha_bn(model, {glob: 0.5})(X), expected)
    assert alphas(model) == [0.5]  # one layer, one row, one value of a sequence
    assert_equal(ac.alpha_bn(model, [0.5])(X), expected)


def test_globs_leave_out_what_torch_compile_adds() -> None:
    model: Any = torch.compile(net(), backend="eager")
    assert [row.path for row in ac.inspect(model)] == ["bn1", "bn2"]
    assert alphas(ac.alpha_bn(model, {"bn1": 0.5})) == [0.5, 1.0]


def test_layers_without_a_match_stay_at_the_source_bit_for_bit() -> None:
    model, seen = net(), []
    model.get_submodule("bn1").register_forward_hook(lambda m, i, y: seen.append(y.detach()))
    model(X)
    ac.alpha_bn(model, {"bn2": 0.0})(X)
    assert_equal(seen[1], seen[0])


def test_a_tensor_takes_the_mixed_path_even_at_1() -> None:
    alpha = torch.tensor(1.0, requires_grad=True)
    model = net()
    expected = model(X)
    found = ac.alpha_bn(model, alpha)(X)
    assert_close(found, expected)
    (slope,) = torch.autograd.grad(found.square().sum(), alpha)
    assert slope.abs() > 0


def test_a_tensor_can_be_learnt_and_state_dict_does_not_know_it() -> None:
    model = net()
    alpha = [torch.tensor(0.5, requires_grad=True) for _ in range(2)]
    keys = list(model.state_dict()), [name for name, _ in model.named_parameters()]
    ac.alpha_bn(model, alpha)
    optimizer = torch.optim.SGD(alpha, lr=0.01)
    first = None
    for _ in range(20):
        loss = ac.functional.entropy(model(X))
        first = loss.item() if first is None else first
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for value in alpha:
                value.clamp_(0, 1)
    assert loss.item() < first  # type: ignore[operator]
    assert (list(model.state_dict()), [name for name, _ in model.named_parameters()]) == keys
    assert alphas(model) == [value.item() for value in alpha]


def test_half_precision_and_float64_tensors_are_alphas_too() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        y = ac.alpha_bn(net(), torch.tensor(0.5, dtype=dtype))(X)
        assert y.dtype == torch.float32
        assert_close(y, ac.alpha_bn(net(), 0.5)(X))


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "above": (1.5, ValueError, r"alpha is 1\.5, but must lie in \[0, 1\]: 1 is the source"),
    "below": (-0.1, ValueError, r"alpha is -0\.1, but must lie in \[0, 1\]"),
    "nan": (math.nan, ValueError, r"alpha is nan, but must lie in \[0, 1\]"),
    "tensor above": (torch.tensor(2.0), ValueError, r"alpha is 2\.0, but must lie"),
    "tensor nan": (torch.tensor(math.nan), ValueError, r"alpha is nan, but must lie"),
    "vector": (torch.tensor([0.5]), ValueError, r"0-dim, but is torch\.float32 of shape \(1,\)"),
    "whole tensor": (torch.tensor(1), ValueError, r"floating point and 0-dim, but is torch\.int64"),
    "string": ("auto", TypeError, r"alpha is 'auto', but must be a number in \[0, 1\].*prior\(N\)"),
    "other string": ("0.9", TypeError, r"alpha is '0\.9', but must be a number"),
    "none": (None, TypeError, r"alpha is None, but must be a number"),
    "bool": (True, TypeError, r"alpha is True, but must be a number"),
    "in a mapping": ({"bn1": 3}, ValueError, r"alpha is 3\.0"),
    "in a list": ([0.5, -1], ValueError, r"alpha is -1\.0"),
    "nested": ([[0.5], 0.5], TypeError, r"alpha is \[0\.5\], but must be"),
    "no match": ({"bn9": 0.5}, LookupError, r"'bn9', which matches no layer.*'bn1', 'bn2'"),
    "one of two": ({"*": 0.5, "fc": 0.5}, LookupError, "alpha names 'fc', which matches no layer"),
    "short": ([0.5], ValueError, r"alpha has 1 values, but the model has 2 layers.*inspect\(model"),
    "long": ([0.5] * 3, ValueError, r"alpha has 3 values, but the model has 2 layers"),
}


@pytest.mark.parametrize(("alpha", "error", "sentence"), BAD.values(), ids=list(BAD))
def test_every_refusal_leaves_the_model_as_it_was(
    alpha: Any, error: type[Exception], sentence: str
) -> None:
    model = net()
    before = snapshot(model)
    with pytest.raises(error, match=sentence):
        ac.alpha_bn(model, alpha)
    if alpha is not None:
        with pytest.raises(error, match=sentence):
            ac.Core(model, alpha=alpha)
        with pytest.raises(error, match=sentence):
            ac.recalibrate(model, [X], alpha=alpha)
    after = snapshot(model)
    assert after["classes"] == before["classes"]
    assert after["attributes"] == before["attributes"]
    ac.alpha_bn(model, 0.5)
    expected = model(X)
    with pytest.raises(error, match=sentence):
        ac.alpha_bn(model, alpha)
    assert_equal(model(X), expected)


@pytest.mark.parametrize(
    ("samples", "error", "sentence"),
    [
        (0, ValueError, "prior takes a number of samples above 0, such as 16, but got 0"),
        (-3, ValueError, "but got -3"),
        (math.nan, ValueError, "but got nan"),
        (math.inf, ValueError, "but got inf"),
        ("16", TypeError, "prior takes a number of samples, such as 16, but got '16'"),
        (True, TypeError, "but got True"),
    ],
)
def test_prior_refuses(samples: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        ac.prior(samples)


def test_prior_is_n_over_n_plus_the_batch() -> None:
    assert ac.prior(16)(16) == 0.5
    assert ac.prior(16)(48) == 0.25
    assert ac.prior(10)(0) == 1.0
    assert_close(ac.alpha_bn(net(), ac.prior(16))(X), ac.alpha_bn(net(), 16 / 24)(X))
    assert repr(ac.prior(16)) == "prior(16)"


def test_mix_must_be_known() -> None:
    model = net()
    before = snapshot(model)
    with pytest.raises(ValueError, match=r"mix must be one of 'std', 'var', but is 'mean'"):
        ac.alpha_bn(model, 0.5, mix="mean")
    assert snapshot(model)["classes"] == before["classes"]
