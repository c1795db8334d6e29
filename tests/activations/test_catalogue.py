"""Every entry of the catalogue works everywhere, and so does a new one."""

import copy
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bipolar
import bipolar.functional as F
from bipolar._activations import catalogue, registry
from bipolar._activations.catalogue import ENTRIES, CatalogueEntry, always
from bipolar._activations.kernels import Kernel
from bipolar._activations.recognition import kernel_of
from bipolar.models import CharRNN

#: Arguments that have no default.
MODULE_ARGUMENTS: dict[str, dict[str, Any]] = {"threshold": {"threshold": 0.25, "value": 0.0}}
FUNCTION_ARGUMENTS = MODULE_ARGUMENTS | {"prelu": {"weight": torch.tensor([0.25])}}


def plain(entry: CatalogueEntry) -> nn.Module:
    return entry.module(**MODULE_ARGUMENTS.get(entry.name, {})).eval()


def versions(entry: CatalogueEntry) -> list[nn.Module]:
    """The plain module, and the bipolar one if there is one."""
    return [plain(entry), *([entry.bipolar(dim=-1).eval()] if entry.relu_family() else [])]


def between_layers(activation: nn.Module) -> nn.Sequential:
    doubled = 2 if isinstance(activation, bipolar.CReLU) else 1
    return nn.Sequential(nn.Linear(6, 8), activation, nn.Linear(doubled * 8, 3)).eval()


class Calling(nn.Module):
    """A network that calls its activation as a function."""

    def __init__(self, f: Callable[..., Tensor], arguments: dict[str, Any]) -> None:
        super().__init__()
        self.up, self.down, self.f = nn.Linear(6, 8), nn.Linear(8, 3), functools.partial(f, **arguments)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.f(self.up(x)))
        return out


def names(entry: CatalogueEntry) -> None:
    assert type(bipolar.get_activation(entry.name)) is entry.module
    assert registry.name_of(plain(entry)) == entry.name
    assert (entry.bipolar_name in bipolar.list_activations()) == entry.relu_family()
    if entry.relu_family():
        module, x = bipolar.get_activation(entry.bipolar_name, dim=0, pattern="halves").eval(), torch.randn(4, 3)
        torch.testing.assert_close(module(x), F.bipolar(plain(entry), x, 0, "halves"))
        assert registry.name_of(module) == entry.bipolar_name
        converted = bipolar.convert(nn.Sequential(bipolar.StackedRNN(4, 6, 2, entry.name)))
        assert converted[0].nonlinearity == entry.bipolar_name


def conversion_of_modules(entry: CatalogueEntry) -> None:
    model, x = between_layers(plain(entry)), torch.randn(5, 6)
    for example in (None, x):
        converted = bipolar.convert(model, example=example)
        assert len(converted.conversion_report.changed) == entry.relu_family()
        expected = F.bipolar(model[1], model[0](x), -1) if entry.relu_family() else model[1](model[0](x))
        torch.testing.assert_close(converted(x), model[2](expected))


def conversion_of_functions(entry: CatalogueEntry) -> None:
    assert entry.function is not None
    model, x = Calling(entry.function, FUNCTION_ARGUMENTS.get(entry.name, {})).eval(), torch.randn(5, 6)
    converted = bipolar.convert(model, example=x)
    report = converted.conversion_report
    if {"weight", "training"} & set(entry.arguments):
        assert "as a function, which is not the same as the module" in report.rows[0].note
    elif entry.relu_family():
        assert [row.note for row in report.changed] == ["functions, now modules"]
        torch.testing.assert_close(converted(x), model.down(F.bipolar(entry.function, model.up(x), -1)))
    else:
        assert not report.changed


def lsuv(entry: CatalogueEntry) -> None:
    for activation in versions(entry):
        model, x = between_layers(activation), torch.randn(64, 6)
        row = next(iter(bipolar.lsuv_(model, x)))
        followed = entry.function is not None and entry.unit_variance()
        assert (row.at != "output") == followed
        assert model[: 2 if followed else 1](x).var().item() == pytest.approx(1.0, abs=1e-2)


def probing(entry: CatalogueEntry) -> None:
    for activation in versions(entry):
        layer = bipolar.probe(between_layers(activation), torch.randn(16, 6)).layers[1]
        assert (layer.saturated is not None) == (entry.function is not None and entry.module is not bipolar.CReLU)


