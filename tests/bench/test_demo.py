from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from acclimate.bench import demo, results

pytest.importorskip("mlxtend", reason="the extra `demo` is not installed")
pytest.importorskip("matplotlib", reason="the extra `demo` is not installed")

TINY = demo.Plan(
    epochs=1,
    test=80,
    corruptions=("brightness", "contrast"),
    batch=40,
    alphas=(0.0, 1.0),
    alpha_images=40,
    batches=(1, 20),
    batch_corruptions=("contrast",),
    batch_images=20,
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[results.Result, Path, str]:
    out, text = tmp_path_factory.mktemp("demo"), StringIO()
    console = Console(file=text, width=100)
    return demo.run(seed=1, severity=4, out=out, console=console, plan=TINY), out, text.getvalue()


def errors(result: results.Result) -> list[tuple[Any, ...]]:
    return [
        (row["experiment"], row["method"], row["corruption"], row["batch"], row["value"])
        for row in result["rows"]
        if row["experiment"] != "time"
    ]


def test_writes_its_three_files(ran: tuple[results.Result, Path, str]) -> None:
    result, out, _ = ran
    assert sorted(path.name for path in out.iterdir()) == [
        "demo.json",
        "errors.svg",
        "report.html",
    ]
    assert results.read(out / "demo.json") == result


def test_every_method_meets_every_set(ran: tuple[results.Result, Path, str]) -> None:
    met = {row[1:3] for row in errors(ran[0]) if row[0] == "comparison"}
    methods = ("source", "tbn", "alpha_bn", "tent", "core")
    sets = ("clean", "brightness", "contrast", "mean")
    assert met == {(method, name) for method in methods for name in sets}


def test_rows_say_what_they_are(ran: tuple[results.Result, Path, str]) -> None:
    for row in ran[0]["rows"]:
        assert row["severity"] == (0 if row["corruption"] == "clean" else 4)
        assert row["seed"] == 1
        if row["method"] in ("tent", "core"):
            assert row["alpha"] is not None
            assert row["temperature"] is not None


def test_source_costs_what_source_costs(ran: tuple[results.Result, Path, str]) -> None:
    overhead = {r["method"]: r["overhead"] for r in ran[0]["rows"] if r["experiment"] == "time"}
    assert overhead["source"] == 1
    assert all(value > 0 for value in overhead.values())


def test_source_does_not_know_of_batches(ran: tuple[results.Result, Path, str]) -> None:
    rows = [row for row in errors(ran[0]) if row[:2] == ("batch", "source")]
    assert len({row[4] for row in rows}) == 1


def test_prints_the_table_and_stages_without_a_terminal(
    ran: tuple[results.Result, Path, str],
) -> None:
    text = ran[2]
    for word in ("Training a small network", "Source", "alpha-BN", "overhead", "report.html"):
        assert word in text
    assert "\x1b" not in text


def test_json_prints_nothing_else_and_errors_repeat(
    ran: tuple[results.Result, Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = torch.get_num_threads()
    again = demo.run(seed=1, severity=4, out=tmp_path, json=True, plan=TINY)
    assert errors(again) == errors(ran[0])
    assert json.loads(capsys.readouterr().out) == again
    assert torch.get_num_threads() == threads


def test_a_wrong_severity_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="severity is 9"):
        demo.run(severity=9, out=tmp_path, console=Console(quiet=True), plan=TINY)
    assert not list(tmp_path.iterdir())
