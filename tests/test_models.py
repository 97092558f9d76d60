"""Networks by name and by file: what is built, and what each refusal says."""

import pickle
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import URLError

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from acclimate.extras import MissingExtraError
from acclimate.models import load

TINY = "timm:test_byobnet"  # 0.5 M parameters, BatchNormAct2d


@pytest.fixture
def tiny() -> nn.Module:
    pytest.importorskip("timm")
    return load(TINY, pretrained=False)


@pytest.fixture
def no_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise URLError("no network in tests")

    pytest.importorskip("torchvision")
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", refuse)


@pytest.mark.usefixtures("no_downloads")
@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        "lraspp_mobilenet_v3_large",  # its backbone's weights would be downloaded
        "fasterrcnn_mobilenet_v3_large_fpn",
        "vit_b_32",
    ],
)
def test_torchvision_builds_without_weights_and_without_a_network(name: str) -> None:
    model = load(f"torchvision:{name}", pretrained=False)
    assert not model.training


@pytest.mark.usefixtures("no_downloads")
def test_segmentation_has_the_head_that_published_weights_hold() -> None:
    state = load("torchvision:deeplabv3_mobilenet_v3_large", pretrained=False).state_dict()
    assert "aux_classifier.4.weight" in state


def test_timm_builds_a_name_and_a_name_with_a_tag(tiny: nn.Module) -> None:
    tagged = load(f"{TINY}.r160_in1k", pretrained=False)
    assert type(tagged) is type(tiny)
    assert not tiny.training


class Dataset(Enum):
    cifar_10 = "cifar10"
    cifar_100 = "cifar100"


class Threat(Enum):
    corruptions = "corruptions"
    linf = "Linf"


