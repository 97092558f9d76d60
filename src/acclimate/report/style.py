"""How a method is named and coloured, everywhere alike, and what a picture looks like."""

from __future__ import annotations

__all__ = ["COLOURS", "DARK", "LIGHT", "NAMES"]

NAMES = {"source": "Source", "tbn": "T-BN", "alpha_bn": "alpha-BN", "tent": "Tent", "core": "Core"}

# Okabe and Ito's palette, which readers with any kind of colour vision can tell apart; grey and not
# black for Source, so that one set of colours serves light and dark.
COLOURS = {
    "source": "#8c8c8c",
    "tbn": "#e69f00",
    "alpha_bn": "#0072b2",
    "tent": "#009e73",
    "core": "#d55e00",
}


def _style(text: str, line: str, ground: str) -> dict[str, object]:
    return {
        "axes.edgecolor": line,
        "axes.facecolor": ground,
        "axes.axisbelow": True,
        "axes.grid": True,
        "axes.labelcolor": text,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "figure.facecolor": ground,
        "font.size": 10,
        "grid.color": line,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "savefig.facecolor": ground,
        "svg.fonttype": "path",
        "svg.hashsalt": "acclimate",  # else the names inside an SVG differ in every run
        "text.color": text,
        "xtick.color": text,
        "ytick.color": text,
    }


LIGHT = _style(text="#24292f", line="#d0d7de", ground="#ffffff")
DARK = _style(text="#d5dbe3", line="#3a424c", ground="#161b22")
