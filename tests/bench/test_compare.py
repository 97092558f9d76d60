from __future__ import annotations

import pytest
import torch
from torch import Tensor

from acclimate.bench.compare import Contender, compare
from acclimate.models.small import SmallNet


@pytest.fixture
def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (40, 3, 16, 16), generator=generator, dtype=torch.uint8)


def model() -> SmallNet:
    torch.manual_seed(0)
    return SmallNet(classes=4, width=4).eval()


def test_counts_by_image_in_the_order_of_the_set(images: Tensor) -> None:
    answers = model()(images.float() / 255).argmax(1)
    labels = answers.clone()
    labels[[2, 7]] = (labels[[2, 7]] + 1) % 4
    (record,) = compare([Contender("source").make(model())], images, labels, batch=16, seed=3)
    assert record.wrong.nonzero()[0].tolist() == [2, 7]


def test_every_set_starts_afresh_and_company_changes_nothing(images: Tensor) -> None:
    labels = torch.zeros(40, dtype=torch.long)
    tent = Contender("tent", {"alpha": 0.0, "lr": 0.1}).make(model())
    first = compare([tent], images, labels, batch=20)[0].entropy
    assert first[0] != first[1]
    others = [Contender("source").make(model()), tent]
    assert compare(others, images, labels, batch=20)[1].entropy == first


def test_the_time_of_a_smaller_last_batch_is_left_out(images: Tensor) -> None:
    labels = torch.zeros(40, dtype=torch.long)
    calls: list[None] = []
    (record,) = compare(
        [Contender("source").make(model())],
        images,
        labels,
        batch=16,
        progress=lambda: calls.append(None),
    )
    assert len(record.entropy) == len(calls) == 3
    assert len(record.seconds_per_image) == 2


def test_the_model_itself_is_left_alone(images: Tensor) -> None:
    source = model()
    before = source(images.float() / 255)
    tbn = Contender("tbn").make(source)
    compare([tbn], images, torch.zeros(40, dtype=torch.long), batch=20)
    assert torch.equal(source(images.float() / 255), before)
