"""Keeps a trained network accurate when its inputs drift: alpha-BN, Core, Tent and others."""

from . import functional
from .adapter import Adapter
from .alpha import prior
from .export import freeze, recalibrate
from .methods import TBN, AlphaBN, Core, Source, Tent, adapt
from .norm import alpha_bn, calibrated, inspect, restore

__version__ = "0.1.0"

__all__ = [
    "TBN",
    "Adapter",
    "AlphaBN",
    "Core",
    "Source",
    "Tent",
    "adapt",
    "alpha_bn",
    "calibrated",
    "freeze",
    "functional",
    "inspect",
    "prior",
    "recalibrate",
    "restore",
]
