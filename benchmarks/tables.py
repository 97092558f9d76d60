"""Makes the README's tables and picture from benchmarks/results, so that they cannot drift.

    python benchmarks/tables.py

Each table stands in README.md between `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from acclimate.bench import results
from acclimate.report.page import headline
from acclimate.report.style import NAMES

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "pictures" / "demo.svg"

Row = dict[str, Any]


def main() -> None:
    """Rewrite what changed."""
    README.write_text(rendered(README.read_text()))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture())


def rendered(text: str) -> str:
    """The README's text with every table made anew."""
    for name, table in TABLES.items():
        pattern = rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)"
        text, count = re.subn(pattern, rf"\g<1>{table()}\g<2>", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"README.md has {count} places for the table {name!r}: give it one.")
    return text


def picture() -> str:
    """The demo's errors, as the README opens with them."""
    return headline(results.read(RESULTS / "demo.json"))


def demo() -> str:
    """The demo: errors with intervals, and the time."""
    result = results.read(RESULTS / "demo.json")
    rows = [row for row in result["rows"] if row["experiment"] == "comparison"]
    errors = {(row["method"], row["corruption"]): row for row in rows}
    times = {row["method"]: row for row in result["rows"] if row["experiment"] == "time"}
    body = []
    for method, time in times.items():
        mean = errors[method, results.MEAN]
        interval = f"{mean['value']:.1f} [{mean['low']:.1f}, {mean['high']:.1f}]"
        clean = f"{errors[method, 'clean']['value']:.1f}"
        label = f"{NAMES[method]} {mean['alpha']:g}" if method == "alpha_bn" else NAMES[method]
        body.append([label, clean, interval, f"{time['overhead']:.2f}"])
    head = ["", "clean", "15 corruptions [95 %]", "time against Source"]
    return _table(head, body) + _conditions(result)


def foundation() -> str:
    """Every method on three corruptions at batch 200."""
    result = results.read(RESULTS / "foundation.json")
    rows = [row for row in result["rows"] if row["count"] == 10000]
    columns = list(dict.fromkeys((row["corruption"], row["draw"]) for row in rows))
    lines: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows:
        label = NAMES[row["method"]]
        label += f" {row['alpha']:g}" if row["method"] == "alpha_bn" else ""
        label += f", temperature {row['temperature']:g}" if row["temperature"] else ""
        lines.setdefault(label, {})[row["corruption"], row["draw"]] = row["value"]
    golden = columns[-1]
    names = [
        name.replace("_", " ") + (" (b)" if (name, d) == golden else "") for name, d in columns
    ]
    body = [
        [label, *(f"{values[column]:.1f}" for column in columns)] for label, values in lines.items()
    ]
    return _table(["error in %", *names], body) + _conditions(result)


def small_batches() -> str:
    """Own and carried statistics at three sizes of batch."""
    result = results.read(RESULTS / "foundation.json")
    rows = [row for row in result["rows"] if row["count"] == 2000]
    body = []
    for method, statistics in dict.fromkeys((row["method"], row["statistics"]) for row in rows):
        chosen = [r for r in rows if (r["method"], r["statistics"]) == (method, statistics)]
        label = f"{NAMES[method]}{' 0.5' if method == 'alpha_bn' else ''}, `{statistics}`"
        means = (_mean(r["value"] for r in chosen if r["batch"] == batch) for batch in (1, 16, 200))
        body.append([label, *(f"{mean:.1f}" for mean in means)])
    return _table(["error in %", "batch 1", "16", "200"], body) + _conditions(result)


def speed() -> str:
    """Medians over the plain network's, and a step's over published Tent's."""
    result = results.read(RESULTS / "speed-cpu.json")
    groups: dict[tuple[str, str, int], dict[tuple[str, str], float]] = {}
    for row in result["rows"]:
        group = groups.setdefault((row["network"], row["layout"], row["batch"]), {})
        group[row["variant"], row["form"]] = row["median_ms"]
    body = []
    for (network, layout, _), ms in groups.items():
        first = next(iter(ms.values()))
        for variant, time in ms.items():
            if variant in VARIANTS:
                body.append([network, layout, VARIANTS[variant], f"{time / first:.2f}"])
    return _table(["network", "layout", "", "ratio"], body) + _conditions(result)


VARIANTS = {
    ("peer", ""): "the usual way (`var_mean`, then `batch_norm` in a wrapper)",
    ("tbn", ""): "`alpha_bn(model, 0.0)`",
    ("alpha_bn", ""): "`alpha_bn(model, 0.9)`",
    ("alpha_bn_carried", "adapt"): "`AlphaBN(..., statistics='stream')`, adapting",
    ("alpha_bn_carried", "predict"): "the same, `predict`",
    ("tent_step", "acclimate"): "a step of `Tent`, over published Tent's",
    ("core_step", "acclimate"): "a step of `Core`, over published Tent's",
}
TABLES: dict[str, Callable[[], str]] = {
    "demo": demo,
    "foundation": foundation,
    "small-batches": small_batches,
    "speed": speed,
}


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("--:" for _ in head[1:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *body))


def _conditions(result: results.Result) -> str:
    c = result["conditions"]
    versions = ", ".join(f"{name} {version}" for name, version in c["versions"].items())
    seeds = ", ".join(map(str, c["seeds"]))
    return (
        f"\n{c['hardware']}; {versions}; seed {seeds}; {c['data']}; weights: {c['weights']}; "
        f"{c['date'][:10]}, `benchmarks/results/{result['name']}.json`.\n"
    )


if __name__ == "__main__":
    main()
