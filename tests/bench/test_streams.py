from __future__ import annotations

import torch

from acclimate.bench.streams import stream


def test_every_image_arrives_once_with_its_own_label_and_the_last_batch_is_kept() -> None:
    images, labels = torch.arange(10)[:, None], torch.arange(10)
    parts = list(stream(images, labels, batch=4, seed=1))
    assert [len(part.labels) for part in parts] == [4, 4, 2]
    assert sorted(torch.cat([part.labels for part in parts]).tolist()) == list(range(10))
    for part in parts:
        assert torch.equal(part.images[:, 0], part.labels)
        assert torch.equal(part.places, part.labels)


def test_the_seed_alone_orders_it() -> None:
    def order(seed: int) -> list[int]:
        labels = torch.arange(50)
        return [int(i) for part in stream(labels, labels, batch=7, seed=seed) for i in part.labels]

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0) != list(range(50))
