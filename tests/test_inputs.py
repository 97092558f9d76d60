"""What may go into an adapter, and the structure in which its answer comes out."""

import dataclasses
import math
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import acclimate as ac
from networks import assert_close, assert_equal, net, settle, shifted

X = shifted(16, 3, 8, 8)


def adapters(model: Callable[[], nn.Module] = net, **options: Any) -> list[ac.Adapter]:
    return [
        ac.Source(model(), **options),
        ac.AlphaBN(model(), alpha=0.9, **options),
        ac.Core(model(), alpha=0.9, statistics="stream", **options),
    ]


@pytest.mark.parametrize("name", ["label", "labels", "label_ids", "target", "targets", "y"])
def test_labels_never_reach_an_adapter(name: str) -> None:
    for adapter in adapters():
        for use in (adapter, adapter.predict):
            with pytest.raises(ValueError, match=f"got '{name}', which names a label; .* without"):
                use(x=X, **{name: torch.zeros(16, dtype=torch.long)})
        with pytest.raises(TypeError, match="positional argument"):
            adapter(X, torch.zeros(16))  # type: ignore[call-arg, unused-ignore]
        assert adapter.counts["batches"] == 0


REFUSED: list[tuple[Callable[[ac.Adapter], Any], type[Exception], str]] = [
    (lambda a: a(), TypeError, "either x or the model's own keywords, but got nothing"),
    (lambda a: a(X, x=X), TypeError, "either x or the model's own keywords, but got x and keyw"),
    (lambda a: a((X, X)), TypeError, r"but is tuple; of a pair \(images, labels\) pass the images"),
    (lambda a: a("images"), TypeError, "x must be a tensor, or a list of tensors .* but is str"),
    (lambda a: a(X.numpy()), TypeError, "but is ndarray"),
    (lambda a: a([]), TypeError, "but is a list of 0"),
    (lambda a: a([X, 1]), TypeError, "but is a list of 2"),
    (lambda a: a(X.byte()), TypeError, r"x is torch\.uint8, but must be floating.*float\(\) / 255"),
    (lambda a: a([X[0].long()]), TypeError, r"x is torch\.int64, but must be floating point"),
    (lambda a: a(mode="fast"), TypeError, "got no tensor: pass the batch as x or"),
    (lambda a: a(X.to("meta")), ValueError, r"on meta, but the model is on cpu.*x\.to\('cpu'\)"),
    (lambda a: a(x=X.to("meta")), ValueError, "on meta, but the model is on cpu"),
    (lambda a: a(X * math.nan), ValueError, r"\(16, 3, 8, 8\) holds 3072 values that are NaN or"),
    (lambda a: a(x=X / 0), ValueError, r"NaN or infinite, .*drop those samples, or .*check=False"),
]


@pytest.mark.parametrize(("use", "error", "sentence"), REFUSED)
def test_what_is_refused(use: Any, error: type[Exception], sentence: str) -> None:
    for adapter in adapters():
        expected = adapter.predict(X)
        with pytest.raises(error, match=sentence):
            use(adapter)
        assert adapter.counts["batches"] == 0
        assert_equal(adapter.predict(X), expected)


def test_a_batch_without_a_batch_dimension_is_a_clear_error() -> None:
    with pytest.raises((ValueError, TypeError), match=r"shape \(\)|dimension"):
        ac.Core(net(), alpha=0.9)(torch.tensor(1.0))


def test_the_check_of_values_can_be_left_out() -> None:
    bad = X.clone()
    bad[3] = math.nan
    adapter = ac.AlphaBN(net(), alpha=1, check=False)
    good = torch.arange(16) != 3
    assert_equal(adapter(bad)[good], ac.Source(net())(X)[good])
    with pytest.warns(UserWarning, match="non-finite loss"):
        ac.Core(net(), alpha=0.5, check=False)(bad)


class Keywords(nn.Module):
    """Takes integers beside a float, as a language or a multimodal model does."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 3)
        self.net = net()

    def forward(
        self, pixels: Tensor, ids: Tensor | None = None, scale: Any = 1.0, mode: str = "plain"
    ) -> Tensor:
        x = pixels if ids is None else pixels + self.embedding(ids)[:, :, None, None]
        y: Tensor = self.net(x * scale)
        return y if mode == "plain" else 2 * y


def test_the_models_own_keywords() -> None:
    torch.manual_seed(0)
    model = Keywords()
    ids = torch.arange(16) % 10
    expected = model.eval()(X, ids, mode="double").detach()
    adapter = ac.Core(model, alpha=1.0)
    assert_close(adapter(pixels=X, ids=ids, mode="double"), expected)
    assert adapter.counts["samples"] == 16
    assert_close(adapter.predict(pixels=X), adapter.predict(X))
    for nested in ([X], {"a": X}):
        with pytest.raises((TypeError, AttributeError, RuntimeError)):
            adapter(pixels=nested)


def test_a_keyword_that_is_no_batch_may_come_first() -> None:
    adapter = ac.AlphaBN(Keywords(), alpha=0.9)
    expected = adapter.predict(pixels=X, scale=torch.tensor(2.0))
    assert_equal(adapter(scale=torch.tensor(2.0), pixels=X), expected)
    assert adapter.counts["samples"] == 16


class Detector(nn.Module):
    """Takes a list of images of any size, answers with a list of mappings."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Conv2d(3, 5, 1)

    def forward(self, images: list[Tensor]) -> list[dict[str, Tensor]]:
        side = min(min(image.shape[1:]) for image in images)
        x = torch.stack([image[:, :side, :side] for image in images])
        scores = self.head(self.norm(x)).mean((2, 3))
        return [{"scores": row, "labels": row.argmax()} for row in scores]


