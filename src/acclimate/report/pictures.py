"""Pictures of a result's rows.

Each draws on `ax`, or on a figure of its own, and answers with the figure and the axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import Tensor

from ..bench.results import MEAN
from ..extras import require
from .style import COLOURS, NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["alpha_curve", "batch_curve", "entropy", "errors", "errors_by_corruption", "samples"]

Rows = Sequence[Mapping[str, Any]]


def samples(sets: Mapping[str, Tensor], ax: Axes | None = None) -> tuple[Figure, Axes]:
    """The first images of each set, a column a set; uint8 (N, 3, H, W)."""
    figure, ax = _axes(ax, width=10, height=2.9)
    columns = [np.concatenate(list(images.permute(0, 2, 3, 1).numpy())) for images in sets.values()]
    ax.imshow(np.concatenate(columns, axis=1), interpolation="nearest")
    width = columns[0].shape[1]
    ax.set_xticks([width * (i + 0.5) for i in range(len(sets))], map(_plain, sets))
    ax.tick_params(axis="x", labelrotation=40, length=0)
    for label in ax.get_xticklabels():
        label.set_horizontalalignment("right")
        label.set_rotation_mode("anchor")
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return figure, ax


def errors(rows: Rows, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """The mean error of each method over the corruptions, and on clean images."""
    figure, ax = _axes(ax, width=7, height=3)
    chosen = _select(rows, "comparison", corruption=MEAN)
    clean = {row["method"]: row["value"] for row in _select(rows, "comparison", corruption="clean")}
    for place, row in enumerate(chosen):
        ax.barh(place, row["value"], color=COLOURS[row["method"]], height=0.62)
        ax.errorbar(row["value"], place, xerr=_reach([row]), ecolor=COLOURS["source"], capsize=3)
        ax.plot(clean[row["method"]], place, marker="|", color="white", markersize=15, mew=2)
        ax.annotate(
            f"{row['value']:.1f} %",
            (row["high"], place),
            (6, 0),
            textcoords="offset points",
            va="center",
        )
    ax.set_yticks(range(len(chosen)), [NAMES[row["method"]] for row in chosen])
    ax.invert_yaxis()
    ax.set_xlabel("error in % over the corruptions, 95 % interval; white mark: on clean images")
    ax.set_xlim(0, 1.15 * max(row["high"] for row in chosen))
    ax.grid(visible=False, axis="y")
    return figure, ax


def errors_by_corruption(rows: Rows, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """The error of each method under each corruption, a dot each with its interval."""
    figure, ax = _axes(ax, width=9, height=6)
    chosen = _select(rows, "comparison")
    names = list(dict.fromkeys(row["corruption"] for row in chosen))
    methods = list(dict.fromkeys(row["method"] for row in chosen))
    for number, method in enumerate(methods):
        own = [row for row in chosen if row["method"] == method]
        shift = 0.13 * (number - (len(methods) - 1) / 2)
        ax.errorbar(
            [row["value"] for row in own],
            [names.index(row["corruption"]) + shift for row in own],
            xerr=_reach(own),
            fmt="o",
            markersize=4.5,
            elinewidth=1,
            color=COLOURS[method],
            label=NAMES[method],
        )
    ax.set_yticks(range(len(names)), map(_plain, names))
    ax.invert_yaxis()
    ax.set_xlabel("error in %")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(methods))
    return figure, ax


def alpha_curve(rows: Rows, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """alpha-BN's error by alpha: the mean over the corruptions, and each of them faintly."""
    figure, ax = _axes(ax, width=6, height=4)
    chosen = _select(rows, "alpha")
    for name in dict.fromkeys(row["corruption"] for row in chosen):
        own = sorted(_select(chosen, "alpha", corruption=name), key=lambda row: float(row["alpha"]))
        alphas, values = [row["alpha"] for row in own], [row["value"] for row in own]
        if name == MEAN:
            ax.plot(alphas, values, marker="o", color=COLOURS["alpha_bn"], label="mean")
        elif name == "clean":
            ax.plot(alphas, values, ls="--", color=COLOURS["source"], label="clean images")
        else:
            ax.plot(alphas, values, color=COLOURS["alpha_bn"], alpha=0.3, lw=1)
    ax.set_xlabel("alpha: 0 is the batch's statistics (T-BN), 1 the source's")
    ax.set_ylabel("error in %")
    ax.set_ylim(bottom=0)
    ax.legend()
    return figure, ax


