"""Small networks and what the tests ask of them."""

import copy
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn

from acclimate import Adapter


class Net(nn.Module):
    """The network of the parity fixtures, with any norm layer in place of BN."""

    def __init__(self, norm: Any = nn.BatchNorm2d):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = norm(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.bn2 = norm(16)
        self.relu = nn.ReLU(inplace=True)
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class Shared(nn.Module):
    """One BN layer under two names, used twice in a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.again = self.norm
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(self.second(self.norm(self.first(x)).relu())).relu()
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class Attention(nn.Module):
    """A vision transformer of one block: LayerNorm and nothing else that normalises."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.block(self.patches(x).flatten(2).mT))
        logits: Tensor = self.head(x.mean(1))
        return logits


class Permuted(nn.Module):
    """LayerNorm over the channels of (N, C, H, W), as ConvNeXt has it."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return y


def group_norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(4, channels)


def instance_norm(channels: int) -> nn.InstanceNorm2d:
    return nn.InstanceNorm2d(channels, affine=True)


def settle(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model in evaluation, as if trained: statistics and affine away from 0 and 1."""
    generator = torch.Generator().manual_seed(seed)

    def draw(like: Tensor) -> Tensor:
        return torch.rand(like.shape, generator=generator, dtype=torch.float64).to(like.dtype)

    for module in model.modules():
        tensors = {**module._parameters, **module._buffers}
        if tensors.get("running_mean") is None and not isinstance(
            module, (nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm2d)
        ):
            continue
        for name, offset in (
            ("weight", 0.5),
            ("bias", -0.5),
            ("running_mean", -0.5),
            (
                "running_var",
                0.5,
            ),
        ):
            tensor = tensors.get(name)
            if tensor is not None:
                tensor.data.copy_(draw(tensor) + offset)
    return model.eval()


def net(seed: int = 0, norm: Any = nn.BatchNorm2d) -> nn.Module:
    torch.manual_seed(seed)
    return settle(Net(norm), seed)


def shifted(*shape: int, seed: int = 1) -> Tensor:
    """A batch of the target: not what the statistics of `settle` expect."""
    return 1.7 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) + 0.6


def batches(count: int = 3, n: int = 16, shape: tuple[int, ...] = (3, 8, 8)) -> list[Tensor]:
    return [shifted(n, *shape, seed=seed) for seed in range(1, count + 1)]


def snapshot(model: nn.Module) -> dict[str, Any]:
    """All that `restore` must give back, in values that compare with `assert_same`."""
    modules = dict(model.named_modules(remove_duplicate=False))
    return {
        "classes": {path: type(module) for path, module in modules.items()},
        "attributes": {path: sorted(module.__dict__) for path, module in modules.items()},
        "training": {path: module.training for path, module in modules.items()},
        "requires_grad": {k: p.requires_grad for k, p in model.named_parameters()},
        "objects": {k: id(p) for k, p in model.named_parameters()},
        "values": {k: v.clone() for k, v in model.state_dict().items()},
    }


def fresh(model: nn.Module) -> dict[str, Any]:
    """A snapshot to compare with that of another object."""
    return {k: v for k, v in snapshot(model).items() if k != "objects"}


def contents(adapter: Adapter, path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What `save` writes of an adapter's state: header and tensors."""
    adapter.save(path)
    with safetensors.safe_open(path, framework="pt") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in sorted(file.keys())}


def assert_same_state(found: Any, expected: Any) -> None:
    """Two of `contents` agree, bit for bit."""
    assert found[0] == expected[0]
    assert_equal(found[1], expected[1])


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Snapshots agree, bit for bit."""
    for name in expected.keys() - {"values"}:
        assert found[name] == expected[name], name
    assert_equal(found["values"], expected["values"])


def assert_equal(found: Any, expected: Any) -> None:
    """Tensors, or mappings or sequences of them, agree bit for bit, type and keys included."""
    if isinstance(expected, Tensor):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected), (found - expected).abs().max()
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_equal(list(found.values()), list(expected.values()))
    else:
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def run(adapter: Adapter, stream: Iterable[Tensor]) -> list[Tensor]:
    return [adapter(x) for x in stream]


def clone(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model)


def through_torch_save(thing: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)