def test_a_detection_network_takes_lists() -> None:
    torch.manual_seed(0)
    images = [shifted(3, 8, 9), shifted(3, 6, 7, seed=2)]
    model = settle(Detector())
    expected = ac.alpha_bn(model, 0.2)(images)
    adapter = ac.AlphaBN(model, alpha=0.2)
    found = adapter(images)
    assert adapter.counts["samples"] == 2
    assert [row.keys() for row in found] == [{"scores", "labels"}] * 2
    for one, other in zip(found, expected, strict=True):
        assert_equal(one, other)
        assert not one["scores"].requires_grad
    with pytest.raises(TypeError, match=r"Core needs logits.*answered with list.*pass logits="):
        ac.Core(ac.restore(model), alpha=0.2)(images)
    core = ac.Core(
        ac.restore(model), alpha=0.9, logits=lambda rows: torch.stack([r["scores"] for r in rows])
    )
    core(images)
    assert core.counts["updates"] == 1


def test_a_detection_network_with_frozen_layers() -> None:
    ops = pytest.importorskip("torchvision.ops")
    torch.manual_seed(0)
    model = Detector()
    model.norm = ops.FrozenBatchNorm2d(3)
    images = [shifted(3, 8, 9), shifted(3, 6, 7, seed=2)]
    before = settle(model)(images)
    adapter = ac.AlphaBN(model, alpha=0.2, statistics="stream")
    assert not torch.equal(adapter(images)[0]["scores"], before[0]["scores"])
    with pytest.raises(ValueError, match="no affine parameter to train"):
        ac.Tent(ac.restore(model))


class Pair(NamedTuple):
    logits: Tensor
    hidden: list[Tensor]


Plain = namedtuple("Plain", ["logits", "note"])


@dataclasses.dataclass
class Data:
    logits: Tensor
    note: str = "kept"


@dataclasses.dataclass(frozen=True)
class Frozen:
    logits: Tensor


@dataclasses.dataclass(slots=True)
class Slots:
    logits: Tensor


@dataclasses.dataclass
class Output(OrderedDict[str, Any]):
    """As the transformers library has it: a mapping with attributes."""

    logits: Any = None
    hidden: Any = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                super().__setitem__(field.name, getattr(self, field.name))

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


STRUCTURES: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor] | None]] = {
    "tensor": (lambda y: y, None),
    "out": (lambda y: {"out": y, "aux": 2 * y}, None),
    "logits": (lambda y: OrderedDict(logits=y, note="kept"), None),
    "transformers": (lambda y: Output(logits=y, hidden=(y, [y])), None),
    "tuple": (lambda y: (y, [y, None, {"a": y}], "kept"), lambda out: out[0]),
    "list": (lambda y: [y, 3], lambda out: out[0]),
    "named tuple": (lambda y: Pair(y, [y]), lambda out: out.logits),
    "plain named tuple": (lambda y: Plain(y, "kept"), lambda out: out.logits),
    "dataclass": (lambda y: Data(y), lambda out: out.logits),
    "frozen dataclass": (lambda y: Frozen(y), lambda out: out.logits),
    "slots dataclass": (lambda y: Slots(y), lambda out: out.logits),
    "max": (lambda y: y.unsqueeze(-1).max(-1), lambda out: out.values),
}


def leaves(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    if isinstance(tree, (list, tuple)):
        return [leaf for value in tree for leaf in leaves(value)]
    if dataclasses.is_dataclass(tree):
        return [leaf for f in dataclasses.fields(tree) for leaf in leaves(getattr(tree, f.name))]
    return []


class Wrapped(nn.Module):
    def __init__(self, wrap: Callable[[Tensor], Any]):
        super().__init__()
        self.net, self.wrap = net(), wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(self.net(x))


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_answer_keeps_its_type_and_structure_without_a_graph(name: str) -> None:
    wrap, find = STRUCTURES[name]
    expected = wrap(ac.Core(net(), alpha=0.9)(X))
    adapter = ac.Core(Wrapped(wrap), alpha=0.9, logits=find)
    found = adapter(X)
    assert type(found) is type(expected)
    assert adapter.counts["updates"] == 1
    assert len(leaves(found)) == len(leaves(expected))
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        assert not one.requires_grad
        assert_equal(one, other)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        assert found.get("note") == expected.get("note")
    if isinstance(expected, (Data, Plain)):
        assert found.note == "kept"


@pytest.mark.parametrize(
    ("wrap", "got"),
    [
        (lambda y: (y, y), "tuple"),
        (lambda y: {"scores": y}, "dict"),
        (lambda y: y.sum(), r"logits of shape \(\)"),
        (lambda y: y[:, 0], r"logits of shape \(16,\)"),
    ],
)
def test_an_answer_without_logits_says_how_to_name_them(wrap: Any, got: str) -> None:
    adapter = ac.Core(Wrapped(wrap), alpha=0.9)
    sentence = rf"Core needs logits with the classes in dimension 1.*with {got}.*pass logits="
    with pytest.raises(TypeError, match=sentence):
        adapter(X)
    adapter.predict(X)
    ac.AlphaBN(Wrapped(wrap), alpha=0.9)(X)


def test_segmentation_needs_nothing_special() -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 5, 1)
    adapter = ac.Core(settle(nn.Sequential(*layers)), alpha=0.5, lr=1e-2)
    first = ac.functional.class_correlation(adapter(X))
    for _ in range(10):
        y = adapter(X)
    assert y.shape == (16, 5, 6, 6)
    assert ac.functional.class_correlation(y) < first


def test_the_batch_itself_is_not_written_to_or_given_a_gradient() -> None:
    for adapter in adapters():
        x = X.clone().requires_grad_()
        adapter(x)
        assert x.grad is None
        assert_equal(x.detach(), X)