def batch_curve(rows: Rows, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """The mean error by batch size, with the batch's own statistics and with carried ones."""
    figure, ax = _axes(ax, width=6, height=4)
    chosen = _select(rows, "batch", corruption=MEAN)
    labels = {"batch": "each batch's own", "stream": "carried over the stream"}
    for method, statistics in dict.fromkeys((r["method"], r["statistics"]) for r in chosen):
        own = [r for r in chosen if (r["method"], r["statistics"]) == (method, statistics)]
        source = method == "source"
        ax.plot(
            [row["batch"] for row in own],
            [row["value"] for row in own],
            color=COLOURS[method],
            marker="" if source else "o" if statistics == "batch" else "s",
            ls=":" if source else "--" if statistics == "batch" else "-",
            label=NAMES[method] + ("" if source else f", {labels[statistics]}"),
        )
    sizes = list(dict.fromkeys(row["batch"] for row in chosen))
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, map(str, sizes))
    ax.minorticks_off()
    ax.set_xlabel("images that arrive at once")
    ax.set_ylabel("error in %")
    ax.set_ylim(bottom=0)
    ax.legend(fontsize="small")
    return figure, ax


def entropy(rows: Rows, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """The mean entropy of each batch's predictions, one corruption after another."""
    figure, ax = _axes(ax, width=10, height=3.6)
    chosen = _select(rows, "entropy")
    names = list(dict.fromkeys(row["corruption"] for row in chosen))
    steps = len(chosen[0]["by_batch"])
    for method in dict.fromkeys(row["method"] for row in chosen):
        values = np.full((len(names), steps + 1), np.nan)  # the gap at the end breaks the line
        for row in _select(chosen, "entropy", method=method):
            values[names.index(row["corruption"]), :steps] = row["by_batch"]
        ax.plot(values.ravel(), color=COLOURS[method], label=NAMES[method], lw=1.4)
    ax.set_xticks([(steps + 1) * (i + 0.5) - 1 for i in range(len(names))], map(_plain, names))
    ax.tick_params(axis="x", labelrotation=40)
    for label in ax.get_xticklabels():
        label.set_horizontalalignment("right")
        label.set_rotation_mode("anchor")
    ax.grid(visible=False, axis="x")
    ax.set_ylabel("entropy in nats")
    ax.set_ylim(bottom=0)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=5)
    return figure, ax


def _axes(ax: Axes | None, *, width: float, height: float) -> tuple[Figure, Axes]:
    if ax is not None:
        return cast("Figure", ax.get_figure(root=True)), ax
    # Not pyplot: it would keep every figure alive, and choose a window system.
    figure = require("matplotlib.figure", "report").Figure((width, height), layout="constrained")
    return figure, figure.subplots()


def _select(rows: Rows, experiment: str, **wanted: str) -> list[Mapping[str, Any]]:
    wanted = {"experiment": experiment, **wanted}
    chosen = [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
    if not chosen:
        asked = ", ".join(f"{key} {value!r}" for key, value in wanted.items())
        raise ValueError(f"the result has no rows with {asked}: measure them, or draw another")
    return chosen


def _reach(rows: Iterable[Mapping[str, Any]]) -> list[list[float]]:
    rows = list(rows)
    return [[r["value"] - r["low"] for r in rows], [r["high"] - r["value"] for r in rows]]


def _plain(name: str) -> str:
    return name.replace("_", " ")
