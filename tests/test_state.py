"""An adapter's file: what is in it, what it refuses, and what a flipped bit does."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import acclimate as ac
from networks import assert_equal, assert_same_state, batches, contents, net, run, settle

Make = Callable[[], ac.Adapter]


def core(model: nn.Module | None = None, **options: Any) -> ac.Core:
    defaults = {"alpha": 0.5, "statistics": "stream"}
    return ac.Core(net() if model is None else model, **{**defaults, **options})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of an adapter that saw two batches."""
    adapter = core()
    run(adapter, batches(2))
    adapter.save(tmp_path / "state.safetensors")
    return tmp_path / "state.safetensors"


def refuses(adapter: ac.Adapter, path: Path, sentence: str, error: Any = ValueError) -> None:
    """The file is refused with this sentence, and the adapter goes on as if nothing had been."""
    run(adapter, batches(1))
    before, values = contents(adapter, path.with_name("before")), adapter.model.state_dict()
    values = {name: value.clone() for name, value in values.items()}
    with pytest.raises(error, match=sentence):
        adapter.load(path)
    assert_same_state(contents(adapter, path.with_name("before")), before)
    assert_equal(dict(adapter.model.state_dict()), values)


def rewritten(path: Path, **header: str | None) -> Path:
    """The file with another header, unsigned: what the digest is for."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = {**file.metadata(), **header}
    save_file(tensors, path, {k: v for k, v in metadata.items() if v is not None})
    return path


def test_the_header_says_what_the_file_is(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
        names = set(file.keys())
    assert {"format", "method", "options", "source", "sha256", "counts"} <= header.keys()
    assert header["method"] == "Core"
    assert json.loads(header["options"]) == {**core().options} | {"betas": [0.9, 0.999]}
    assert json.loads(header["counts"])["batches"] == 2
    assert set(json.loads(header["source"])) >= {"bn1.weight", "bn1.bias", "bn2.weight"}
    assert {"value.bn1.weight", "optimizer.bn2.bias.exp_avg", "statistics.bn1.mean"} <= names


def test_only_what_changes_is_in_it(tmp_path: Path) -> None:
    """Neither the network's weights nor, without a stream, its statistics."""
    _, tensors = contents(core(statistics="batch"), tmp_path / "state")
    assert {name.partition(".")[0] for name in tensors} == {"value"}
    _, tensors = contents(ac.AlphaBN(net(), alpha=0.5), tmp_path / "state")
    assert tensors == {}


OTHERS: dict[str, tuple[Make, str]] = {
    "method": (lambda: ac.Tent(net(), alpha=0.5, statistics="stream"),
               r"is of Core, but this adapter is Tent: load it into Core"),
    "alpha": (lambda: core(alpha=0.4),
              r"saved with alpha=0\.5, but this adapter has alpha=0\.4: construct it with"),
    "alpha's form": (lambda: core(alpha={"*": 0.5}),
                     r"alpha=0\.5, but this adapter has alpha=.*'\*'"),
    "prior": (lambda: core(alpha=ac.prior(16)), r"has alpha='prior\(16\)'"),
    "statistics": (lambda: core(statistics="batch"), "saved with statistics='stream', but"),
    "memory": (lambda: core(memory=50),
               r"saved with memory=1000(\.0)?, but this adapter has memory=50"),
    "mix": (lambda: core(mix="var"), "saved with mix='std'"),
    "lr": (lambda: core(lr=1e-2), r"saved with lr=0\.001, but this adapter has lr=0\.01"),
    "betas": (lambda: core(betas=(0.8, 0.9)), "saved with betas="),
    "optimizer": (lambda: core(optimizer="sgd"), "saved with optimizer='adam'"),
    "function": (lambda: core(optimizer=lambda p: torch.optim.Adam(p)), "saved with optimizer="),
    "steps": (lambda: core(steps=2), r"saved with steps=1(\.0)?, but this adapter has steps=2"),
    "temperature": (lambda: core(temperature=1.0), r"saved with temperature=2\.5"),
    "episodic": (lambda: core(episodic=True), "saved with episodic=False"),
    "check": (lambda: core(check=False), "saved with check=True"),
    "parameters": (lambda: core(parameters="norm"), "saved with parameters='bn'"),
    "weights": (lambda: core(net(seed=5)),
                r"another source model, which differs in 'bn1\.bias' \(values\): load the weights"),
    "statistics of the source": (lambda: core(other_statistics()),
                                 r"differs in 'statistics\.bn2\.var' \(values\)"),
    "shape": (lambda: core(settle(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))),
              r"another source model, which differs in '[\w.]+' \(.* against .*\)"),
    "width": (lambda: core(narrow()), r"differs in 'bn1\.bias' \(\[8\] against \[6\]\)"),
    "frozen": (lambda: core(without_affine_in_bn1()), r"differs in 'bn1\.bias'.*no such value"),
}  # fmt: skip


