"""The modules: the functions of :mod:`bipolar.functional` with everything that makes an ``nn.Module``."""

import copy
import io
import pickle
import shutil
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bipolar
import bipolar.functional as F
from bipolar._activations.patterns import PATTERNS, Pattern
from tests.helpers.definition import CASES, Case

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)

MODULES: dict[str, nn.Module] = {
    "BReLU": bipolar.BReLU(),
    "BELU": bipolar.BELU(0.5, pattern="halves"),
    "BLeakyReLU": bipolar.BLeakyReLU(0.1, dim=-1),
    "BPReLU": bipolar.BPReLU(),
    "BPReLU(6)": bipolar.BPReLU(6, init=0.1),
    "BRReLU": bipolar.BRReLU().eval(),
    "BSELU": bipolar.BSELU(),
    "BCELU": bipolar.BCELU(2.0),
    "BGELU": bipolar.BGELU("tanh"),
    "BSiLU": bipolar.BSiLU(),
    "BSoftplus": bipolar.BSoftplus(2.0),
    "Bipolar(module)": bipolar.Bipolar(nn.Hardswish(), dim=-1),
    "Bipolar(function)": bipolar.Bipolar(torch.sin, pattern="halves"),
    "OPLU": bipolar.OPLU(),
    "CReLU": bipolar.CReLU(),
}
UNKNOWN: Any = "odd"
every_module = pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)


@pytest.fixture(autouse=True)
def forget_compilations() -> None:
    torch.compiler.reset()  # else the recompile limit is reached, as one function meets many modules


def network(module: nn.Module) -> nn.Sequential:
    outputs = 12 if isinstance(module, bipolar.CReLU) else 6
    return nn.Sequential(nn.Linear(5, 6), copy.deepcopy(module), nn.Linear(outputs, 2))


def assert_same_gradients(model: nn.Module, twin: nn.Module) -> None:
    ours, theirs = ({name: p.grad for name, p in net.named_parameters()} for net in (model, twin))
    assert None not in ours.values()
    torch.testing.assert_close(theirs, ours)


@every_case
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("dim", [1, -1, 0])
def test_a_module_is_its_function(case: Case, pattern: Pattern, dim: int) -> None:
    x = torch.randn(3, 4, 5)
    initial = {"init": 0.3} if case.module is bipolar.BPReLU else {}
    module = case.module(**case.arguments, **initial, dim=dim, pattern=pattern).eval()
    torch.testing.assert_close(module(x), case(x, dim=dim, pattern=pattern))


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.inplace])
def test_in_place_modules_overwrite_their_input(case: Case) -> None:
    module = case.module(**case.arguments, inplace=True)
    x = torch.randn(3, 4)
    expected = case(x)
    assert module.eval()(x) is x
    torch.testing.assert_close(x, expected)
    assert "inplace=True" in repr(module)


@every_module
def test_copies_pickles_and_state(module: nn.Module) -> None:
    x = torch.randn(3, 6)
    saved = io.BytesIO()
    torch.save(module.state_dict(), saved)
    saved.seek(0)
    fresh = copy.deepcopy(module)
    for parameter in fresh.parameters():
        nn.init.zeros_(parameter)
    fresh.load_state_dict(torch.load(saved, weights_only=True))
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), fresh):  # noqa: S301 - our own bytes
        assert torch.equal(twin(x), module(x))
        assert repr(twin) == repr(module)


@every_module
def test_compiles_into_one_graph(module: nn.Module) -> None:
    model, x = network(module), torch.randn(3, 5)
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x))
    for net in (model, compiled):
        net(x).square().sum().backward()
    assert_same_gradients(model, twin)


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.inplace])
def test_in_place_compiles_into_one_graph(case: Case) -> None:
    def run(x: Tensor) -> Tensor:
        y = x * 1
        case(y, inplace=True)
        return y

    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(x), case(x))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a C++ compiler, and there is no c++")
def test_compiles_with_inductor() -> None:
    def run(x: Tensor) -> Tensor:
        return F.bsilu(F.belu(F.brelu(x) - x, pattern="halves"), dim=-1)

    x = torch.randn(4, 7, 5, requires_grad=True)
    # without trials of the compiler, which take as long again: the instructions that the processor has are used
    compiled = torch.compile(run, fullgraph=True, options={"cpp.vec_isa_ok": True})(x)
    output = run(x)
    torch.testing.assert_close(compiled, output)
    grad = torch.randn_like(x)
    torch.testing.assert_close(*(torch.autograd.grad(y, x, grad)[0] for y in (compiled, output)))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a C++ compiler, and there is no c++")
