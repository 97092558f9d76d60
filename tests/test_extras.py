"""What is missing is named, with what it is for and the command that installs it."""

import sys
import tomllib
from pathlib import Path

import pytest

from acclimate.extras import NEEDED_FOR, MissingExtraError, require

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_what_is_installed_is_imported() -> None:
    assert require("tomllib", "demo") is tomllib


def test_what_is_missing_is_one_sentence_with_the_command() -> None:
    with pytest.raises(MissingExtraError) as caught:
        require("no_such_package.models", "timm")
    assert str(caught.value) == (
        "no_such_package is not installed; it is needed for timm's networks: "
        'pip install "acclimate[timm]"'
    )
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, LookupError)


def test_the_package_that_a_package_misses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_installed.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError, match=r"^no_such_package is not installed; .*\[onnx\]"):
        require("half_installed", "onnx")


def test_a_broken_package_raises_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_build.py").write_text("raise RuntimeError('operator nms does not exist')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match=r"^operator nms does not exist$"):
        require("broken_build", "torchvision")
    assert "broken_build" not in sys.modules


def test_an_unknown_extra_lists_the_known_ones() -> None:
    with pytest.raises(
        LookupError, match=r"^acclimate has no extra 'vision'; it has demo, report, torchvision, "
    ):
        require("torchvision", "vision")


def test_every_declared_extra_says_what_it_is_needed_for() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert set(extras) - {"all"} == set(NEEDED_FOR)


def test_all_brings_every_extra_but_robustbench() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    expected = [name for name in extras if name not in ("all", "robustbench")]
    assert extras["all"] == [f"acclimate[{','.join(expected)}]"]
