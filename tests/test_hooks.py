"""What a user's method answers wrongly is said in a sentence."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate as ac
from networks import Net


class Mine(ac.Adapter):
    default_alpha = 0.5
    answer: Any = None
    selection: Any = None

    def select(self, logits: Tensor) -> Any:
        return self.selection

    def loss(self, logits: Tensor, mask: Tensor | None) -> Any:
        return self.answer


def adapt(**hooks: Any) -> None:
    adapter = Mine(Net())
    vars(adapter).update(hooks)
    adapter(torch.randn(16, 3, 8, 8))


@pytest.mark.parametrize("loss", [torch.ones(16), 1.0])
def test_a_loss_is_one_number(loss: Any) -> None:
    with pytest.raises(TypeError, match=r"must return a 0-dim tensor, but returned .*: reduce it"):
        adapt(answer=loss)


@pytest.mark.parametrize("mask", [[True], torch.ones(16)])
def test_a_selection_is_boolean(mask: Any) -> None:
    with pytest.raises(TypeError, match="must return a boolean tensor, or None for all samples"):
        adapt(selection=mask)


@pytest.mark.parametrize("make", [lambda _: None, torch.optim.LBFGS])
def test_an_optimiser_steps_without_a_closure(make: Any) -> None:
    with pytest.raises(TypeError, match=r"steps without a closure, but made a (NoneType|LBFGS)"):
        ac.Tent(Net(), optimizer=make)


class Wide(nn.Module):
    """A float16 network whose head answers in float32, with a gradient that float16 cannot hold."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net().half()
        nn.init.normal_(self.net.fc.weight, std=1e-2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x).float()
        return logits


def test_losses_of_float16_networks_are_scaled_whatever_the_logits() -> None:
    torch.manual_seed(0)
    model = Wide()
    adapter = ac.Tent(model, optimizer="sgd", lr=1.0, momentum=0.0)
    before = [copy.clone() for copy in adapter.trained.copies]  # type: ignore[union-attr]
    adapter(torch.randn(256, 3, 16, 16).half())
    after = adapter.trained.copies  # type: ignore[union-attr]
    moved = torch.cat([(a - b).flatten() for a, b in zip(after, before, strict=True)])
    assert (moved != 0).all()
