"""The README's tables and picture are what `make tables` makes of the kept results."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_tables_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
    tables = pytest.importorskip("tables", reason="no benchmarks beside the tests")
    text = (ROOT / "README.md").read_text()
    assert tables.rendered(text) == text, "run `make tables`"
    sys.modules.pop("tables")
