"""A result as one HTML file that needs nothing else: no network, no script, no second file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..bench.results import MEAN, Result
from ..extras import require
from . import pictures
from .style import COLOURS, DARK, LIGHT, NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Draw = Callable[[], tuple[Figure, Axes]]

__all__ = ["headline", "render"]


def render(result: Result, samples: Mapping[str, Tensor]) -> str:
    """Shows the demo's result: its numbers, its pictures and the conditions they hold under.

    Args:
        result: As bench.results writes it.
        samples: A few images of each set, uint8 (N, 3, H, W), by name.
    """
    rows = result["rows"]
    drawn: dict[str, Draw] = {
        "samples": lambda: pictures.samples(samples),
        "errors": lambda: pictures.errors(rows),
        "by_corruption": lambda: pictures.errors_by_corruption(rows),
        "alpha": lambda: pictures.alpha_curve(rows),
        "batch": lambda: pictures.batch_curve(rows),
        "entropy": lambda: pictures.entropy(rows),
    }
    jinja2 = require("jinja2", "report")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(
        (files(__package__) / "page.html").read_text(encoding="utf-8")
    )
    html: str = template.render(
        result=result,
        pictures={name: _both(draw) for name, draw in drawn.items()},
        colours=COLOURS,
        names=NAMES,
        **_tables(rows),
    )
    return html


def headline(result: Result) -> str:
    """The SVG of the mean error a method, for a README."""
    return _svg(lambda: pictures.errors(result["rows"]), LIGHT)


def _tables(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the template lists: cells by method and set, the sets, and a line a method."""
    cells = {
        (row["method"], row["corruption"]): row for row in rows if row["experiment"] == "comparison"
    }
    methods = list(dict.fromkeys(method for method, _ in cells))
    sets = [name for name in dict.fromkeys(name for _, name in cells) if name != MEAN]
    worse = {
        method: [s for s in sets if cells[method, s]["value"] > cells["source", s]["value"]]
        for method in methods
    }
    return {
        "cells": cells,
        "methods": methods,
        "sets": sets,
        "least": {s: min(cells[m, s]["value"] for m in methods) for s in sets},
        "mean": MEAN,
        "worse": worse,
        "times": {row["method"]: row for row in rows if row["experiment"] == "time"},
    }


def _both(draw: Draw) -> dict[str, str]:
    """The picture for light and for dark pages, as addresses that hold it."""
    return {
        name: "data:image/svg+xml;base64," + b64encode(_svg(draw, style).encode()).decode()
        for name, style in (("light", LIGHT), ("dark", DARK))
    }


def _svg(draw: Draw, style: dict[str, object]) -> str:
    with require("matplotlib", "report").rc_context(style):
        figure, _ = draw()
        file = BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue().decode()
