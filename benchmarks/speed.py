"""Speed on this machine: acclimate beside the plain network and beside the usual way of writing it.

    python benchmarks/speed.py [--runs 15] [--threads 2] [--out benchmarks/results/speed-cpu.json]

All variants of a group run in turn, so that whatever else the machine does falls on all of them;
what counts is the ratio of medians. Run it on an idle machine.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peers
import timm
import torch
import torchvision
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

import acclimate as ac
from acclimate.bench import results

Call = Callable[[Tensor], Any]
LAYOUTS = {"NCHW": torch.contiguous_format, "channels_last": torch.channels_last}
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet50": torchvision.models.resnet50,
    "efficientnet_b0": lambda: timm.create_model("efficientnet_b0"),
}
ALPHA = 0.9
METHODS = {
    "plain": "source",
    "peer": "alpha_bn",
    "tbn": "tbn",
    "alpha_bn": "alpha_bn",
    "alpha_bn_carried": "alpha_bn",
    "tent_step": "tent",
    "core_step": "core",
}
FIRST = {("plain", ""), ("tent_step", "published")}
"""What the others of a group are held against."""


def main() -> None:
    """Measure every group, print the ratios, keep the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/speed-cpu.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    conditions = results.conditions(seeds=[0], data="standard normal noise", weights="random")
    rows: list[results.Row] = []
    for name, build in NETWORKS.items():
        for layout in LAYOUTS:
            rows += _group(name, build, layout, "inference", 16, arguments.runs)
    for layout in LAYOUTS:
        rows += _group("resnet50", NETWORKS["resnet50"], layout, "step", 8, arguments.runs)
    results.write(arguments.out, {"name": "speed-cpu", "conditions": conditions, "rows": rows})
    _show(rows)
    print(f"{arguments.out} holds the rows and their conditions.")


def _group(
    network: str, build: Callable[[], nn.Module], layout: str, kind: str, batch: int, runs: int
) -> list[results.Row]:
    model = build().eval().to(memory_format=LAYOUTS[layout])
    x = torch.randn(batch, 3, 224, 224).to(memory_format=LAYOUTS[layout])
    calls = _inference(model) if kind == "inference" else _steps(model)
    seconds = _interleaved(calls, x, runs, f"{network} {layout} {kind}")
    return [_row(network, layout, x, variant, times) for variant, times in seconds.items()]


def _inference(model: nn.Module) -> dict[str, Call]:
    """The plain network twice: what the second differs by is noise."""
    carried = ac.AlphaBN(copy.deepcopy(model), alpha=ALPHA, statistics="stream")
    calls: dict[str, Call] = {
        "plain": model,
        "plain, a copy": copy.deepcopy(model),
        "peer": peers.alpha_bn(copy.deepcopy(model), ALPHA),
        "tbn": ac.alpha_bn(copy.deepcopy(model), 0.0),
        "alpha_bn": ac.alpha_bn(copy.deepcopy(model), ALPHA),
        "alpha_bn_carried, adapt": carried,
        "alpha_bn_carried, predict": carried.predict,
    }
    return {name: torch.no_grad()(call) for name, call in calls.items()}


def _steps(model: nn.Module) -> dict[str, Call]:
    return {
        "tent_step, published": peers.tent(copy.deepcopy(model)),
        "tent_step, acclimate": _quiet(ac.Tent(copy.deepcopy(model))),
        "core_step, acclimate": _quiet(ac.Core(copy.deepcopy(model), alpha=ALPHA)),
    }


def _quiet(adapter: ac.Adapter) -> ac.Adapter:
    adapter.counts.advised = True  # a batch of 8 is small, and meant to be
    return adapter


def _interleaved(
    calls: dict[str, Call], x: Tensor, runs: int, title: str
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for run in track(range(runs + 2), title):
        for name, call in calls.items():
            start = time.perf_counter()
            call(x)
            if run >= 2:  # the first two warm up
                seconds[name].append(time.perf_counter() - start)
    return seconds


def _row(network: str, layout: str, x: Tensor, call: str, times: list[float]) -> results.Row:
    variant, _, form = call.partition(", ")
    ms = sorted(1000 * seconds for seconds in times)
    quarter = len(ms) // 4
    return {
        "dataset": "noise",
        "method": METHODS[variant],
        "metric": "milliseconds",
        "value": round(statistics.median(ms), 2),
        "network": network,
        "device": "cpu",
        "dtype": "float32",
        "layout": layout,
        "batch": len(x),
        "shape": list(x.shape[1:]),
        "mode": "eager",
        "variant": variant,
        "form": form,
        "median_ms": round(statistics.median(ms), 2),
        "minimum_ms": round(ms[0], 2),
        "spread_ms": round(ms[-1 - quarter] - ms[quarter], 2),
        "peak_gib": None,
        "runs": len(ms),
    }


def _show(rows: list[results.Row]) -> None:
    table = Table("network", "layout", "batch", "variant", "ms", "ratio", title="CPU, eager")
    first: results.Row = {}
    for row in rows:
        if (row["variant"], row["form"]) in FIRST:
            first = row
            table.add_section()
        ratio = row["median_ms"] / first["median_ms"]
        variant = f"{row['variant']} {row['form']}"
        cells = (row["network"], row["layout"], row["batch"], variant, row["median_ms"])
        table.add_row(*map(str, cells), f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
