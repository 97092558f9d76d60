"""Batch sizes, layouts and modes, before and after wrapping and after a step."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate as ac
from conformance.table import (
    FAMILIES,
    Family,
    Row,
    over_families,
    over_methods,
    over_pairs,
)
from networks import (
    Net,
    assert_close,
    assert_equal,
    assert_same_state,
    batches,
    clone,
    contents,
    net,
    settle,
    shifted,
)


@pytest.fixture(autouse=True)
def small_batches_are_meant() -> Any:
    """The advice on small batches has its own test."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\d+ samples are few")
        yield


@over_pairs
def test_batches_of_any_size_and_a_ragged_last_one(family: Family, row: Row) -> None:
    adapter = row.on(family.model())
    for n in (1, 2, 3, 16, 7):
        y = adapter(family.batch(n))
        assert y.shape[0] == n
        assert y.isfinite().all()
        assert adapter.predict(family.batch(n)).isfinite().all()
    assert adapter.counts["samples"] == 29
    assert adapter.counts["skipped"] == {}


@over_pairs
def test_an_empty_batch_gives_what_the_source_gives(
    family: Family, row: Row, tmp_path: Path
) -> None:
    model, x = family.model(), family.batch(0)
    expected = model(x)
    adapter = row.on(model)
    for _ in range(2):
        state = contents(adapter, tmp_path / "state")
        assert_equal(adapter(x), expected.detach())
        assert_equal(adapter.predict(x), expected.detach())
        assert_same_state(contents(adapter, tmp_path / "state"), state)
        adapter(family.batch())
    ac.restore(model)
    for alpha in (0.0, 0.5):
        assert_equal(ac.alpha_bn(model, alpha)(x), expected)


@over_families
def test_each_sample_counts_the_same_whatever_the_size_of_its_batch(family: Family) -> None:
    """Eq. 3 and 4 know no order of the samples."""
    model, x = ac.alpha_bn(family.model(), 0.3), family.batch(5)
    order = torch.tensor([3, 0, 4, 2, 1])
    assert_close(model(x[order]), model(x)[order])
    assert_close(model(torch.cat([x, x])), torch.cat([model(x)] * 2))


def test_one_value_a_channel_is_normalised_by_the_source() -> None:
    head: Any = settle(nn.BatchNorm1d(8))
    image: Any = settle(nn.BatchNorm2d(8))
    for layer, x in (head, shifted(1, 8)), (head, shifted(1, 8, 1)), (image, shifted(1, 8, 1, 1)):
        expected = layer(x)
        for alpha in (0.0, 0.5, ac.prior(16), torch.tensor(0.0)):
            with ac.calibrated(layer, alpha):
                assert_close(layer(x), expected)
                assert_close(layer(x.requires_grad_()), expected)
                slope = torch.autograd.grad(layer(x).sum(), x)[0].flatten()
                assert_close(slope, layer.weight / (layer.running_var + layer.eps).sqrt())
                with torch.no_grad():
                    assert_close(layer(x), expected)


def test_1x1_maps_of_several_samples_have_statistics() -> None:
    image, head = settle(nn.BatchNorm2d(8)), settle(nn.BatchNorm1d(8))
    x = shifted(3, 8)
    expected = ac.alpha_bn(head, 0.2)(x)
    assert not torch.equal(expected, ac.restore(head)(x))
    for maps in x[:, :, None, None], x[:, :, None, None].to(memory_format=torch.channels_last):
        assert_close(ac.alpha_bn(image, 0.2)(maps).flatten(1), expected)


@pytest.mark.parametrize("family", [f for f in FAMILIES if len(f.shape) == 3], ids=str)
def test_channels_last_is_kept_and_answers_the_same(family: Family) -> None:
    model, x = ac.alpha_bn(family.model(), 0.4), family.batch()
    expected = model(x)
    seen = []
    for module in model.modules():
        if (ac.inspect(module) and module is not model) or family.name == "root":
            module.register_forward_hook(lambda m, i, y: seen.append((i[0], y)))
    model, last = model.to(memory_format=torch.channels_last), torch.channels_last
    layout = x.to(memory_format=last)
    for gradient in (False, True):
        with torch.set_grad_enabled(gradient):
            assert_close(model(layout.requires_grad_(gradient)), expected)
    assert len(seen) >= 2
    for before, after in seen:
        assert after.is_contiguous(memory_format=last) == before.is_contiguous(memory_format=last)
        assert after.is_contiguous(memory_format=last)


class Dropping(Net):
    """Dropout before the head, and a branch that is sometimes left out."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        if self.training:
            x = x * (torch.rand(len(x), 1, 1, 1) > 0.5)
        x = self.relu(self.bn2(self.conv2(x)))
        x = nn.functional.dropout(x.mean((2, 3)), 0.5, self.training)
        logits: Tensor = self.fc(x)
        return logits


MODES: dict[str, Callable[[nn.Module], Any]] = {
    "train": nn.Module.train,
    "eval": nn.Module.eval,
    "to": lambda model: model.to("cpu", torch.float32),
    "train the layers": lambda model: [m.train() for m in model.children()],
}


@pytest.mark.parametrize("mode", MODES)
@over_methods
def test_modes_after_wrapping_and_after_a_step_change_no_answer(row: Row, mode: str) -> None:
    adapter = row.on(settle(Dropping()).eval())
    reference = row.on(clone(ac.restore(clone(adapter.model))))
    for x in batches(3):
        MODES[mode](adapter.model)
        expected = reference.predict(x)
        assert_equal(adapter.predict(x), expected)
        MODES[mode](adapter)
        assert_equal(adapter(x), reference(x))


@over_families
def test_calibrated_layers_answer_the_same_in_train_and_eval(family: Family) -> None:
    model, x = ac.alpha_bn(family.model(), 0.5), family.batch()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    expected = model.eval()(x)
    assert_equal(model.train()(x), expected)
    assert all(module.training for module in model.modules())
    assert_equal(dict(model.named_buffers()), before)


def test_a_tensor_alpha_and_carried_values_follow_the_network() -> None:
    """`meta` stands for another device: what registries do not know must move, too."""
    model = ac.alpha_bn(net(), torch.tensor(0.5)).to("meta")
    assert model(torch.empty(4, 3, 8, 8, device="meta")).device.type == "meta"
