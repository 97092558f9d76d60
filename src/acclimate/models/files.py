"""A file of weights into a network: every key must fit, and nothing in the file is executed."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

__all__ = ["load_file"]

SHOWN = 3
SUFFIXES = (".safetensors", ".pt", ".pth")


def load_file(model: nn.Module, path: Path) -> None:
    """Loads the weights in ``path`` into ``model``, which they must fit exactly.

    The state may stand under ``state_dict`` or ``model``, as training scripts save it, and its keys
    may begin with ``module.``, as those of ``DataParallel`` do.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, holds more than tensors, or does not fit the network.
    """
    state = _unwrap(_read(path), path)
    own = model.state_dict()
    _refuse(path, "of another shape", [key for key in own if _shape_differs(key, own, state)])
    # torch fills in the counters that files from before 0.4.1 lack, so torch says what is missing.
    missing, unexpected = model.load_state_dict(state, strict=False)
    _refuse(path, "missing", missing)
    _refuse(path, "unexpected", unexpected)


def _read(path: Path) -> Any:
    if path.suffix not in SUFFIXES:
        raise ValueError(
            f"{path} ends in {path.suffix!r}: a file of weights is .safetensors, .pt or .pth"
        )
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {path}: give the path of a .safetensors, .pt or .pth file of weights"
        )
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged or no safetensors file: {error}") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"{path} is damaged, or holds more than tensors and would have to be executed: save "
            "model.state_dict() alone and give that file"
        ) from error


def _unwrap(state: Any, path: Path) -> Mapping[str, Tensor]:
    for key in ("state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not all(isinstance(v, Tensor) for v in state.values()):
        raise ValueError(
            f"{path} holds no state of a network (names and tensors): save model.state_dict() and "
            "give that file"
        )
    if state and all(key.startswith("module.") for key in state):
        return {key.removeprefix("module."): value for key, value in state.items()}
    return state


def _shape_differs(key: str, own: Mapping[str, Any], state: Mapping[str, Tensor]) -> bool:
    return key in state and isinstance(own[key], Tensor) and own[key].shape != state[key].shape


def _refuse(path: Path, what: str, keys: list[str]) -> None:
    if keys:
        shown = ", ".join(keys[:SHOWN]) + (", ..." if len(keys) > SHOWN else "")
        raise ValueError(
            f"{path} does not fit the network, {len(keys)} of its tensors are {what}: {shown}; "
            "name the architecture that the file was saved from"
        )