@pytest.fixture
def robustbench(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stands in for RobustBench, which pins an old timm; answers with the calls it received."""
    calls: list[dict[str, Any]] = []

    def load_model(name: str, **options: object) -> nn.Module:
        calls.append({"name": name, **options})
        return nn.Linear(1, 1)

    zoo, utils = ModuleType("robustbench.model_zoo"), ModuleType("robustbench.utils")
    augmix: dict[str, Any] = {"Hendrycks2020AugMix_WRN": {"model": lambda: nn.Linear(2, 10)}}
    vars(zoo)["model_dicts"] = {
        Dataset.cifar_10: {Threat.corruptions: augmix},
        Dataset.cifar_100: {Threat.linf: {"Rade2021Helper_R18": {"model": nn.Identity}}},
    }
    vars(utils)["load_model"] = load_model
    monkeypatch.setitem(sys.modules, "robustbench", ModuleType("robustbench"))
    monkeypatch.setitem(sys.modules, "robustbench.model_zoo", zoo)
    monkeypatch.setitem(sys.modules, "robustbench.utils", utils)
    return calls


def test_robustbench_defaults_to_cifar10_corruptions(robustbench: list[dict[str, Any]]) -> None:
    assert isinstance(load("robustbench:Hendrycks2020AugMix_WRN"), nn.Linear)
    folder = Path(torch.hub.get_dir()) / "robustbench"
    assert robustbench == [
        {
            "name": "Hendrycks2020AugMix_WRN",
            "model_dir": folder,
            "dataset": "cifar10",
            "threat_model": "corruptions",
        }
    ]


def test_robustbench_takes_a_dataset_and_a_threat(robustbench: list[dict[str, Any]]) -> None:
    bare = load("robustbench:cifar100/Linf/Rade2021Helper_R18", pretrained=False)
    assert isinstance(bare, nn.Identity)
    assert not robustbench


@pytest.mark.usefixtures("robustbench")
def test_an_unknown_robustbench_name_lists_the_nearest_with_its_dataset() -> None:
    with pytest.raises(LookupError) as caught:
        load("robustbench:Hendrycks2020AugMix_WRM")
    assert str(caught.value) == (
        "robustbench has no network 'cifar10/corruptions/Hendrycks2020AugMix_WRM'; the nearest of "
        "its 2 are cifar10/corruptions/Hendrycks2020AugMix_WRN"
    )


@pytest.mark.parametrize(
    ("zoo", "name", "nearest"),
    [("torchvision", "resnet55", "resnet50"), ("timm", "efficientnet_b00", "efficientnet_b0")],
)
def test_an_unknown_name_lists_the_nearest(zoo: str, name: str, nearest: str) -> None:
    pytest.importorskip(zoo)
    with pytest.raises(
        LookupError,
        match=rf"^{zoo} has no network '{name}'; the nearest of its \d+ are .*{nearest}",
    ):
        load(f"{zoo}:{name}")


def test_a_name_near_nothing_lists_names_all_the_same() -> None:
    pytest.importorskip("torchvision")
    with pytest.raises(LookupError, match=r"the nearest of its \d+ are alexnet, convnext_base, "):
        load("torchvision:??")


@pytest.mark.parametrize("name", ["resnet50", "keras:resnet50"])
def test_a_name_without_a_library_lists_the_libraries(name: str) -> None:
    with pytest.raises(LookupError) as caught:
        load(name)
    assert str(caught.value) == (
        f"'{name}' does not say whose network it is: write torchvision:NAME, timm:NAME, "
        "robustbench:NAME"
    )


@pytest.mark.parametrize("zoo", ["torchvision", "timm", "robustbench"])
def test_a_missing_library_names_its_extra(zoo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == zoo]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, zoo, None)
    with pytest.raises(MissingExtraError, match=rf'pip install "acclimate\[{zoo}\]"$'):
        load(f"{zoo}:resnet50")


@pytest.mark.usefixtures("no_downloads")
def test_weights_that_cannot_be_fetched_name_the_ways_out() -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the whole text is compared below
        load("torchvision:resnet18")
    assert str(caught.value) == (
        "the weights of torchvision:resnet18 could not be fetched (<urlopen error no network in "
        "tests>); give them with file=, or pretrained=False for the bare architecture"
    )


def test_a_network_without_weights_names_the_ways_out() -> None:
    timm = pytest.importorskip("timm")
    name = next(name for name in timm.list_models() if not timm.is_model_pretrained(name))
    with pytest.raises(
        ValueError, match=rf"^timm has no weights for '{name}': give them with file="
    ):
        load(f"timm:{name}")


State = dict[str, Tensor]


def _nested(state: State) -> object:
    return {"epoch": 3, "state_dict": state}


def _parallel(state: State) -> object:
    return {"model": {f"module.{key}": value for key, value in state.items()}}


@pytest.mark.parametrize("form", [dict, _nested, _parallel])
def test_a_file_of_torch_is_loaded(
    form: Callable[[State], object], tiny: nn.Module, tmp_path: Path
) -> None:
    torch.save(form(tiny.state_dict()), tmp_path / "weights.pth")
    _assert_same(load(TINY, file=tmp_path / "weights.pth"), tiny)


def test_a_file_of_safetensors_is_loaded(tiny: nn.Module, tmp_path: Path) -> None:
    save_file(tiny.state_dict(), tmp_path / "weights.safetensors")
    _assert_same(load(TINY, file=str(tmp_path / "weights.safetensors")), tiny)


def _assert_same(model: nn.Module, other: nn.Module) -> None:
    assert not model.training
    expected = other.state_dict()
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, expected[key], rtol=0, atol=0)


def test_a_file_of_another_network_names_some_keys(tiny: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    state = tiny.state_dict()
    head = {"head.fc.weight": torch.zeros(7, 3), "head.fc.bias": torch.zeros(7)}
    advice = "name the architecture that the file was saved from"

    save_file({**state, **head}, path)
    _assert_refused(
        path,
        f"{path} does not fit the network, 2 of its tensors are of another shape: head.fc.weight, "
        f"head.fc.bias; {advice}",
    )
    missing = list(state)[:4]
    save_file({key: value for key, value in state.items() if key not in missing}, path)
    _assert_refused(
        path,
        f"{path} does not fit the network, 4 of its tensors are missing: {', '.join(missing[:3])}, "
        f"...; {advice}",
    )
    save_file({**state, "extra": torch.zeros(1)}, path)
    _assert_refused(
        path, f"{path} does not fit the network, 1 of its tensors are unexpected: extra; {advice}"
    )


def _assert_refused(path: Path, text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared below
        load(TINY, file=path)
    assert str(caught.value) == text


class Trap:
    """Says so when a pickle executes it."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return pytest.fail, ("the file was executed",)


@pytest.mark.usefixtures("tiny")
def test_a_file_that_executes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"state_dict": Trap()}, path)
    text = (
        f"{path} is damaged, or holds more than tensors and would have to be executed: save "
        "model.state_dict() alone and give that file"
    )
    _assert_refused(path, text)
    path.write_bytes(pickle.dumps(Trap(), protocol=2))
    _assert_refused(path, text)
    path.write_bytes(b"")
    _assert_refused(path, text)


@pytest.mark.usefixtures("tiny")
def test_a_file_without_a_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save([torch.zeros(1)], path)
    _assert_refused(
        path,
        f"{path} holds no state of a network (names and tensors): save model.state_dict() and give "
        "that file",
    )


@pytest.mark.usefixtures("tiny")
def test_a_damaged_safetensors_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(b"no header")
    with pytest.raises(
        ValueError, match=r"weights.safetensors is damaged or no safetensors file: "
    ):
        load(TINY, file=path)


@pytest.mark.usefixtures("tiny")
def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"^w\.npz ends in '\.npz': a file of weights is \.safetensors, \.pt or \.pth$",
    ):
        load(TINY, file="w.npz")


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["missing.pt", "missing.safetensors"])
def test_a_missing_file_is_named(name: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"no file {name}: give the path"):
        load(TINY, file=name)
