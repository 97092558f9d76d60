"""The comparison as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ..report.style import NAMES
from .results import MEAN, Row

__all__ = ["summary"]


def summary(rows: Sequence[Row]) -> Table:
    """One line a method: clean and corrupted error, where it is worse than Source, and its time."""
    errors = {
        (row["method"], row["corruption"]): row for row in rows if row["experiment"] == "comparison"
    }
    times = {row["method"]: row for row in rows if row["experiment"] == "time"}
    names = [name for method, name in errors if method == "source" and name != MEAN]
    table = Table(
        title=f"Error in %, severity {errors['source', MEAN]['severity']}",
        caption="worse: on how many of the sets (clean among them) Source errs less",
    )
    table.add_column("method")
    for heading in ("clean", "corrupted", "95 %", "worse", "ms/image", "overhead"):
        table.add_column(heading, justify="right", no_wrap=True)
    for method, time in times.items():
        mean = errors[method, MEAN]
        worse = sum(
            errors[method, name]["value"] > errors["source", name]["value"] for name in names
        )
        table.add_row(
            NAMES[method],
            f"{errors[method, 'clean']['value']:.1f}",
            f"{mean['value']:.1f}",
            f"{mean['low']:.1f} - {mean['high']:.1f}",
            f"{worse} of {len(names)}",
            f"{time['value']:.3f}",
            f"{time['overhead']:.2f} x",
        )
    return table
