from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from acclimate.data.corruptions import CORRUPTIONS, STAND_INS, corrupt
from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.recipe import CIFAR, IMAGENET, strength

SHARED = Path(__file__).parents[3] / "shared"
DETERMINISTIC = (
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
)
RANDOM = tuple(name for name in CORRUPTIONS if name not in DETERMINISTIC)

needs_golden = pytest.mark.skipif(
    not (SHARED / "golden").exists(), reason="the golden outputs (../shared/golden) are not here"
)


@pytest.fixture(scope="module")
def images() -> Tensor:
    """Smooth pictures, as photographs are: noise alone would hide what a blur does."""
    rows, columns = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    phase = torch.arange(12 * 3).view(12, 3, 1, 1)
    waves = torch.sin(rows / 5 + phase) + torch.cos(columns / 4 + 2 * phase)
    return (127 + 60 * waves).to(torch.uint8)


def deviation(a: Tensor, b: Tensor) -> float:
    return float((a.float() - b.float()).pow(2).mean().sqrt())


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_keeps_shape_and_type_and_its_input(name: str, images: Tensor) -> None:
    before = images.clone()
    corrupted = corrupt(images, name, 3)
    assert corrupted.shape == images.shape
    assert corrupted.dtype == torch.uint8
    assert torch.equal(images, before)
    assert not torch.equal(corrupted, images)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_does_not_depend_on_batch_or_order(name: str, images: Tensor) -> None:
    together = corrupt(images, name, 4, seed=7)
    order = torch.tensor([5, 0, 11, 3])
    assert torch.equal(corrupt(images[order], name, 4, seed=7, indices=order), together[order])
    for place in range(len(images)):
        alone = corrupt(images[[place]], name, 4, seed=7, indices=torch.tensor([place]))
        assert torch.equal(alone, together[[place]])


@pytest.mark.parametrize("name", RANDOM)
def test_seed_index_and_severity_change_the_draws(name: str, images: Tensor) -> None:
    same = images[:1].expand(6, -1, -1, -1)
    drawn = corrupt(same, name, 5, seed=0)
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn, corrupt(same, name, 5, seed=1))


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_draws_nothing_where_the_recipe_does_not(name: str, images: Tensor) -> None:
    assert torch.equal(corrupt(images, name, 5, seed=0), corrupt(images, name, 5, seed=1))


# The published elastic_transform moves pixels *less* as it goes up, but ever less smoothly.
@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name != "elastic_transform"])
def test_severity_1_is_closer_to_clean_than_5(name: str, images: Tensor) -> None:
    mild, strong = (deviation(corrupt(images, name, s), images) for s in (1, 5))
    assert mild < strong


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("size", [(16, 24), (96, 64)])
def test_other_sizes_scale(name: str, size: tuple[int, int], images: Tensor) -> None:
    resized = torch.nn.functional.interpolate(images[:2].float(), size).to(torch.uint8)
    assert corrupt(resized, name, 5).shape == resized.shape


def test_empty_batch_is_an_empty_batch(images: Tensor) -> None:
    assert corrupt(images[:0], "fog", 2).shape == (0, 3, 32, 32)


def test_both_recipes_hold_all_severities_of_all_corruptions() -> None:
    for table in (CIFAR, IMAGENET):
        assert set(table) == set(CORRUPTIONS)
        assert {len(entries) for entries in table.values()} == {5}


def test_lengths_scale_with_the_side() -> None:
    assert strength("motion_blur", 1, 64) == ((6, 1), 2.0)
    assert strength("motion_blur", 1, 224) == ((10, 3), 1.0)


def test_an_unknown_corruption_names_the_nearest(images: Tensor) -> None:
    with pytest.raises(ValueError, match=r"unknown corruption 'gausian_noise': did you mean 'gaus"):
        corrupt(images, "gausian_noise", 1)


@pytest.mark.parametrize("severity", [0, 6, True, 2.5])
def test_a_severity_outside_1_to_5_is_refused(severity: Any, images: Tensor) -> None:
    with pytest.raises(ValueError, match=rf"severity is {severity}.*1 \(mild\) to 5.*leave the"):
        corrupt(images, "fog", severity)


def test_float_images_are_refused(images: Tensor) -> None:
    with pytest.raises(
        TypeError, match=r"images are torch\.float32.*uint8.*before they are scaled"
    ):
        corrupt(images.float(), "fog", 1)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 1, 32, 32), (1, 3, 8, 32)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"have the shape \(.*take \(N, 3, H, W\).*permute"):
        corrupt(torch.zeros(shape, dtype=torch.uint8), "fog", 1)


