"""An adapter adds no memory that grows with the stream."""

import gc
from pathlib import Path

import pytest
import torch
from torch import nn

import acclimate as ac
from conformance.table import METHODS, Row
from networks import settle

STATUS = Path("/proc/self/status")


def resident() -> int:
    """This process's memory in KiB."""
    lines = STATUS.read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def tiny() -> nn.Module:
    torch.manual_seed(0)
    return settle(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))


@pytest.mark.parametrize("row", METHODS, ids=str)
def test_no_tensor_stays_behind_a_batch(row: Row) -> None:
    adapter = row.on(tiny())
    adapter(torch.randn(16, 4))
    before = tensors()
    for _ in range(100):
        adapter(torch.randn(16, 4))
        adapter.predict(torch.randn(16, 4))
    assert tensors() <= before


@pytest.mark.skipif(not STATUS.exists(), reason="reads /proc")
def test_memory_is_flat_over_20000_batches() -> None:
    adapter = ac.Core(tiny(), alpha=0.5, statistics="stream", check=False)
    x = torch.randn(4, 4)
    for _ in range(2000):
        adapter(x)
    before, held = resident(), tensors()
    for _ in range(20_000):
        adapter(x)
    assert adapter.counts["batches"] == 22_000
    assert tensors() <= held
    assert resident() - before < 4096  # 0.2 KiB a batch would show; the allocator's noise does not