def test_compiled_brelu_keeps_its_output_alone() -> None:
    """As a ReLU does, within a network: the layer above keeps it anyway."""

    def kept(activation: nn.Module) -> int:
        torch.compiler.reset()
        model, sizes = nn.Sequential(nn.Linear(8, 8), activation, nn.Linear(8, 8)), {}

        def note(tensor: Tensor) -> Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        compiled, x = torch.compile(model), torch.randn(64, 8)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            compiled(x)
        return sum(sizes.values())

    assert kept(bipolar.BReLU()) == kept(nn.ReLU())


@pytest.mark.parametrize("compiler", ["aot_eager", *(["inductor"] if shutil.which("c++") else [])])
def test_the_output_of_compiled_brelu_may_be_changed_in_place(compiler: str) -> None:
    """Right gradients, or an error as for a ReLU: within what is compiled, and after."""

    def changed(x: Tensor) -> Tensor:
        return F.brelu(x).add_(1).square()

    torch.compiler.reset()
    x = torch.randn(3, 4, requires_grad=True)
    (expected,) = torch.autograd.grad((F.brelu(x) + 1).square().sum(), x)
    (found,) = torch.autograd.grad(torch.compile(changed, backend=compiler)(x).sum(), x)
    torch.testing.assert_close(found, expected)
    output = torch.compile(F.brelu, backend=compiler)(x).add_(1).square()
    try:
        (found,) = torch.autograd.grad(output.sum(), x)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)  # noqa: PT017 - either will do
    else:
        torch.testing.assert_close(found, expected)


@every_module
@pytest.mark.parametrize("strict", [False, True])
def test_exports_with_a_free_batch_size_and_keeps_its_gradient(module: nn.Module, strict: bool) -> None:
    model, x = network(module), torch.randn(3, 5)
    batch = torch.export.Dim("batch")
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: batch},), strict=strict).module()
    larger = torch.randn(8, 5)
    torch.testing.assert_close(exported(larger), model(larger))
    for net in (model, exported):
        net(larger).square().sum().backward()
    assert_same_gradients(model, exported)


@every_module
def test_moves_to_any_device_and_dtype(module: nn.Module) -> None:
    model = network(module)
    assert model.to("meta")(torch.empty(3, 5, device="meta")).shape == (3, 2)
    model = network(module).to(torch.bfloat16)
    assert model(torch.randn(3, 5, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_prelu_learns_its_slopes() -> None:
    module = bipolar.BPReLU(4, init=0.1, dtype=torch.float64)
    assert module.weight.tolist() == [0.1] * 4
    target = torch.tensor([0.5, 0.6, 0.7, 0.8], dtype=torch.float64)
    x = torch.randn(256, 4, dtype=torch.float64)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    for _ in range(200):
        optimizer.zero_grad()
        (module(x) - F.bprelu(x, target)).square().mean().backward()
        optimizer.step()
    torch.testing.assert_close(module.weight.detach(), target, rtol=1e-3, atol=1e-3)


def test_rrelu_is_random_in_training_only() -> None:
    module, x = bipolar.BRReLU(), torch.randn(4, 8)
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))


def test_a_module_within_bipolar_is_trained_with_it() -> None:
    module = bipolar.Bipolar(nn.PReLU())
    assert [name for name, _ in module.named_parameters()] == ["f.weight"]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (bipolar.BReLU(), "BReLU(dim=1)"),
        (bipolar.BELU(0.5, inplace=True, dim=-1), "BELU(alpha=0.5, dim=-1, inplace=True)"),
        (bipolar.BLeakyReLU(pattern="halves"), "BLeakyReLU(negative_slope=0.01, dim=1, pattern=halves)"),
        (bipolar.BPReLU(3), "BPReLU(num_parameters=3, dim=1)"),
        (bipolar.BRReLU(0.1, 0.2), "BRReLU(lower=0.1, upper=0.2, dim=1)"),
        (bipolar.BGELU(), "BGELU(approximate=none, dim=1)"),
        (bipolar.BSoftplus(), "BSoftplus(beta=1.0, threshold=20.0, dim=1)"),
        (bipolar.Bipolar(torch.tanh), "Bipolar(f=tanh, dim=1)"),
        (bipolar.CReLU(dim=-1), "CReLU(dim=-1)"),
        (bipolar.OPLU(), "OPLU(dim=1)"),
    ],
)
def test_representation(module: nn.Module, expected: str) -> None:
    assert repr(module) == expected


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: bipolar.BReLU(pattern=UNKNOWN), ValueError, "pattern: expected one of"),
        (lambda: bipolar.BRReLU(0.5, 0.1), ValueError, "lower: expected at most upper"),
        (lambda: bipolar.BCELU(0.0), ValueError, "alpha: expected a number other than 0"),
        (lambda: bipolar.CReLU(UNKNOWN), TypeError, "f: expected a function or module, got 'odd'"),
        (lambda: bipolar.Bipolar(UNKNOWN), TypeError, "f: expected a function or module, got 'odd'"),
    ],
)
def test_bad_arguments_are_refused_when_the_module_is_made(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
