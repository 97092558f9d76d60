"""The core on a GPU: the same answers as float64 on the CPU. Skipped, all of it, without one."""

import copy

import pytest
import torch
from torch import Tensor, nn

import acclimate as ac

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def network() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )
    for layer in model:
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.running_mean, std=0.2)  # type: ignore[arg-type]
            nn.init.uniform_(layer.running_var, 0.5, 2)  # type: ignore[arg-type]
    return model.eval()


def batches(n: int = 4, size: int = 24) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return 1.7 * torch.randn(n, size, 3, 16, 16, generator=generator) + 0.6


def answers(adapter: ac.Adapter, stream: Tensor) -> Tensor:
    return torch.stack([adapter(x).double().cpu() for x in stream])


@pytest.mark.parametrize("statistics", ["batch", "stream"])
@pytest.mark.parametrize("method", ["alpha_bn", "tent", "core"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_answers_agree_with_float64_on_the_cpu(
    method: str, statistics: str, layout: torch.memory_format
) -> None:
    expected = answers(
        ac.adapt(network().double(), method, alpha=0.3, statistics=statistics), batches().double()
    )
    model = network().cuda().to(memory_format=layout)
    adapter = ac.adapt(model, method, alpha=0.3, statistics=statistics)
    found = torch.stack(
        [adapter(x.cuda().to(memory_format=layout)).double().cpu() for x in batches()]
    )
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)  # TF32 is off by default


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_networks_adapt(dtype: torch.dtype) -> None:
    expected = answers(ac.Core(network().double(), alpha=0.3), batches().double())
    model = network().cuda().to(dtype)
    adapter = ac.Core(model, alpha=0.3)
    before = copy.deepcopy(model.state_dict())
    found = answers(adapter, batches().cuda().to(dtype))
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
    assert adapter.counts["updates"] == 4
    assert any(not torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_autocast() -> None:
    expected = answers(ac.Core(network().double(), alpha=0.3), batches().double())
    adapter = ac.Core(network().cuda(), alpha=0.3)
    with torch.autocast("cuda", torch.bfloat16):
        found = answers(adapter, batches().cuda())
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


def test_statistics_of_large_offsets_in_half_precision() -> None:
    x = torch.randn(64, 4, 8, 8, device="cuda") + 100
    mean, var = ac.functional.batch_statistics(x.half())
    exact = x.half().double()
    assert mean.dtype == torch.float32
    torch.testing.assert_close(mean.double(), exact.mean((0, 2, 3)), rtol=1e-5, atol=0)
    torch.testing.assert_close(
        var.double(), exact.var((0, 2, 3), correction=0), rtol=1e-4, atol=1e-5
    )


def test_an_adapter_moves_with_its_model() -> None:
    stream = batches()
    still = ac.Core(network(), alpha=0.3, statistics="stream")
    moving = ac.Core(network(), alpha=0.3, statistics="stream")
    for i, x in enumerate(stream):
        device = "cuda" if i % 2 else "cpu"
        moving.to(device)
        torch.testing.assert_close(moving(x.to(device)).cpu(), still(x), rtol=1e-3, atol=1e-3)
    assert moving.counts["updates"] == len(stream)


def test_inputs_on_another_device_are_refused() -> None:
    adapter = ac.Core(network().cuda(), alpha=0.3)
    with pytest.raises(ValueError, match="is on cpu, but the model is on cuda:0"):
        adapter(batches()[0])


def test_inductor() -> None:
    expected = answers(ac.Core(network().cuda(), alpha=0.3), batches().cuda())
    adapter = ac.Core(torch.compile(network().cuda(), fullgraph=True), alpha=0.3)  # type: ignore[arg-type]
    found = answers(adapter, batches().cuda())
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
