"""Networks: everybody else's by name, and a file of weights for any of them."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from .files import load_file
from .zoos import ZOOS

__all__ = ["ZOOS", "load"]


def load(name: str, *, pretrained: bool = True, file: str | Path | None = None) -> nn.Module:
    """Builds a network by name, in evaluation mode.

    ``name`` is ``torchvision:NAME`` (classification, segmentation and detection), ``timm:NAME``,
    ``robustbench:NAME`` (CIFAR-10, corruptions) or ``robustbench:DATASET/THREAT/NAME``. The library
    that is named comes with the extra of its name, and is imported only here.

    Args:
        name: The library and its name for the network.
        pretrained: Whether the library's own weights are loaded, which may download them.
            Without them the network is a random initialisation, of use for its structure only;
            torchvision then builds detection with BatchNorm2d where it is FrozenBatchNorm2d.
        file: Weights of your own instead: ``.safetensors``, or ``.pt``/``.pth`` that holds tensors
            only. They must fit the architecture exactly.

    Example:
        >>> model = load("timm:resnet18", pretrained=False)

    Raises:
        LookupError: an unknown library or network, naming the nearest ones that exist;
            [MissingExtraError][acclimate.extras.MissingExtraError] when its library is missing.
        ValueError: ``file`` does not fit, is damaged, or would have to execute code; or the
            library has no weights for this network.
        OSError: the weights could not be downloaded, or ``file`` could not be read.
    """
    zoo, colon, network = name.partition(":")
    if not colon or zoo not in ZOOS:
        known = ", ".join(f"{zoo}:NAME" for zoo in ZOOS)
        raise LookupError(f"{name!r} does not say whose network it is: write {known}")
    if file is not None:
        model = ZOOS[zoo](network, False)
        load_file(model, Path(file))
        return model.eval()
    try:
        return ZOOS[zoo](network, pretrained).eval()
    except OSError as error:
        raise OSError(
            f"the weights of {name} could not be fetched ({error}); give them with file=, or "
            "pretrained=False for the bare architecture"
        ) from error
