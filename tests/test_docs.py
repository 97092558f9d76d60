"""Every Python block of README and docs runs, and shows what it really prints, warns and raises.

The blocks of a page share a namespace, in order. Conventions of the pages:

- comment lines after a `print` are its output;
- comment lines after a statement that begin with the name of an error are that error;
- a comment that begins with the name of a warning is a warning of its block, and there is no other.

In errors and warnings "..." stands for anything.
"""

import ast
import contextlib
import io
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import acclimate as ac
from guide import PAGES, ROOT, Block, blocks, method_of_the_guide

OF_AN_EXTRA = {"onnx", "onnxruntime", "onnxscript", "timm", "torchvision"}
SHORT = {"README.md", "index.md"}
"""Pages that do not define what they use: they find a model and batches."""

TORCHS_OWN = (
    r"`torch\.jit\.",  # its compiler calls what it deprecates
    "The given buffer is not writable",  # torch.export.load of 2.10
    r"`isinstance\(treespec, LeafSpec\)`",  # torch.onnx.export of 2.10
)

RAISES = re.compile(r"(\w+Error): (.*)")
WARNS = re.compile(r"(\w+Warning): (.*)")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem
)
def test_the_blocks_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # for the files that a page writes
    namespace = {"__name__": "page", **(given() if page.name in SHORT else {})}
    for block in blocks(page):
        try:
            run(block, namespace)
        except ModuleNotFoundError as error:
            if error.name not in OF_AN_EXTRA:
                raise
            pytest.skip(f"{error.name} is not installed: the page from line {block.line} on")


def test_every_page_of_the_guide_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert page.relative_to(ROOT / "docs").as_posix() in navigation


def test_pages_are_ascii() -> None:
    for page in PAGES:
        assert page.read_text(encoding="utf-8").isascii(), page


def test_the_method_of_the_guide_has_options_of_its_own() -> None:
    method: Any = method_of_the_guide()
    with pytest.raises(ValueError, match=r"share must lie above 0 and at most at 1, but is 2\."):
        method(given()["model"], share=2)
    adapter = method(given()["model"], share=0.5)
    mask = adapter.select(torch.randn(16, 10))
    assert mask is not None
    assert mask.sum() == 8
    assert "share=0.5" in repr(adapter)


def test_the_method_of_the_guide_refuses_the_file_of_another_share(tmp_path: Path) -> None:
    method: Any = method_of_the_guide()
    method(given()["model"], share=0.5).save(tmp_path / "state.safetensors")
    with pytest.raises(ValueError, match=r"share=0\.5, but this adapter has share=0\.7"):
        method(given()["model"], share=0.7).load(tmp_path / "state.safetensors")


def given() -> dict[str, Any]:
    """What a short page may take for granted: a trained network and what goes into it."""
    torch.manual_seed(0)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), *head)
    batches = list(torch.randn(3, 32, 3, 32, 32))
    x = batches[0]
    names = {"model": model.eval(), "x": x, "batches": batches, "frames": x[:4].split(1)}
    return {"ac": ac, "torch": torch, **names}


def run(block: Block, namespace: dict[str, Any]) -> None:
    tree, where = ast.parse(block.padded()), f"{block.page.name}:{block.line}"
    lines = block.padded().split("\n")
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        for torchs_own in TORCHS_OWN:
            warnings.filterwarnings("ignore", message=torchs_own)
        for statement in tree.body:
            execute(statement, block, namespace, lines)
    assert printed.getvalue().split("\n")[:-1] == list(outputs(tree, lines)), where
    expected = [m for i in range(len(lines)) if (m := WARNS.match(comment(lines, i)))]
    assert len(caught) == len(expected), [where, *map(str, caught)]
    for warning, shown in zip(caught, expected, strict=True):
        assert warning.category.__name__ == shown[1], where
        assert_shown(str(warning.message), shown[2], where)


def execute(statement: ast.stmt, block: Block, namespace: dict[str, Any], lines: list[str]) -> None:
    """One statement, which raises what the comment below it says, or nothing."""
    code = compile(ast.Module([statement], []), block.page, "exec")
    where = f"{block.page.name}:{statement.lineno}"
    shown = RAISES.match(comment(lines, statement.end_lineno or 0))
    if shown is None:
        exec(code, namespace)  # noqa: S102
        return
    with pytest.raises((Exception,)) as error:
        exec(code, namespace)  # noqa: S102
    assert error.typename == shown[1], where
    assert_shown(str(error.value), shown[2], where)


def assert_shown(text: str, shown: str, where: str) -> None:
    pattern = ".*".join(map(re.escape, shown.split("...")))
    assert re.fullmatch(pattern, " ".join(text.split())), f"{where}: {text}"


def comment(lines: list[str], first: int) -> str:
    """The comment that begins in the line with this index, joined into one line."""
    return " ".join(comment_lines(lines, first))


def comment_lines(lines: list[str], first: int) -> Iterable[str]:
    for line in lines[first:]:
        text = line.strip()
        if not text.startswith("# "):
            return
        yield text.removeprefix("# ")


def outputs(tree: ast.Module, lines: list[str]) -> Iterable[str]:
    """What the page says is printed."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    prints = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    for call in sorted(prints, key=lambda call: call.lineno):
        yield from comment_lines(lines, call.end_lineno or 0)
