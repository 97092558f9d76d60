"""An adapter's file: safetensors, written atomically, checked on reading, never executed.

safetensors does not notice a flipped bit, so the header carries a sha256 of everything else.
"""

import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from .alpha import Prior, describe

FORMAT = "1"


def write(path: str | Path, header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> None:
    """Write tensors and header; a crash leaves the old file or the new one, never a half."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"format": FORMAT, **header}
    header["sha256"] = digest(tensors, header)
    write_atomically(Path(path), safetensors.torch.save(tensors, dict(header)))


def read(path: str | Path, expected: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Header and tensors of a file whose header agrees with what is expected, or an error."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}: save() writes one.")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{str(path)!r} is damaged or not an adapter's file ({error}): take another copy."
        ) from None
    if "format" not in header or "method" not in header:
        raise ValueError(
            f"{str(path)!r} is a safetensors file, but not of an adapter: load() reads what "
            "save() wrote."
        )
    if header["format"] != FORMAT:
        raise ValueError(
            f"{str(path)!r} has format {header['format']}, but this version of acclimate reads "
            f"format {FORMAT}: read it with the version that wrote it."
        )
    kept = header.pop("sha256", None)
    if kept != digest(tensors, header):
        raise ValueError(f"{str(path)!r} is damaged: its sha256 does not agree; take another copy.")
    for key, value in expected.items():
        if header.get(key) != value:
            raise ValueError(_difference(path, key, header.get(key, "{}"), value))
    return header, tensors


def digest(tensors: Mapping[str, Tensor], header: Mapping[str, str] | None = None) -> str:
    """The sha256 of tensors with their names, types and shapes, and of a header."""
    sha = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        sha.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        sha.update(tensor.flatten().view(torch.uint8).numpy().data)
    return sha.hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """All of the data under this name, or what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # the new name itself must reach the disk, too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def options_json(options: Mapping[str, Any]) -> str:
    """Options as text that agrees exactly when they do."""
    return json.dumps({name: _plain(options[name]) for name in sorted(options)})


def source_json(values: Mapping[str, Tensor]) -> str:
    """Names, shapes and sha256 of the source values that an adapter changes."""
    rows = {name: [list(value.shape), digest({"": value})] for name, value in values.items()}
    return json.dumps(rows, sort_keys=True)


def _plain(value: object) -> object:
    """A value that JSON holds; equal for 1 and 1.0, different for globs in another order."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, Mapping):
        return [[key, _plain(item)] for key, item in value.items()]
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    if isinstance(value, Tensor) and value.dim() > 0:
        return [list(value.shape), digest({"": value})]
    if isinstance(value, (Tensor, Prior)):
        return describe(value)
    if isinstance(value, functools.partial):
        return [_plain(part) for part in (value.func, value.args, value.keywords)]
    if callable(value):
        name = getattr(value, "__qualname__", type(value).__qualname__)
        return [f"{value.__module__}.{name}", *_written(getattr(value, "__code__", None))]
    return repr(value)


def _written(code: Any) -> list[Any]:
    """What tells two lambdas of a module apart on any version of Python: names and constants."""
    if code is None:
        return []
    plain = (bool, int, float, str)
    return [*code.co_names, *(value for value in code.co_consts if isinstance(value, plain))]


def _difference(path: Path, key: str, found: str, expected: str) -> str:
    """Which method, option or source value differs, by name."""
    if key == "method":
        return f"{str(path)!r} is of {found}, but this adapter is {expected}: load it into {found}."
    ours, theirs = json.loads(expected), json.loads(found)
    name = next(n for n in sorted({*ours, *theirs}) if ours.get(n) != theirs.get(n))
    if key == "options":
        return (
            f"{str(path)!r} was saved with {name}={theirs.get(name)!r}, but this adapter has "
            f"{name}={ours.get(name)!r}: construct it with the same options."
        )
    shapes = [rows[name][0] if name in rows else "no such value" for rows in (theirs, ours)]
    what = "values" if shapes[0] == shapes[1] else f"{shapes[0]} against {shapes[1]}"
    return (
        f"{str(path)!r} belongs to another source model, which differs in {name!r} ({what}): load "
        "the weights that the adapter was saved with."
    )
