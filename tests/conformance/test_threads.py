"""Threads that share a calibrated model agree with one thread: a forward writes nothing."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import acclimate as ac
from conformance.table import FAMILIES, Family, over_families
from networks import assert_equal, run, snapshot


@over_families
def test_four_threads_agree_with_one(family: Family) -> None:
    model = ac.alpha_bn(family.model(), 0.5)
    stream = [family.batch(n, seed) for seed in range(25) for n in (2, 3, 5, 8)]

    def gradient(x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(model(x).square().sum(), x)[0]

    with torch.no_grad():
        expected = [model(x) for x in stream]
    gradients = [gradient(x) for x in stream]
    before = snapshot(model)

    def answer(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():  # a thread's own mode
            y: torch.Tensor = model(x)
            return y

    with ThreadPoolExecutor(4) as threads:
        assert_equal(list(threads.map(answer, stream)), expected)
        assert_equal(list(threads.map(gradient, stream)), gradients)
    snapshot_after = snapshot(model)
    assert snapshot_after["attributes"] == before["attributes"]
    assert snapshot_after["training"] == before["training"]
    assert_equal(snapshot_after["values"], before["values"])


@pytest.mark.parametrize("family", FAMILIES[:2], ids=str)
def test_four_threads_may_predict_with_one_adapter(family: Family) -> None:
    adapter = ac.Core(family.model(), alpha=0.5, statistics="stream")
    run(adapter, family.stream())
    stream = [family.batch(n, seed) for seed in range(25) for n in (2, 3, 5, 8)]
    expected = [adapter.predict(x) for x in stream]
    with ThreadPoolExecutor(4) as threads:
        assert_equal(list(threads.map(adapter.predict, stream)), expected)