def symmetry(entry: CatalogueEntry) -> None:
    """After a bipolar activation, only an odd one keeps the signs."""
    tail = list(between_layers(plain(entry)))[1:]
    model = nn.Sequential(nn.Linear(6, 8), bipolar.BReLU(dim=-1), *tail)
    assert bipolar.symmetry(model, torch.randn(5, 6)).holds == entry.odd()


def folding(entry: CatalogueEntry) -> None:
    model, x = between_layers(plain(entry)), torch.randn(5, 6)
    unfolded = bipolar.unfold(model, x, strict=True)
    assert isinstance(unfolded[1], entry.bipolar_module or bipolar.Bipolar)
    assert bipolar.symmetry(unfolded, x).holds
    folded = bipolar.fold(unfolded, x, strict=True)
    assert type(folded[1]) is entry.module
    assert all(torch.equal(p, q) for p, q in zip(folded.parameters(), model.parameters(), strict=True))
    for other in (unfolded, folded):
        assert torch.equal(other(x), model(x))


def stack(entry: CatalogueEntry) -> None:
    for activation in versions(entry):
        rnn = bipolar.StackedRNN(4, 6, 5, copy.deepcopy(activation), skip_every=2, dtype=torch.float64).double().eval()
        fast = entry.kernel is not None and not isinstance(activation, bipolar.Bipolar)
        assert (kernel_of(rnn.activation) is not None) == fast
        x = torch.randn(7, 3, 4, dtype=torch.float64)
        found = []
        for backend in ("reference", "auto", *(("scan", "wavefront") if fast else ())):
            rnn.backend = backend
            output, state = rnn(x)
            loss = output.square().sum() + state.sum()
            found.append([output, state, *torch.autograd.grad(loss, list(rnn.parameters()))])
        for others in found[1:]:
            torch.testing.assert_close(others, found[0])


def kernel(entry: CatalogueEntry) -> None:
    """Forwards and backwards, from the output alone."""
    assert entry.function is not None
    assert entry.kernel is not None
    made = entry.kernel()
    x = torch.linspace(-3, 3, 50, dtype=torch.float64, requires_grad=True)
    y = entry.function(x)
    (derivative,) = torch.autograd.grad(y.sum(), x)
    for forward in (made.forward, made.forward_):
        torch.testing.assert_close(forward(x.detach().clone()), y.detach())
    for backward in (made.backward, made.backward_):
        torch.testing.assert_close(backward(torch.ones_like(y), y.detach().clone(), True), derivative)


def facts(entry: CatalogueEntry) -> None:
    """The facts are those of the function: parity by its values, unit variance by a gain that gives it."""
    module, x = plain(entry).double(), torch.linspace(-3, 3, 48, dtype=torch.float64).view(-1, 2)
    assert torch.allclose(module(-x), -module(x)) == entry.odd()
    assert not (entry.odd() and entry.relu_family())
    try:
        bipolar.gain(plain(entry))
    except ValueError:
        assert not entry.unit_variance()
    else:
        assert entry.unit_variance()


def kinks(entry: CatalogueEntry) -> None:
    """The integrals are as exact as if they were split all over."""
    everywhere = [i / 4 for i in range(-24, 25)]
    for activation in versions(entry):
        for std in (0.7, 1.3, 5.0):
            expected = bipolar.moments(activation, std, kinks=everywhere)
            assert bipolar.moments(activation, std) == pytest.approx(expected, abs=1e-6, rel=1e-6)


def every(_: CatalogueEntry) -> bool:
    return True


def keeps_shape(entry: CatalogueEntry) -> bool:
    return entry.module is not bipolar.CReLU


#: Which entries have to pass which check.
CHECKS: dict[Callable[[CatalogueEntry], None], Callable[[CatalogueEntry], bool]] = {
    names: lambda entry: entry.has_defaults,
    conversion_of_modules: every,
    conversion_of_functions: lambda entry: entry.function is not None and keeps_shape(entry),
    lsuv: every,
    probing: every,
    symmetry: every,
    folding: lambda entry: entry.relu_family(),
    stack: keeps_shape,
    kernel: lambda entry: entry.kernel is not None,
    facts: keeps_shape,
    kinks: every,
}


@pytest.mark.parametrize(
    ("check", "entry"),
    [
        pytest.param(check, entry, id=f"{check.__name__}-{entry.name}")
        for check, applies in CHECKS.items()
        for entry in ENTRIES.values()
        if applies(entry)
    ],
)
def test_every_entry(check: Callable[[CatalogueEntry], None], entry: CatalogueEntry) -> None:
    check(entry)


