"""What `import acclimate` costs, which way imports point, and what the project files promise."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "acclimate"

# DESIGN.md's chain: a room imports rooms of lower rows only.
CHAIN = [
    {"extras"},
    {"functional"},
    {"alpha", "statistics"},
    {"layers"},
    {"norm"},
    {"hold", "tuning"},
    {"options", "counts", "hooks"},
    {"trained", "inputs", "state"},
    {"adapter"},
    {"methods"},
    {"export", "guard"},
    {"bench"},
    {"cli"},
]
RANK = {room: rank for rank, rooms in enumerate(CHAIN) for room in rooms}
# These serve the benches: what adapts must not know them, and they must not know what adapts.
APART = {"data", "models", "training", "report", "analysis"}
CORE = [room for room in RANK if room not in ("bench", "cli")]


def _room(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imported_rooms(file: Path) -> Iterator[str]:
    """The rooms that a file imports, at its top, inside functions and for type checking alike."""
    here = ["acclimate", *file.relative_to(PACKAGE).with_suffix("").parts]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: -node.level] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top == "acclimate":
                yield rest.partition(".")[0]


def _imports(*rooms: str) -> Iterator[tuple[Path, str, str]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        if (room := _room(file)) in rooms:
            yield from ((file, room, imported) for imported in set(_imported_rooms(file)))


def test_imports_of_the_core_point_one_way() -> None:
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {imported or 'acclimate'}"
        for file, room, imported in _imports(*CORE)
        if imported != room and RANK.get(imported, len(CHAIN)) >= RANK[room]
    ]
    assert not wrong


def test_what_serves_the_benches_knows_nothing_of_methods() -> None:
    adapting = {room for room in RANK if RANK[room] >= RANK["adapter"]} | {""}
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {imported or 'acclimate'}"
        for file, _, imported in _imports("data", "models", "training")
        if imported in adapting
    ]
    assert not wrong


def test_every_room_has_its_place() -> None:
    rooms = {_room(file) for file in PACKAGE.rglob("*.py")}
    assert rooms - {"__init__", "__main__", "kernels"} <= set(RANK) | APART


def _run(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.check_output(command, cwd=PACKAGE.parent, text=True)


def test_the_import_loads_nothing_heavy() -> None:
    heavy = ["torchvision", "timm", "scipy", "pandas", "matplotlib", "sklearn", "tyro", "rich"]
    code = "import sys, acclimate; print([name for name in {!r} if name in sys.modules])"
    assert _run(code.format(heavy)) == "[]\n"


def test_the_import_adds_little_to_that_of_torch() -> None:
    code = (
        "import time, torch; start = time.perf_counter(); import acclimate; "
        "print(time.perf_counter() - start)"
    )
    assert min(float(_run(code)) for _ in range(3)) < 0.15


def test_models_and_command_line_import_their_libraries_when_called() -> None:
    code = (
        "import sys, acclimate.models, acclimate.cli; "
        "print([name for name in ('torchvision', 'timm', 'matplotlib') if name in sys.modules])"
    )
    assert _run(code) == "[]\n"


def test_the_public_names_are_few() -> None:
    import acclimate

    assert len(acclimate.__all__) <= 18
    assert all(hasattr(acclimate, name) for name in acclimate.__all__)


def test_the_lock_holds_hashes_and_no_addresses() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pinned = re.findall(r"^[a-z0-9][a-z0-9._-]*==\S+.* \\\n    --hash=sha256:", lock, re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^[a-z0-9]", lock, re.MULTILINE)) > 50
    assert not re.search(r"://|index|find-links|(^|[ =])/", lock)
    assert re.search(r"^torch==[0-9.]+ ", lock, re.MULTILINE), "the ordinary build: no +cpu"


def test_text_is_ascii() -> None:
    patterns = ("src/**/*.py", "tests/**/*.py", "benchmarks/**/*.py", "docs/**/*.md", "*.md")
    files = [file for pattern in patterns for file in ROOT.glob(pattern)]
    assert len(files) > 10
    assert not [str(file) for file in files if not file.read_text(encoding="utf-8").isascii()]


@pytest.mark.parametrize("name", ["LICENSE", "src/acclimate/py.typed"])
def test_what_a_wheel_needs_is_there(name: str) -> None:
    assert (ROOT / name).is_file()
