"""Live bars on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

__all__ = ["stage"]


@contextmanager
def stage(console: Console, title: str, total: int) -> Iterator[Callable[[], None]]:
    """Shows a stage of `total` steps; what it yields is called after each of them.

    Example:
        >>> with stage(Console(quiet=True), "counting", 3) as advance:
        ...     for _ in range(3):
        ...         advance()
    """
    start = time.perf_counter()
    if console.is_terminal:
        columns = (
            TextColumn("{task.description:<44}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as bars:
            task = bars.add_task(title, total=total)
            yield lambda: bars.advance(task)
    else:
        yield lambda: None
    seconds = time.perf_counter() - start
    console.print(f"{title:<44} [dim]{seconds:5.1f} s[/dim]", highlight=False)
