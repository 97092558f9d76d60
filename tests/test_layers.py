"""One calibrated layer: what a subclass's forward takes, empty inputs, derivatives, copies."""

import copy

import pytest
import torch
from torch import Tensor, nn

import acclimate as ac
from networks import Net


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_the_input_may_be_named(alpha: float) -> None:
    layer = ac.alpha_bn(nn.BatchNorm2d(3), alpha)
    x = torch.randn(4, 3, 5, 5)
    torch.testing.assert_close(layer(input=x), layer(x), rtol=0, atol=0)


class Scaled(nn.BatchNorm2d):
    def forward(self, input: Tensor, scale: float = 1.0) -> Tensor:  # noqa: A002
        return scale * super().forward(input)


def test_a_subclass_may_take_more_than_its_input() -> None:
    layer = ac.alpha_bn(Scaled(3), 0.5)
    x = torch.randn(4, 3, 5, 5, requires_grad=True)
    torch.testing.assert_close(layer(x, scale=3.0), 3 * layer(x))
    with torch.no_grad():
        torch.testing.assert_close(layer(x, 3.0), 3 * layer(x))


def test_an_empty_batch_has_a_gradient_of_nothing() -> None:
    layer = ac.alpha_bn(nn.BatchNorm2d(3), 0.5)
    layer(torch.randn(0, 3, 8, 8)).sum().backward()
    assert layer.weight.grad is not None
    assert not layer.weight.grad.any()


def test_a_second_derivative_is_refused_for_alpha_too() -> None:
    alpha = torch.tensor(0.5, requires_grad=True)
    layer = ac.alpha_bn(nn.BatchNorm2d(3), alpha)
    loss = layer(3 * torch.randn(4, 3, 5, 5)).pow(3).mean()
    (first,) = torch.autograd.grad(loss, alpha, create_graph=True)
    with pytest.raises(TypeError, match="second derivative"):
        first.backward()


def test_an_alpha_with_a_graph_is_copied_with_its_value() -> None:
    logit = torch.tensor(0.3, requires_grad=True)
    model = ac.alpha_bn(Net(), torch.sigmoid(logit)).eval()
    x = torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(copy.deepcopy(model)(x), model(x), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # torch 2.10's dynamo does it
def test_one_value_a_channel_has_the_same_gradient_compiled() -> None:
    layer = ac.alpha_bn(nn.BatchNorm2d(3), 0.5)
    x = torch.randn(1, 3, 1, 1, requires_grad=True)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    gradients = [torch.autograd.grad(f(x).square().sum(), x)[0] for f in (layer, compiled)]
    torch.testing.assert_close(gradients[1], gradients[0])
