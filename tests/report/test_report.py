from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from acclimate.bench.results import Result, Row
from acclimate.report import page, pictures
from acclimate.report.style import COLOURS, NAMES

pytest.importorskip("matplotlib", reason="the extra `report` is not installed")

SETS = ("clean", "fog", "jpeg_compression", "mean")


def row(experiment: str, method: str, corruption: str, **more: Any) -> Row:
    base = {"experiment": experiment, "method": method, "corruption": corruption, "severity": 3}
    interval = {"value": 20.0, "low": 18.0, "high": 23.0, "alpha": 0.5, "batch": 64}
    return base | interval | {"statistics": "batch", "dataset": "digits-c"} | more


@pytest.fixture
def result() -> Result:
    rows = [row("comparison", method, name) for method in NAMES for name in SETS]
    rows += [row("entropy", method, name, by_batch=[0.5, 0.4]) for method in NAMES for name in SETS]
    rows += [row("time", method, "mean", overhead=1.0) for method in NAMES]
    rows += [row("alpha", "alpha_bn", name, alpha=a) for name in SETS for a in (0.0, 1.0)]
    rows += [
        row("batch", "tbn", "mean", batch=b, statistics=s)
        for b in (1, 64)
        for s in ("batch", "stream")
    ]
    rows += [row("batch", "source", "mean", batch=b) for b in (1, 64)]
    conditions = {"command": "<script>alert(1)</script>", "seeds": [0], "versions": {"torch": "2"}}
    return {"name": "demo", "conditions": conditions, "rows": rows}


@pytest.fixture
def samples() -> dict[str, torch.Tensor]:
    return {name: torch.zeros(2, 3, 16, 16, dtype=torch.uint8) for name in SETS[:3]}


@pytest.mark.parametrize(
    "draw",
    [
        pictures.errors,
        pictures.errors_by_corruption,
        pictures.alpha_curve,
        pictures.batch_curve,
        pictures.entropy,
    ],
)
def test_a_picture_draws_on_its_own_or_on_given_axes(
    draw: Callable[..., Any], result: Result
) -> None:
    from matplotlib.figure import Figure

    figure, ax = draw(result["rows"])
    assert ax.figure is figure
    own = Figure()
    given = own.subplots()
    assert draw(result["rows"], ax=given) == (own, given)


def test_methods_keep_their_colour(result: Result) -> None:
    from matplotlib.colors import to_hex

    _, ax = pictures.entropy(result["rows"])
    assert {line.get_label(): to_hex(line.get_color()) for line in ax.get_lines()} == {
        NAMES[method]: colour for method, colour in COLOURS.items()
    }


def test_a_picture_of_nothing_is_refused(result: Result) -> None:
    rows = [row for row in result["rows"] if row["experiment"] != "alpha"]
    with pytest.raises(ValueError, match=r"no rows with experiment 'alpha': measure them"):
        pictures.alpha_curve(rows)


def test_the_page_needs_nothing_else(result: Result, samples: dict[str, torch.Tensor]) -> None:
    html = page.render(result, samples)
    addresses = re.findall(r'(?:src|href|srcset)="([^"]{0,20})', html)
    assert len(addresses) == 12  # six pictures, for light and for dark
    assert all(address.startswith("data:image/svg+xml") for address in addresses)
    assert "url(" not in html
    assert "http" not in re.sub(r'"data:[^"]*"', "", html)


def test_the_page_shows_conditions_and_executes_none_of_them(
    result: Result, samples: dict[str, torch.Tensor]
) -> None:
    html = page.render(result, samples)
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "jpeg compression" in html


def test_the_page_marks_what_is_worse_than_source(
    result: Result, samples: dict[str, torch.Tensor]
) -> None:
    for cell in result["rows"]:
        if (cell["method"], cell["corruption"]) == ("core", "fog"):
            cell["value"] = 22.0
    html = page.render(result, samples)
    assert re.findall(r'class="[^"]*worse">([\d.]+)<', html) == ["22.0"]


def test_pictures_are_the_same_in_every_run(result: Result) -> None:
    assert page.headline(result) == page.headline(result)


def test_matplotlib_is_imported_only_to_draw() -> None:
    code = "import sys; import acclimate.report.page; print('matplotlib' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