@pytest.mark.parametrize(
    ("bounds", "relu_family", "odd", "unit_variance"),
    [
        ((-1.0, 1.0), False, True, False),
        ((-2.0, 2.0), False, True, True),
        ((0.0, 6.0), True, False, True),
        ((0.0, 1.0), True, False, False),
        ((-1.0, 2.0), False, False, True),
    ],
)
def test_facts_on_hardtanh_depend_on_its_bounds(
    bounds: tuple[float, float], relu_family: bool, odd: bool, unit_variance: bool
) -> None:
    entry, model, x = ENTRIES["hardtanh"], between_layers(nn.Hardtanh(*bounds)), torch.randn(64, 6)
    for options in (entry.options_of_module(model[1]), entry.options_of_call((x, *bounds), {})):
        assert entry.relu_family(**options) == relu_family
        assert entry.odd(**options) == odd
        assert entry.unit_variance(**options) == unit_variance
    assert len(bipolar.convert(model).conversion_report.changed) == relu_family
    signed = nn.Sequential(nn.Linear(6, 8), bipolar.BReLU(dim=-1), *list(model)[1:])
    assert bipolar.symmetry(signed, x).holds == odd
    assert (next(iter(bipolar.lsuv_(model, x))).at != "output") == unit_variance


def test_a_converted_model_is_saved_with_the_name_of_its_bipolar_activation(tmp_path: Path) -> None:
    """One without a module of its own, in which the plain one is still found."""
    model = bipolar.convert(CharRNN("abc", 8, 4, nonlinearity="mish")).eval()
    model.save_pretrained(tmp_path)
    loaded = CharRNN.from_pretrained(tmp_path).eval()
    assert loaded.rnn.nonlinearity == "bmish"
    x = torch.tensor([[0, 1, 2]])
    assert torch.equal(loaded(x)[0], model(x)[0])


def test_every_public_activation_is_in_the_catalogue() -> None:
    functions = {F.bipolar, *(f for entry in ENTRIES.values() for f in (entry.function, entry.bipolar_function))}
    assert {getattr(F, name) for name in F.__all__} <= functions
    public = (getattr(bipolar, name) for name in bipolar.__all__)
    activations = {m for m in public if getattr(m, "__module__", "").startswith("bipolar._activations")}
    classes = {kind for kind in activations if isinstance(kind, type) and kind is not bipolar.Bipolar}
    assert classes == {kind for kind in classes if catalogue.of_class(kind) is not None}


@F.overridable
def squareplus(input: Tensor, b: float = 1.0) -> Tensor:
    """(x + sqrt(x² + b)) / 2, which torch does not have (https://arxiv.org/abs/2112.11687)."""
    return (input + torch.sqrt(input.square() + b)) / 2


class Squareplus(nn.Module):
    def __init__(self, b: float = 1.0) -> None:
        super().__init__()
        self.b = b

    def forward(self, input: Tensor) -> Tensor:
        return squareplus(input, self.b)


def squareplus_kernel(b: float = 1.0) -> Kernel:
    def backward(grad: Tensor, y: Tensor, _: bool) -> Tensor:
        return grad * y.square() / (y.square() + b / 4)

    return Kernel(
        forward=lambda u: squareplus(u, b),
        forward_=lambda u: u.copy_(squareplus(u, b)),
        backward=backward,
        backward_=lambda grad, y, _: y.copy_(backward(grad, y, True)),
        output_suffices=True,
    )


@pytest.fixture
def scratch_catalogue() -> Iterator[None]:
    tables: list[dict[Any, Any]] = [catalogue.ENTRIES, catalogue._BY_CLASS, catalogue._BY_FUNCTION]
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)


@pytest.mark.usefixtures("scratch_catalogue")
def test_a_new_activation_is_one_entry() -> None:
    with pytest.raises(ValueError, match="no activation is called 'squareplus'"):
        bipolar.get_activation("squareplus")
    entry = CatalogueEntry("squareplus", Squareplus, squareplus, ("b",), relu_family=always, kernel=squareplus_kernel)
    catalogue.add(entry)
    for check, applies in CHECKS.items():
        assert applies(entry)
        check(entry)
    converted = bipolar.convert(between_layers(Squareplus(b=0.5)))
    assert converted[1].f.b == 0.5


def test_the_new_activation_is_gone() -> None:
    assert "squareplus" not in bipolar.list_activations()
