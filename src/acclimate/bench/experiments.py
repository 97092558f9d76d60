"""What is measured of methods on one set and its corruptions: each function answers with rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor, nn

from .compare import Contender, Record, compare
from .metrics import bootstrap, error, wilson
from .progress import stage
from .results import MEAN, Row

__all__ = ["Setting", "alpha_curve", "batch_curve", "comparison"]

Rows = list[Row]


@dataclass(frozen=True)
class Setting:
    """A source model, and the same images clean and corrupted: name -> uint8 (N, 3, H, W)."""

    model: nn.Module
    labels: Tensor
    sets: dict[str, Tensor]
    severity: int
    seed: int
    console: Console

    def row(self, experiment: str, corruption: str, batch: int) -> Row:
        """What every row of a corruption says."""
        return {
            "experiment": experiment,
            "dataset": "digits-c",
            "corruption": corruption,
            "severity": 0 if corruption == "clean" else self.severity,
            "model": "small",
            "training": "standard",
            "stream": "iid",
            "batch": batch,
            "seed": self.seed,
        }


def comparison(setting: Setting, contenders: Sequence[Contender], batch: int) -> Rows:
    """Measures errors, entropy over the stream and time, every method reset for each set."""
    records = _records(setting, contenders, list(setting.sets), batch, len(setting.labels))
    rows = _errors(setting, "comparison", contenders, records, batch)
    for contender, of_sets in zip(contenders, records, strict=True):
        for name, record in of_sets.items():
            values = {"value": float(np.mean(record.entropy)), "by_batch": record.entropy}
            rows.append(
                setting.row("entropy", name, batch)
                | contender.labels()
                | {"metric": "entropy", **values}
            )
    return rows + _times(setting, contenders, records, batch)


def alpha_curve(setting: Setting, alphas: Sequence[float], batch: int, images: int) -> Rows:
    """Measures alpha-BN's error from the batch's statistics (0) to the source's (1)."""
    contenders = [Contender("alpha_bn", {"alpha": alpha}) for alpha in alphas]
    records = _records(setting, contenders, list(setting.sets), batch, images)
    return _errors(setting, "alpha", contenders, records, batch)


def batch_curve(
    setting: Setting, batches: Sequence[int], corruptions: Sequence[str], images: int
) -> Rows:
    """Measures the error by batch size, with the batch's own statistics and with carried ones."""
    contenders = [Contender("source")] + [
        Contender(method, {**options, "statistics": statistics})
        for method, options in (("tbn", {}), ("alpha_bn", {"alpha": 0.5}))
        for statistics in ("batch", "stream")
    ]
    rows: Rows = []
    for batch in batches:
        with warnings.catch_warnings():
            # A handful of images is what is measured here; elsewhere the warning is right.
            warnings.simplefilter("ignore", UserWarning)
            records = _records(setting, contenders, list(corruptions), batch, images)
        rows += _errors(setting, "batch", contenders, records, batch)
    return rows


def _records(
    setting: Setting, contenders: Sequence[Contender], names: list[str], batch: int, images: int
) -> list[dict[str, Record]]:
    """What each contender answered on each of the named sets."""
    adapters = [contender.make(setting.model) for contender in contenders]
    records: list[dict[str, Record]] = [{} for _ in adapters]
    labels = setting.labels[:images]
    title = f"{len(adapters)} variants, {len(names)} sets, batch {batch}"
    with stage(setting.console, title, len(names)) as advance:
        for name in names:
            pixels = setting.sets[name][:images]
            answered = compare(adapters, pixels, labels, batch=batch, seed=setting.seed)
            for record, of_sets in zip(answered, records, strict=True):
                of_sets[name] = record
            advance()
    for adapter in adapters:
        adapter.release()
    return records


def _errors(
    setting: Setting,
    experiment: str,
    contenders: Sequence[Contender],
    records: Sequence[dict[str, Record]],
    batch: int,
) -> Rows:
    """A row a set, and one of the mean over the corrupted sets."""
    rows: Rows = []
    for contender, of_sets in zip(contenders, records, strict=True):
        labels = contender.labels() | {"metric": "error"}
        for name, record in of_sets.items():
            wrong, count = int(record.wrong.sum()), len(record.wrong)
            low, high = wilson(wrong, count)
            values = {"value": error(wrong, count), "low": low, "high": high, "count": count}
            rows.append(setting.row(experiment, name, batch) | labels | values)
        shifted = [record.wrong for name, record in of_sets.items() if name != "clean"]
        rows.append(setting.row(experiment, MEAN, batch) | labels | _mean(np.stack(shifted)))
    return rows


def _mean(wrong: NDArray[np.bool_]) -> dict[str, float]:
    low, high = bootstrap(wrong)
    return {"value": 100 * float(wrong.mean()), "low": low, "high": high, "count": wrong.size}


def _times(
    setting: Setting,
    contenders: Sequence[Contender],
    records: Sequence[dict[str, Record]],
    batch: int,
) -> Rows:
    """The median time of a whole batch, divided by its images, and its ratio to Source's."""
    medians = [
        float(np.median([second for record in of.values() for second in record.seconds_per_image]))
        for of in records
    ]
    source = next(
        median for c, median in zip(contenders, medians, strict=True) if c.method == "source"
    )
    return [
        setting.row("time", MEAN, batch)
        | contender.labels()
        | {"metric": "ms_per_image", "value": 1000 * median, "overhead": median / source}
        for contender, median in zip(contenders, medians, strict=True)
    ]
