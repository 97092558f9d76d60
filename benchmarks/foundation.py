"""WRN-40-2 on the CIFAR-10 test set under three corruptions: every method, and small batches.

    python benchmarks/foundation.py --data cifar10_test.npz --weights wrn_40_2_cifar10.safetensors

`--data` holds `images` (uint8, N x 3 x 32 x 32, in the set's own order) and `labels`. The stream is
in that order, and every adapter starts at the source for each corruption. One process a corruption:
at batch 1 a GPU waits for Python.

Gaussian noise comes in two draws: ours, and the very noise of `shared/golden`, so that the numbers
can be held against what was measured on that one. A draw moves an error by up to a point.
"""

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

import acclimate as ac
from acclimate.bench import results
from acclimate.data.corruptions import corrupt
from acclimate.models.wide_resnet import WideResNet

OURS, GOLDEN = "acclimate, seed 0", "published recipe, numpy seed 5"
JOBS = [(name, OURS) for name in ("gaussian_noise", "glass_blur", "fog")]
JOBS += [("gaussian_noise", GOLDEN)]
SEVERITY, BATCH, FIRST = 5, 200, 2000
MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
STD = torch.tensor([0.2471, 0.2435, 0.2616]).view(3, 1, 1)

METHODS: list[tuple[str, dict[str, Any]]] = [
    ("source", {}),
    ("tbn", {}),
    *(("alpha_bn", {"alpha": alpha}) for alpha in (0.1, 0.3, 0.5, 0.7, 0.9)),
    *((name, {"alpha": 0.0, "temperature": t}) for name in ("tent", "core") for t in (1.0, 2.5)),
]
SMALL: list[tuple[str, dict[str, Any], int]] = [
    (*method, batch)
    for method in (("tbn", {}), ("alpha_bn", {"alpha": 0.5}))
    for batch in (1, 16, 200)
]


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/foundation.json"))
    arguments = parser.parse_args()
    conditions = results.conditions(
        seeds=[0],
        data="CIFAR-10 test set, corrupted by acclimate.data.corruptions but where `draw` differs",
        weights="wrn_40_2_cifar10.safetensors",
    )
    jobs = [(*job, arguments.data, arguments.weights) for job in JOBS]
    rows: list[results.Row] = []
    with multiprocessing.get_context("spawn").Pool(len(jobs)) as pool:
        for part in pool.imap(_measure, jobs):
            rows += part
            results.write(
                arguments.out, {"name": "foundation", "conditions": conditions, "rows": rows}
            )


def _measure(job: tuple[str, str, Path, Path]) -> list[results.Row]:
    corruption, draw, data, weights = job
    torch.set_num_threads(2)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    file = np.load(data)
    clean = torch.from_numpy(file["images"])
    images = corrupt(clean, corruption, SEVERITY) if draw == OURS else _golden_noise(clean)
    x = ((images / 255 - MEAN) / STD).to(device)
    y = torch.from_numpy(file["labels"]).to(device)
    model = WideResNet(40, 2).eval()
    model.load_state_dict(load_file(weights))
    model.to(device)
    rows = []
    for method, options in METHODS:
        rows.append(_row(method, options, "batch", BATCH, model, x, y))
    part = (x[:FIRST], y[:FIRST])
    rows += [
        _row(method, options, statistics, batch, model, *part)
        for method, options, batch in (SMALL if draw == OURS else ())
        for statistics in ("batch", "stream")
    ]
    rows = [{"corruption": corruption, "draw": draw, **row} for row in rows]
    for row in rows:
        print(row, flush=True)
    return rows


def _golden_noise(clean: Tensor) -> Tensor:
    random = np.random.RandomState(5)
    pixels = clean.permute(0, 2, 3, 1).numpy() / 255
    noisy = np.clip(pixels + random.normal(size=pixels.shape, scale=0.1), 0, 1) * 255
    return torch.from_numpy(noisy.astype(np.uint8)).permute(0, 3, 1, 2)


def _row(
    method: str,
    options: dict[str, Any],
    statistics: str,
    batch: int,
    model: torch.nn.Module,
    x: Tensor,
    y: Tensor,
) -> results.Row:
    start = time.perf_counter()
    with ac.adapt(model, method, statistics=statistics, **options) as adapter:
        adapter.counts.advised = True  # that the batch is small is what is measured here
        wrong = [int((adapter(xs).argmax(1) != ys).sum()) for xs, ys in _batches(x, y, batch)]
        alpha = adapter.options["alpha"]
    return {
        "dataset": "CIFAR-10-C",
        "severity": SEVERITY,
        "model": "wrn-40-2",
        "training": "standard",
        "method": method,
        "alpha": alpha,
        "temperature": options.get("temperature"),
        "statistics": statistics,
        "batch": batch,
        "stream": "iid",
        "metric": "error",
        "value": round(100 * sum(wrong) / len(y), 3),
        "count": len(y),
        "seed": 0,
        "seconds": round(time.perf_counter() - start, 1),
    }


def _batches(x: Tensor, y: Tensor, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(x.split(batch), y.split(batch), strict=True)


if __name__ == "__main__":
    main()