@pytest.mark.parametrize("indices", [torch.arange(3), torch.zeros(12)])
def test_indices_that_do_not_fit_are_refused(indices: Tensor, images: Tensor) -> None:
    with pytest.raises(ValueError, match=r"indices are .* needs one whole number: its place"):
        corrupt(images, "fog", 1, indices=indices)


def test_frost_needs_pictures_larger_than_the_image() -> None:
    large = torch.zeros(1, 3, 1024, 1024, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"1024 x 1024 pixels; the frost pictures.*resize"):
        corrupt(large, "frost", 1)


def test_draws_have_the_right_distributions() -> None:
    draws = Draws(0, "test", 1, torch.arange(1000))
    uniform, normal = draws.uniform(1000), draws.normal(1001)
    assert 0 < uniform.min() < 1e-4
    assert 1 - 1e-4 < uniform.max() < 1
    assert uniform.mean() == pytest.approx(0.5, abs=2e-3)
    assert normal.mean() == pytest.approx(0, abs=5e-3)
    assert normal.std() == pytest.approx(1, abs=5e-3)
    assert normal.pow(4).mean() == pytest.approx(3, abs=0.05)
    counts = draws.integers(-2, 2, 1000).flatten().add(2).bincount()
    assert len(counts) == 4
    assert counts.float().div(1e6).sub(0.25).abs().max() < 3e-3


def test_draws_of_neighbours_and_calls_are_independent() -> None:
    draws = Draws(-5, "test", 1, torch.arange(2))
    first, second = draws.normal(100_000), draws.normal(100_000)
    rows = torch.cat([first, second])
    assert (torch.corrcoef(rows) - torch.eye(4)).abs().max() < 0.015


def test_the_integers_are_the_same_everywhere() -> None:
    drawn = Draws(1, "fog", 2, torch.tensor([3])).integers(0, 1000, 6)
    assert drawn.tolist() == [[650, 44, 72, 824, 590, 730]]


@needs_golden
@pytest.mark.parametrize("file", ["cifar10c", "imagenetc"])
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_matches_the_published_recipe(name: str, file: str) -> None:
    golden = np.load(SHARED / "golden" / f"{file}.npz")
    clean = torch.from_numpy(golden["clean"]).permute(0, 3, 1, 2).contiguous()
    checked = [s for s in range(1, 6) if f"{name}_{s}" in golden.files]
    assert len(checked) >= 3
    for severity in checked:
        ours = corrupt(clean, name, severity).permute(0, 2, 3, 1).numpy().astype(int)
        close = np.abs(ours - golden[f"{name}_{severity}"]) <= 1
        assert close.mean() >= 0.99, severity


@needs_golden
@pytest.mark.parametrize("name", RANDOM)
def test_matches_the_published_statistics(name: str, cifar: Tensor) -> None:
    if name in STAND_INS:
        pytest.skip(f"{name}: {STAND_INS[name]}")
    published = json.loads((SHARED / "golden" / "statistics.json").read_text())["cifar10"][name]
    for severity in (1, 5):
        runs = [statistics(corrupt(cifar, name, severity, seed=s), cifar) for s in range(10)]
        for key, value in published[str(severity)].items():
            ours = [run[key] for run in runs]
            allowed = max(0.03 * abs(value), 0.5, 3.5 * float(np.std(ours, ddof=1)))
            assert np.mean(ours) == pytest.approx(value, abs=allowed), (severity, key)


@pytest.fixture(scope="module")
def cifar() -> Tensor:
    sys.path.insert(0, str(SHARED / "data"))
    try:
        import unpack  # type: ignore[import-not-found,unused-ignore]
    finally:
        sys.path.pop(0)
    images, _ = unpack.tiles("cifar10_test")
    return torch.from_numpy(images[:500]).permute(0, 3, 1, 2).contiguous()


def statistics(corrupted: Tensor, clean: Tensor) -> dict[str, float]:
    """The statistics that ../shared/golden/README.md names."""
    x, difference = corrupted.double(), corrupted.double() - clean.double()
    values = {
        "mean": x.mean(),
        "std": x.std(correction=0),
        "rms_difference": difference.pow(2).mean().sqrt(),
        "mean_abs_difference": difference.abs().mean(),
        "gradient_x": x.diff(dim=3).abs().mean(),
        "gradient_y": x.diff(dim=2).abs().mean(),
        "share_0": 100 * (x == 0).double().mean(),
        "share_255": 100 * (x == 255).double().mean(),
        "std_of_image_means": x.mean((1, 2, 3)).std(correction=0),
    }
    return {key: float(value) for key, value in values.items()}
