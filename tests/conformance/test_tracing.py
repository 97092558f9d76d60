"""What records a network: torch.export, ONNX, torch.fx, jit.trace; and torch.func's transforms."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, jvp, vmap

import acclimate as ac
from conformance.table import ACT2D, BN2D, FAMILIES, FROZEN, ZOO, Family, over_families
from networks import assert_close, assert_equal, clone, net, run, settle, shifted

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
DYNAMIC = ({0: torch.export.Dim("batch", min=2, max=64)},)


@pytest.mark.parametrize("family", [*FAMILIES, ZOO[1]], ids=str)
def test_export_with_a_dynamic_batch(family: Family) -> None:
    model = ac.alpha_bn(family.model(), 0.5)
    program = torch.export.export(model, (family.batch(4),), dynamic_shapes=DYNAMIC, strict=False)
    for n in (2, 3, 16):
        assert_close(program.module()(family.batch(n)), model(family.batch(n)))


def test_export_in_strict_mode_and_of_alpha_1() -> None:
    for alpha in (0.5, 1, ac.prior(16)):
        model = ac.alpha_bn(net(), alpha)
        program = torch.export.export(model, (BN2D.batch(4),), dynamic_shapes=DYNAMIC, strict=True)
        assert_close(program.module()(BN2D.batch(7)), model(BN2D.batch(7)))


def test_export_of_a_stream_is_what_predict_answers() -> None:
    adapter = ac.Core(net(), alpha=0.5, statistics="stream")
    run(adapter, BN2D.stream())
    x = BN2D.batch(4)
    with torch.no_grad():
        program = torch.export.export(adapter.model, (x,), dynamic_shapes=DYNAMIC, strict=False)
    for n in (2, 5):
        assert_close(program.module()(BN2D.batch(n)), adapter.predict(BN2D.batch(n)))


@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize("family", [BN2D, FAMILIES[1], ACT2D], ids=str)
def test_onnx_with_a_dynamic_batch(family: Family, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = ac.alpha_bn(family.model(), 0.5)
    path = tmp_path / "model.onnx"
    example = (family.batch(4),)
    torch.onnx.export(model, example, path, dynamo=True, dynamic_shapes=DYNAMIC, verbose=False)
    session = runtime.InferenceSession(path)
    for n in (2, 5):
        x = family.batch(n)
        (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        assert_close(torch.from_numpy(found), model(x).detach(), 1e-4)


@pytest.mark.parametrize(
    "family", [f for f in FAMILIES if f.name not in ("root", "act2d", "frozen")], ids=str
)
def test_fx_takes_calibrated_layers_for_leaves(family: Family) -> None:
    model = ac.alpha_bn(family.model(), 0.5)
    traced, x = torch.fx.symbolic_trace(model), family.batch()
    assert_equal(traced(x), model(x))
    assert {n.target for n in traced.graph.nodes if n.op == "call_module"} >= {
        row.path for row in ac.inspect(model)
    }
    assert not torch.equal(ac.restore(traced)(x), ac.alpha_bn(model, 0.2)(x))


@pytest.mark.parametrize("family", [ACT2D, FROZEN], ids=str)
def test_fx_takes_other_layers_when_they_are_named(family: Family) -> None:
    model, x = ac.alpha_bn(family.model(), 0.5), family.batch()
    base = type(model.bn1).__mro__[1]

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, m: nn.Module, name: str) -> bool:
            return isinstance(m, base) or super().is_leaf_module(m, name)

    traced = torch.fx.GraphModule(model, Tracer().trace(model))
    assert_equal(traced(x), model(x))


@pytest.mark.filterwarnings("ignore:.torch.jit.trace.* is deprecated")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # shapes that it takes for constants
@over_families
def test_jit_trace(family: Family) -> None:
    model = ac.alpha_bn(family.model(), 0.5)
    traced = torch.jit.trace(model, family.batch(4))
    for n in (4, 9):
        assert_close(traced(family.batch(n)), model(family.batch(n)))


@over_families
def test_func_grad_and_functional_call(family: Family) -> None:
    model, x = ac.alpha_bn(family.model(), 0.5), family.batch()
    parameters = dict(model.named_parameters())
    doubled = {name: 2 * p.detach() for name, p in parameters.items()}

    def loss(values: dict[str, Tensor], x: Tensor) -> Tensor:
        answer: Tensor = functional_call(model, values, x)
        return answer.square().mean()

    double = clone(model)
    double.load_state_dict(doubled, strict=False)
    assert_close(loss(doubled, x), double(x).square().mean())
    if not doubled:
        return
    found = grad(loss)(doubled, x)
    expected = torch.autograd.grad(double(x).square().mean(), list(double.parameters()))
    for one, other in zip(found.values(), expected, strict=True):
        assert_close(one, other)
    (by_x,) = torch.autograd.grad(double(x.requires_grad_()).square().mean(), x)
    assert_close(grad(loss, 1)(doubled, x.detach()), by_x)


@over_families
def test_vmap_is_a_loop_over_batches(family: Family) -> None:
    """With an in-place ReLU behind a layer, too: vmap must not hand out views."""
    model = ac.alpha_bn(family.model(), 0.5)
    stack = torch.stack(family.stream())
    with torch.no_grad():
        expected = torch.stack([model(x) for x in stack])
        assert_close(vmap(model)(stack), expected)
    assert_close(vmap(model)(stack), expected)


@over_families
def test_vmap_of_grad_is_a_loop_of_gradients(family: Family) -> None:
    model, stack = ac.alpha_bn(family.model(), 0.5), torch.stack(family.stream())

    def loss(x: Tensor) -> Tensor:
        return model(x).square().mean()  # type: ignore[no-any-return]

    found = vmap(grad(loss))(stack)
    for one, x in zip(found, stack, strict=True):
        x = x.clone().requires_grad_()
        assert_close(one, torch.autograd.grad(loss(x), x)[0])


def test_vmap_over_parameters_and_over_alpha() -> None:
    x, model = shifted(8, 4), settle(nn.Sequential(nn.BatchNorm1d(4)))
    ac.alpha_bn(model, 0.5)
    weights = torch.rand(3, 4)
    found = vmap(lambda w: functional_call(model, {"0.weight": w}, x))(weights)
    for one, weight in zip(found, weights, strict=True):
        assert_close(one, functional_call(model, {"0.weight": weight}, x))
    jacobian = jacrev(lambda w: functional_call(model, {"0.weight": w}, x).sum(0))(weights[0])
    assert jacobian.shape == (4, 4)


def test_a_tensor_alpha_takes_the_gradient_that_finite_differences_find() -> None:
    for form in (float, lambda v: [v, torch.tensor(0.3)], lambda v: {"bn2": v}):
        model, x = net().double(), BN2D.batch().double()
        alpha = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
        keys = list(model.state_dict())
        value = alpha if form is float else form(alpha)
        loss = ac.alpha_bn(model, value)(x).square().mean()
        (found,) = torch.autograd.grad(loss, alpha)
        ends = []
        for step in (1e-6, -1e-6):
            moved = alpha.detach() + step
            value = moved if form is float else form(moved)
            ends.append(ac.alpha_bn(model, value)(x).square().mean().item())
        assert found.item() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)
        assert list(model.state_dict()) == keys


@over_families
def test_a_second_derivative_is_refused(family: Family) -> None:
    model, x = ac.alpha_bn(family.model(), 0.5), family.batch().requires_grad_()
    (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    with pytest.raises(TypeError, match=r"second derivative.*acclimate\.restore\(model\)"):
        first.sum().backward()


def test_a_second_derivative_by_the_parameters_is_refused() -> None:
    model, x = ac.alpha_bn(net(), 0.5), BN2D.batch()
    weights = list(model.parameters())
    first = torch.autograd.grad(model(x).square().sum(), weights, create_graph=True)
    with pytest.raises(TypeError, match="second derivative"):
        torch.autograd.grad(torch.stack([g.square().sum() for g in first]).sum(), weights)


def test_a_hessian_of_torch_func_is_refused() -> None:
    model = ac.alpha_bn(settle(nn.BatchNorm1d(4)), 0.5)

    def loss(x: Tensor) -> Tensor:
        return model(x).square().sum()  # type: ignore[no-any-return]

    with pytest.raises(TypeError, match="second derivative"):
        jacrev(grad(loss))(shifted(8, 4))


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # how torch 2.15 loads its own rules
@over_families
def test_forward_mode_is_refused(family: Family) -> None:
    model, x = ac.alpha_bn(family.model(), 0.5), family.batch()
    sentence = r"Forward-mode differentiation reached the calibrated layer.*torch\.func\.grad"
    with pytest.raises(TypeError, match=sentence):
        jvp(model, (x,), (torch.ones_like(x),))
    with pytest.raises(TypeError, match=sentence), torch.autograd.forward_ad.dual_level():
        model(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))


@pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated")
def test_jit_script_is_refused() -> None:
    model = settle(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    torch.jit.script(model)
    for calibrated in (ac.alpha_bn(model, 0.5), ac.alpha_bn(settle(nn.BatchNorm2d(3)), 0.5)):
        with pytest.raises(TypeError, match=r"torch\.jit\.script cannot compile.*torch\.export"):
            torch.jit.script(calibrated)
    torch.jit.script(ac.restore(model))
