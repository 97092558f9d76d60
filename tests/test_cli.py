"""The command line: its flags, what it prints, and its errors of one sentence."""

import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file
from torch import nn

from acclimate.cli import main
from acclimate.models import load

TINY = "timm:test_byobnet"

# Every flag is a promise. Adding one is a decision: make it here too.
FLAGS = {
    (): {"--help", "--debug", "--version", "--severity", "--out", "--arch"},  # three are examples
    ("demo",): {"--help", "--seed", "--severity", "--out", "--json"},
    ("inspect",): {"--help", "--arch", "--alpha"},
}

Capture = pytest.CaptureFixture[str]


def _help(arguments: list[str], capsys: Capture) -> str:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", FLAGS)
def test_the_flags_are_these(command: tuple[str, ...], capsys: Capture) -> None:
    text = _help([*command, "--help"], capsys)
    assert set(re.findall(r"--[a-z][a-z-]*", text)) == FLAGS[command]


def test_no_command_prints_the_help_with_examples(capsys: Capture) -> None:
    text = _help([], capsys)
    assert text == _help(["--help"], capsys)
    assert "acclimate inspect torchvision:resnet50 " in text


def test_the_version_is_that_of_the_package(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"acclimate {version('acclimate')}\n"


@pytest.mark.parametrize("arguments", [["demon"], ["demo", "--sevrity", "5"], ["inspect"]])
def test_a_line_that_cannot_be_read_exits_with_2(arguments: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err


def _error(arguments: list[str], capsys: Capture) -> str:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_an_error_is_one_sentence(capsys: Capture) -> None:
    assert _error(["inspect", "resnet50"], capsys) == (
        "acclimate: 'resnet50' does not say whose network it is: write torchvision:NAME, "
        "timm:NAME, robustbench:NAME\n"
    )


def test_a_missing_extra_is_one_sentence(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "robustbench", None)
    assert _error(["inspect", "robustbench:Standard"], capsys).endswith(
        'it is needed for RobustBench\'s networks: pip install "acclimate[robustbench]"\n'
    )


@pytest.mark.parametrize("place", range(3))
def test_debug_anywhere_shows_where_the_error_came_from(place: int) -> None:
    arguments = ["inspect", "resnet50"]
    arguments.insert(place, "--debug")
    with pytest.raises(LookupError, match="'resnet50' does not say whose network"):
        main(arguments)


def _output(arguments: list[str], capsys: Capture) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def _batch_norms(name: str) -> list[str]:
    pytest.importorskip("timm")
    modules = load(name, pretrained=False).named_modules()
    return [path for path, module in modules if isinstance(module, nn.BatchNorm2d)]


def test_inspect_lists_every_layer_and_closes_with_what_to_do(capsys: Capture) -> None:
    paths = _batch_norms(TINY)
    text = _output(["inspect", TINY], capsys)
    assert all(path in text for path in paths)
    assert text.endswith(
        f"{len(paths)} BatchNorm layers hold source statistics: ac.alpha_bn(model, alpha=0.9) "
        "calibrates them.\n"
    )


def test_inspect_shows_a_calibrated_network(capsys: Capture) -> None:
    count = len(_batch_norms(TINY))
    text = _output(["inspect", TINY, "--alpha", "0.75"], capsys)
    assert text.count("0.75") == count + 1
    assert text.endswith(
        f"{count} BatchNorm layers answer with 0.75 of the source's statistics and the rest of the "
        "batch's.\n"
    )


def test_inspect_draws_a_table_on_a_terminal(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = _batch_norms(TINY)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    text = _output(["inspect", TINY, "--alpha", "0.5"], capsys)
    assert "\N{BOX DRAWINGS LIGHT VERTICAL}" in text
    assert all(path in text for path in paths)


def test_inspect_reads_a_file_of_weights(tmp_path: Path, capsys: Capture) -> None:
    paths = _batch_norms(TINY)
    weights = str(tmp_path / "weights.safetensors")
    save_file(load(TINY, pretrained=False).state_dict(), weights)
    assert f"{len(paths)} BatchNorm layers" in _output(["inspect", weights, "--arch", TINY], capsys)


def test_a_file_without_its_network_is_one_sentence(tmp_path: Path, capsys: Capture) -> None:
    weights = tmp_path / "weights.pt"
    weights.touch()
    assert _error(["inspect", str(weights)], capsys) == (
        f"acclimate: {weights} is a file of weights: add the network it belongs to, such as "
        "--arch torchvision:resnet50\n"
    )


@pytest.mark.parametrize(
    ("name", "closing"),
    [
        (
            "timm:test_vit",
            "No BatchNorm layer holds source statistics: there is nothing to calibrate, but "
            'ac.Tent(model, parameters="norm") adapts the affine parameters of these layers.',
        ),
        (
            "torchvision:squeezenet1_0",
            "No normalisation layer: acclimate has nothing to calibrate or adapt here.",
        ),
    ],
)
def test_inspect_says_when_there_is_nothing_to_calibrate(
    name: str, closing: str, capsys: Capture
) -> None:
    pytest.importorskip(name.partition(":")[0])
    assert _output(["inspect", name], capsys).endswith(f"{closing}\n")


def test_demo_passes_its_options_on(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr("acclimate.bench.demo.run", lambda **options: calls.append(options))
    _output(["demo", "--seed", "3", "--severity", "5", "--out", str(tmp_path), "--json"], capsys)
    assert calls == [{"seed": 3, "severity": 5, "out": tmp_path, "json": True}]