def other_statistics() -> nn.Module:
    model = net()
    model.get_buffer("bn2.running_var")[0] += 1e-6
    return model


def narrow() -> nn.Module:
    model: Any = net()
    model.conv1, model.bn1 = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
    model.conv2 = nn.Conv2d(6, 16, 3, padding=1)
    return model.eval()  # type: ignore[no-any-return]


def without_affine_in_bn1() -> nn.Module:
    model: Any = net()
    model.bn1 = nn.BatchNorm2d(8, affine=False)
    return model.eval()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_anything_else_is_refused_by_name(name: str, path: Path) -> None:
    make, sentence = OTHERS[name]
    refuses(make(), path, sentence)


def test_two_mappings_that_differ_in_order_are_two_options(tmp_path: Path) -> None:
    """The last match wins, so the order is part of what was asked for."""
    one = core(alpha={"*": 0.3, "bn1": 0.1})
    one.save(tmp_path / "state")
    refuses(core(alpha={"bn1": 0.1, "*": 0.3}), tmp_path / "state", "saved with alpha=")


def test_two_partial_functions_are_two_options(tmp_path: Path) -> None:
    import functools

    def sgd(lr: float) -> Any:
        return functools.partial(torch.optim.SGD, lr=lr)

    core(optimizer=sgd(0.1)).save(tmp_path / "state")
    core(optimizer=sgd(0.1)).load(tmp_path / "state")
    refuses(core(optimizer=sgd(0.2)), tmp_path / "state", "saved with optimizer=")


def test_a_tensor_alpha_is_its_number_in_a_file(tmp_path: Path) -> None:
    core(alpha=torch.tensor(0.5)).save(tmp_path / "state")
    core(alpha=torch.tensor(0.5)).load(tmp_path / "state")
    refuses(core(alpha=torch.tensor(0.25)), tmp_path / "state", r"saved with alpha=0\.5")


FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "text": (lambda p: p.write_text("not a tensor in sight"), "damaged or not an adapter's file"),
    "empty": (lambda p: p.write_bytes(b""), "damaged or not an adapter's file"),
    "cut": (lambda p: p.write_bytes(p.read_bytes()[:-9]), "damaged or not an adapter's file"),
    "longer": (lambda p: p.write_bytes(p.read_bytes() + b"0"), "damaged or not an adapter's file"),
    "pickle": (lambda p: torch.save({}, p), "damaged or not an adapter's file"),
    "foreign": (lambda p: save_file({"w": torch.ones(2)}, p),
                r"safetensors file, but not of an adapter: load\(\) reads what save\(\) wrote"),
    "foreign, of pt": (lambda p: save_file({"w": torch.ones(2)}, p, {"format": "pt"}),
                       "but not of an adapter"),
    "version": (lambda p: rewritten(p, format="2"),
                "has format 2, but this version of acclimate reads format 1: read it with"),
    "unsigned": (lambda p: rewritten(p, sha256=None), "is damaged: its sha256 does not agree"),
    "method rewritten": (lambda p: rewritten(p, method="Tent"), "is damaged: its sha256"),
    "options rewritten": (lambda p: rewritten(p, options="{}"), "is damaged: its sha256"),
    "counts rewritten": (lambda p: rewritten(p, counts="{}"), "is damaged: its sha256"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_damaged_and_foreign_files(name: str, path: Path) -> None:
    spoil, sentence = FILES[name]
    spoil(path)
    refuses(core(), path, sentence)


def test_no_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    refuses(core(), tmp_path / "none", r"no file '.*none'", FileNotFoundError)
    refuses(core(), tmp_path, "no file", FileNotFoundError)


def test_tensors_exchanged_or_renamed_are_noticed(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        metadata, names = file.metadata(), sorted(file.keys())
        tensors = {name: file.get_tensor(name) for name in names}
    changes: list[dict[str, Tensor]] = [
        {**tensors, names[0]: tensors[names[0]] + 1},
        {k: v for k, v in tensors.items() if k != names[0]},
        {**tensors, "more": torch.ones(1)},
        {**tensors, "value.bn1.bias": tensors["value.bn1.weight"].clone()},
        {k: v.reshape(-1, 1) for k, v in tensors.items()},
        {k: v.double() for k, v in tensors.items()},
    ]
    for changed in changes:
        save_file(changed, path, metadata)
        refuses(core(), path, "is damaged: its sha256 does not agree")


def test_every_flipped_byte_is_an_error(tmp_path: Path) -> None:
    """Each byte of a small file, by a random other value; and each bit of the header's length."""
    layer = settle(nn.BatchNorm1d(2))
    adapter = ac.AlphaBN(layer, alpha=0.5, statistics="stream")
    path = tmp_path / "state"
    adapter.save(path)
    data, draw = path.read_bytes(), random.Random(0)
    before = contents(adapter, tmp_path / "before")
    flips = [(i, data[i] ^ draw.randrange(1, 256)) for i in range(len(data))]
    flips += [(i, data[i] ^ 1 << bit) for i in range(8) for bit in range(8)]
    unnoticed = []
    for i, byte in flips:
        path.write_bytes(data[:i] + bytes([byte]) + data[i + 1 :])
        try:
            adapter.load(path)
        except ValueError:
            continue
        unnoticed.append((i, data[i], byte))
    # Blanks at the header's end say nothing: there, JSON takes one blank for another.
    blanks = [(ord(" "), ord(other)) for other in "\t\n\r"]
    assert [flip for flip in unnoticed if flip[1:] not in blanks] == []
    assert_same_state(contents(adapter, tmp_path / "before"), before)


def test_any_flipped_bit_of_a_larger_file_is_an_error(path: Path) -> None:
    adapter, data, draw = core(), path.read_bytes(), random.Random(1)
    for _ in range(300):
        i, bit = draw.randrange(len(data)), draw.randrange(8)
        path.write_bytes(data[:i] + bytes([data[i] ^ 1 << bit]) + data[i + 1 :])
        with pytest.raises(ValueError, match=r"is damaged|not of an adapter|has format"):
            adapter.load(path)
    path.write_bytes(data)
    adapter.load(path)


def test_a_file_is_never_executed(tmp_path: Path) -> None:
    """A pickle that would run code is refused unread."""

    class Bomb:
        def __reduce__(self) -> Any:
            return (tmp_path / "boom").touch, ()

    torch.save(Bomb(), tmp_path / "state")
    refuses(core(), tmp_path / "state", "damaged or not an adapter's file")
    assert not (tmp_path / "boom").exists()


def test_a_methods_own_options_are_compared(tmp_path: Path) -> None:
    class Mine(ac.Adapter, alpha=0.9):
        def __init__(self, model: nn.Module, *, margin: float, **options: Any):
            super().__init__(model, **options)
            self.options["margin"] = margin

    Mine(net(), margin=1.0).save(tmp_path / "state")
    Mine(net(), margin=1.0).load(tmp_path / "state")
    refuses(Mine(net(), margin=2.0), tmp_path / "state", r"saved with margin=1\.0, but")
