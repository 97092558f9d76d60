from __future__ import annotations

import json
from pathlib import Path

import pytest

from acclimate.bench import results

ROW = {"dataset": "digits-c", "method": "tbn", "metric": "error", "value": 12.5}


def result(*rows: results.Row) -> results.Result:
    conditions = results.conditions(seeds=[0], data="digits", weights="trained here")
    return {"name": "demo", "conditions": conditions, "rows": list(rows)}


def test_survives_the_way_to_the_disk_and_back(tmp_path: Path) -> None:
    written = result(ROW, ROW | {"value": None, "alpha": 0.5})
    results.write(tmp_path / "new" / "demo.json", written)
    assert results.read(tmp_path / "new" / "demo.json") == written
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["demo.json"]


def test_gathers_the_conditions_itself() -> None:
    conditions = result()["conditions"]
    assert list(conditions) == [
        "command", "commit", "date", "hardware", "versions", "seeds", "data", "weights",
    ]  # fmt: skip
    assert set(conditions["versions"]) == {"python", "acclimate", "torch", "numpy"}
    assert all(conditions.values())


def test_a_row_is_a_line_so_that_changes_show() -> None:
    assert sum('"tbn"' in line for line in results.to_json(result(ROW, ROW)).splitlines()) == 2


def test_a_row_without_its_metric_is_refused() -> None:
    row = {key: value for key, value in ROW.items() if key != "metric"}
    with pytest.raises(ValueError, match=r"has no metric: every row of a result states .*; add"):
        results.to_json(result(row))


def test_a_number_that_is_not_finite_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    results.write(path, result(ROW))
    with pytest.raises(ValueError, match=r"not finite: .*nan.*leave out the row"):
        results.write(path, result(ROW | {"value": float("nan")}))
    assert results.read(path)["rows"] == [ROW]


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    path.write_text('{"name": "demo", ')
    with pytest.raises(ValueError, match=r"demo\.json is not JSON .*measure again, or restore"):
        results.read(path)


@pytest.mark.parametrize("content", [[], {"name": "demo"}])
def test_another_file_is_refused(content: object, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="is no result: one holds a name, conditions and rows"):
        results.read(path)


def test_the_command_tells_no_path_from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/opt/bin/acclimate", "demo", "--out", "/home/me/runs/five"])
    command = results.conditions(seeds=[0], data="-", weights="-")["command"]
    assert command == "acclimate demo --out five"
