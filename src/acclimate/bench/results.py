"""A measured table with the conditions under which it was measured, in one JSON file.

`{"name": ..., "conditions": {...}, "rows": [...]}`: the conditions are gathered here and never
typed by hand; every row says what tells it apart from the others.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch

from .. import __version__
from ..state import write_atomically

__all__ = ["MEAN", "Result", "Row", "conditions", "read", "to_json", "write"]

MEAN = "mean"
"""The corruption of a row that holds the mean over all of them, the clean images left out."""

Row = dict[str, Any]


class Result(TypedDict):
    """What a file of results holds."""

    name: str
    conditions: dict[str, Any]
    rows: list[Row]


ROW_KEYS = ("dataset", "method", "metric", "value")


def conditions(*, seeds: Sequence[int], data: str, weights: str) -> dict[str, Any]:
    """Gathers the conditions of a measurement made now, by this process.

    Args:
        seeds: Of everything random in it.
        data: Which data, and where they came from.
        weights: Which network, and where its weights came from.

    Example:
        >>> conditions(seeds=[0], data="digits", weights="trained here")["seeds"]
        [0]
    """
    return {
        "command": _command(),
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": _hardware(),
        "versions": {
            "python": platform.python_version(),
            "acclimate": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "seeds": list(seeds),
        "data": data,
        "weights": weights,
    }


def to_json(result: Result) -> str:
    """The file's text, after a look at the rows.

    Raises:
        ValueError: a row lacks what every row has, or holds a number that JSON cannot.
    """
    for row in result["rows"]:
        missing = [key for key in ROW_KEYS if key not in row]
        if missing:
            raise ValueError(
                f"the row {row} has no {' and no '.join(missing)}: every row of a result states "
                f"{', '.join(ROW_KEYS)}; add what is missing"
            )
    rows = ",\n  ".join(_line(row) for row in result["rows"])  # a line a row: changes show as such
    return (
        f'{{"name": {_line(result["name"])},\n "conditions": {_line(result["conditions"])},\n'
        f' "rows": [\n  {rows}\n ]}}\n'
    )


def _line(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise ValueError(
            f"a result holds a number that is not finite: {value}; leave out the row of a "
            "measurement that failed"
        ) from error


def write(path: Path, result: Result) -> None:
    """Writes the result so that the file is the old one or the new one, and never half of it."""
    write_atomically(path, to_json(result).encode())


def read(path: Path) -> Result:
    """Reads a result.

    Raises:
        ValueError: the file is no result.
    """
    try:
        result: Result = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error}): measure again, or restore it") from error
    if not isinstance(result, dict) or not {"name", "conditions", "rows"} <= result.keys():
        raise ValueError(f"{path} is no result: one holds a name, conditions and rows")
    return result


def _command() -> str:
    """The command line; of a path from the root only the name, which is no business of readers."""
    words = (Path(word).name if word.startswith("/") else word for word in sys.argv)
    return shlex.join(words)


def _commit() -> str:
    """The commit of this very file; an installed wheel has none, whatever folder it lies in.

    A checkout that was copied without its history is told by ACCLIMATE_COMMIT.
    """
    here = Path(__file__).resolve()
    if _git(here.parent, "ls-files", here.name) != here.name:
        return os.environ.get("ACCLIMATE_COMMIT", "none: not run from a checkout")
    dirty = "-dirty" if _git(here.parent, "status", "--porcelain", "--untracked-files=no") else ""
    return f"{_git(here.parent, 'rev-parse', 'HEAD')}{dirty}"


def _git(folder: Path, *arguments: str) -> str:
    program = shutil.which("git")
    if program is None:
        return ""
    run = subprocess.run(  # noqa: S603 (fixed arguments, no shell)
        [program, "-C", str(folder), *arguments], capture_output=True, text=True, check=False
    )
    return run.stdout.strip()


def _hardware() -> str:
    parts = [_processor(), f"{torch.get_num_threads()} of {os.cpu_count()} threads"]
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_device_name())
    return ", ".join(parts)


def _processor() -> str:
    info = Path("/proc/cpuinfo")  # platform.processor() is empty on most Linux systems
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
