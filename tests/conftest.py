"""What every test starts from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

FIXTURES = Path(__file__).parents[2] / "shared" / "fixtures"


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """The same random numbers in every test, alone or among others, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Where the published figures lie that parity is tested against."""
    if not FIXTURES.is_dir():
        pytest.skip(f"the parity figures are not at {FIXTURES}")
    return FIXTURES
