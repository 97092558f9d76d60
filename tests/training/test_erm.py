from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from acclimate.models.small import SmallNet
from acclimate.training.erm import erm


@pytest.fixture
def blobs() -> tuple[Tensor, Tensor]:
    """Two classes: bright in the left or in the right half."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 2
    images = torch.randint(0, 80, (64, 3, 16, 16), generator=generator, dtype=torch.uint8)
    images[labels == 0, :, :, :8] += 150
    images[labels == 1, :, :, 8:] += 150
    return images, labels


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return SmallNet(classes=2, width=4)


def test_learns_and_leaves_the_model_in_eval(blobs: tuple[Tensor, Tensor]) -> None:
    images, labels = blobs
    model = erm(net(), images, labels, epochs=15, batch=16)
    assert not model.training
    assert (model(images.float() / 255).argmax(1) == labels).float().mean() > 0.95


def test_is_the_same_for_a_seed(blobs: tuple[Tensor, Tensor]) -> None:
    def weights(seed: int) -> Tensor:
        model = erm(net(), *blobs, epochs=2, batch=16, seed=seed)
        return torch.cat([p.flatten() for p in model.parameters()])

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_tells_its_progress_and_leaves_out_the_rest_of_an_epoch(
    blobs: tuple[Tensor, Tensor],
) -> None:
    calls: list[tuple[int, int, float]] = []
    erm(net(), *blobs, epochs=2, batch=30, progress=lambda *call: calls.append(call))
    assert [call[:2] for call in calls] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert all(loss > 0 for _, _, loss in calls)


def test_too_few_images_are_refused(blobs: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(
        ValueError, match=r"64 images do not fill a batch of 128: lower batch to 64"
    ):
        erm(net(), *blobs, epochs=1)


def test_labels_of_another_length_are_refused(blobs: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(ValueError, match="64 images came with 63 labels: give one for each"):
        erm(net(), blobs[0], blobs[1][1:], epochs=1)
