"""The command line: it parses, calls and prints; what it calls is the library's own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from torch import nn

    from .norm import NormLayer

__all__ = ["main"]

DESCRIPTION = """\
Keeps a trained PyTorch network accurate when its inputs drift: no labels, no source data, no
retraining.

  acclimate demo                              a network loses accuracy under shift and gets it back
  acclimate demo --severity 5 --out runs/five
  acclimate inspect torchvision:resnet50      what can be calibrated in a network
  acclimate inspect weights.pt --arch timm:efficientnet_b0
  acclimate --version

An error is one sentence; --debug, anywhere on the line, shows where it came from."""

# What a user can put right is a sentence; anything else is a bug of ours and keeps its traceback.
USER_ERRORS = (ValueError, TypeError, LookupError, OSError)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, or 2 for an error of the user's."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    if arguments == ["--version"]:
        print(f"acclimate {version('acclimate')}")
        return 0
    try:
        tyro.extras.subcommand_cli_from_dict(
            {"demo": demo, "inspect": inspect},
            prog="acclimate",
            description=DESCRIPTION,
            args=arguments or ["--help"],
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except USER_ERRORS as error:
        if debug:
            raise
        print(f"acclimate: {error}", file=sys.stderr)
        return 2
    return 0


def demo(
    *, seed: int = 0, severity: int = 3, out: Path = Path("runs/demo"), json: bool = False
) -> None:
    """Trains a small network on clean digits, shifts them 15 ways, and compares the methods.

    Args:
        seed: Of the training, the corruptions and the order of the stream.
        severity: Of the corruptions, 1 (slight) to 5 (heavy).
        out: The folder for the report and its numbers.
        json: Print the numbers as JSON, and nothing else.
    """
    from .bench.demo import run

    run(seed=seed, severity=severity, out=out, json=json)


def inspect(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    *,
    arch: Annotated[str | None, tyro.conf.arg(metavar="ARCH")] = None,
    alpha: Annotated[float | None, tyro.conf.arg(metavar="ALPHA")] = None,
) -> None:
    """Lists the normalisation layers of a network, and says what can be done with them.

    Args:
        model: torchvision:NAME, timm:NAME or robustbench:NAME, or a file of weights.
        arch: The network that the file of weights belongs to, such as torchvision:resnet50.
        alpha: Show the network calibrated with this weight of the source, 0 to 1.
    """
    import acclimate

    network = _network(model, arch)
    if alpha is not None:
        acclimate.alpha_bn(network, alpha=alpha)
    rows = acclimate.inspect(network)
    # Into a pipe goes plain text: rich would fold long paths at 80 columns.
    if sys.stdout.isatty():
        _print_table(rows)
    else:
        print(rows)
    print(_closing(rows, alpha))


def _network(model: str, arch: str | None) -> nn.Module:
    from .models import ZOOS, load

    if arch is not None:
        return load(arch, file=model)
    if model.partition(":")[0] not in ZOOS and Path(model).is_file():
        raise ValueError(
            f"{model} is a file of weights: add the network it belongs to, such as "
            "--arch torchvision:resnet50"
        )
    return load(model, pretrained=False)  # the table follows from the architecture alone


def _print_table(rows: Sequence[NormLayer]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("layer", "type", "channels", "calibrated", "alpha")
    for row in rows:
        calibrated, alpha = ("yes", str(row.alpha)) if row.calibrated else ("", "")
        table.add_row(row.path or "(root)", row.type, str(row.channels), calibrated, alpha)
    Console().print(table)


def _closing(rows: Sequence[NormLayer], alpha: float | None) -> str:
    count = sum(row.kind == "batch" for row in rows)
    layers = f"{count} BatchNorm layer{'' if count == 1 else 's'}"
    if not rows:
        return "No normalisation layer: acclimate has nothing to calibrate or adapt here."
    if count == 0:
        return (
            "No BatchNorm layer holds source statistics: there is nothing to calibrate, but "
            'ac.Tent(model, parameters="norm") adapts the affine parameters of these layers.'
        )
    if alpha is None:
        return f"{layers} hold source statistics: ac.alpha_bn(model, alpha=0.9) calibrates them."
    return f"{layers} answer with {alpha:g} of the source's statistics and the rest of the batch's."
