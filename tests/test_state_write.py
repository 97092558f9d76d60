"""An adapter's file is written whole or not at all."""

import os
from pathlib import Path
from typing import Any

import pytest

import acclimate as ac
from networks import batches, net


def core() -> ac.Core:
    return ac.Core(net(), alpha=0.5, statistics="stream")


class DiskFullError(OSError):
    """What a disk says at the worst moment."""


def fail(*_: object, **__: object) -> Any:
    raise DiskFullError


@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize("there", [True, False], ids=["over an old file", "anew"])
def test_a_crash_leaves_the_old_file_and_nothing_beside_it(
    step: str, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, adapter = tmp_path / "state", core()
    if there:
        adapter.save(path)
    old = path.read_bytes() if there else None
    adapter(batches(1)[0])
    with monkeypatch.context() as patch:
        if step == "fsync":
            patch.setattr(os, "fsync", fail)
        elif step == "write":
            real = Path.open

            def spoilt(self: Path, *args: Any, **options: Any) -> Any:
                file = real(self, *args, **options)
                if "w" in (args[0] if args else options.get("mode", "r")):
                    file.write(b"half")
                    patch.setattr(type(self), "replace", fail)
                    monkeypatch.setattr(os, "fsync", fail)
                return file

            patch.setattr(Path, "open", spoilt)
        else:
            patch.setattr(Path, step, fail)
        with pytest.raises(DiskFullError):
            adapter.save(path)
    assert (path.read_bytes() if path.exists() else None) == old
    assert [p.name for p in tmp_path.iterdir()] == (["state"] if there else [])
    monkeypatch.undo()
    adapter.save(path)
    core().load(path)


def test_a_file_goes_into_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    core().save(tmp_path / "new" / "folder" / "state")
    core().load(str(tmp_path / "new" / "folder" / "state"))
