"""alpha 1 is the source bit for bit; alpha 0 is BN in training."""

from typing import Any

import pytest
import torch
from torch import nn

import acclimate as ac
from conformance.table import BN2D, FAMILIES, FROZEN, SYNC, ZOO, Family, over_families
from networks import assert_close, assert_equal, clone, net

ONES: list[Any] = [1, 1.0, {"*": 1}, {}]


@pytest.mark.parametrize("family", [*FAMILIES, *ZOO], ids=str)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_alpha_1_is_the_source_bit_for_bit(family: Family, training: bool) -> None:
    model, x = family.model(), family.batch(4)
    expected = model(x).detach()
    norms = [m for m in model.modules() if hasattr(m, "running_mean")]
    for norm in norms:
        norm.train(training)
    for alpha in ONES:
        ac.alpha_bn(model, alpha)
        assert_equal(model(x).detach(), expected)
        with torch.no_grad():
            assert_equal(model(x), expected)


@over_families
def test_alpha_1_has_the_gradients_of_the_source_bit_for_bit(family: Family) -> None:
    model, x = family.model(), family.batch(4).requires_grad_()
    wanted = [x, *(p for p in model.parameters() if p.requires_grad)]
    expected = torch.autograd.grad(model(x).square().sum(), wanted)
    ac.alpha_bn(model, 1)
    assert_equal(torch.autograd.grad(model(x).square().sum(), wanted), expected)


@pytest.mark.parametrize("family", [f for f in [*FAMILIES, *ZOO] if f.torch_trains], ids=str)
def test_alpha_0_is_torchs_own_training_mode(family: Family) -> None:
    model, x = family.model(), family.batch(16)
    in_training = clone(model).train()
    expected = in_training(x)
    ac.alpha_bn(model, 0)
    assert_close(model(x), expected)
    with torch.no_grad():
        assert_close(model(x), expected)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.torch_trains], ids=str)
def test_alpha_0_has_the_gradients_of_torchs_own_training_mode(family: Family) -> None:
    model, x = family.model(), family.batch(16).requires_grad_()
    in_training = clone(model).train()
    expected = torch.autograd.grad(in_training(x).square().mean(), [x, *in_training.parameters()])
    ac.alpha_bn(model, 0)
    found = torch.autograd.grad(model(x).square().mean(), [x, *model.parameters()])
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("family", [SYNC, FROZEN], ids=str)
def test_layers_that_torch_cannot_train_on_a_cpu_agree_with_a_plain_one(family: Family) -> None:
    model, plain, x = family.model(), BN2D.model(), family.batch()
    plain.load_state_dict(model.state_dict(), strict=False)
    for alpha in (0.0, 0.6):
        expected = ac.alpha_bn(plain, alpha)(x)
        assert_close(ac.alpha_bn(model, alpha)(x), expected)
        with torch.no_grad():
            assert_close(model(x), expected)


@pytest.mark.parametrize("mix", ["std", "var"])
@over_families
def test_with_and_without_a_gradient_the_answer_is_the_same(family: Family, mix: str) -> None:
    model, x = ac.alpha_bn(family.model(), 0.4, mix=mix), family.batch()
    with torch.no_grad():
        expected = model(x)
    assert_close(model(x.requires_grad_()), expected)
    assert not torch.equal(expected, ac.restore(model)(x))


def test_without_affine_the_answer_is_that_of_weight_1_and_bias_0() -> None:
    bare, x = next(f for f in FAMILIES if f.name == "without-affine").model(), BN2D.batch()
    full = net()
    full.load_state_dict(bare.state_dict(), strict=False)
    for name in ("bn1", "bn2"):
        nn.init.ones_(full.get_parameter(f"{name}.weight"))
        nn.init.zeros_(full.get_parameter(f"{name}.bias"))
    assert_close(ac.alpha_bn(bare, 0.3)(x), ac.alpha_bn(full, 0.3)(x))
