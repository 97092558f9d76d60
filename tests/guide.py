"""The Python blocks of README and docs, and the method that the guide writes."""

import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import acclimate as ac

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A fenced block of Python: its page, the line of the page above its first, its text."""

    page: Path
    line: int
    source: str

    def padded(self) -> str:
        """The text with the page's line numbers, so that a traceback points into the page."""
        return "\n" * self.line + self.source


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(page, text.count("\n", 0, m.start(1)), m.group(1)) for m in found]


@cache
def method_of_the_guide() -> type[ac.Adapter]:
    """The class of write-a-method.md, in a module of its own, as a user's file would be."""
    block = blocks(ROOT / "docs" / "guide" / "write-a-method.md")[0]
    module = ModuleType("method_of_the_guide")
    sys.modules[module.__name__] = module  # where pickle looks for the class
    exec(compile(block.padded(), block.page, "exec"), module.__dict__)  # noqa: S102
    (method,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    )
    assert issubclass(method, ac.Adapter)
    return method
