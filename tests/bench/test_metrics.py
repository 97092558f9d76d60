from __future__ import annotations

import numpy as np
import pytest

from acclimate.bench.metrics import bootstrap, error, wilson


def test_wilson_is_the_published_interval() -> None:
    # Newcombe (1998), table I: 81 of 263.
    low, high = wilson(81, 263)
    assert (low, high) == pytest.approx((25.53, 36.62), abs=0.01)


@pytest.mark.parametrize("wrong", [0, 1, 50, 99, 100])
def test_wilson_holds_the_rate_and_stays_a_percentage(wrong: int) -> None:
    low, high = wilson(wrong, 100)
    assert 0 <= low <= error(wrong, 100) <= high + 1e-9
    assert high <= 100 + 1e-9


def test_bootstrap_keeps_what_an_image_does_to_all_conditions() -> None:
    by_image = np.random.default_rng(0).random(400) < 0.3
    one, many = bootstrap(by_image[None]), bootstrap(np.tile(by_image, (15, 1)))
    assert one == pytest.approx(many)  # 15 copies of one answer tell no more than one
    low, high = wilson(int(by_image.sum()), 400)
    assert one == pytest.approx((low, high), abs=0.7)


def test_bootstrap_is_the_same_for_a_seed() -> None:
    wrong = np.random.default_rng(0).random((3, 50)) < 0.5
    assert bootstrap(wrong) == bootstrap(wrong)
    assert bootstrap(wrong) != bootstrap(wrong, seed=1)


@pytest.mark.parametrize(("wrong", "count"), [(0, 0), (3, 2), (-1, 5)])
def test_impossible_counts_are_refused(wrong: int, count: int) -> None:
    with pytest.raises(ValueError, match=rf"{wrong} wrong of {count}: an error rate needs"):
        wilson(wrong, count)


@pytest.mark.parametrize("shape", [(5,), (0, 5), (2, 0)])
def test_a_bootstrap_of_nothing_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"answers of shape .*\(conditions, images\).*stack"):
        bootstrap(np.zeros(shape, dtype=bool))
