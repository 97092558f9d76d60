"""What an adapter gives back: flags as they were found, and a failed start changes nothing."""

import pytest
import torch

import acclimate as ac
from networks import Net


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("meanwhile", [True, False])
def test_flags_come_back_as_they_were_found(training: bool, meanwhile: bool) -> None:
    model = Net().train(training)
    adapter = ac.Tent(model)
    model.train(meanwhile)
    adapter(torch.randn(16, 3, 8, 8))
    assert not any(module.training for module in model.modules())
    model.train(meanwhile)
    adapter.release()
    assert all(module.training for module in model.modules()) == (training or meanwhile)


def test_a_start_that_fails_leaves_the_calibration_that_it_found() -> None:
    model = ac.alpha_bn(Net(), 0.5)
    with pytest.raises(ValueError, match="Core needs alpha"):
        ac.Core(model)
    assert [row.alpha for row in ac.inspect(model)] == [0.5, 0.5]
    ac.restore(model)
    assert not any(row.calibrated for row in ac.inspect(model))
