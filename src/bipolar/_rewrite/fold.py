"""Folding of a bipolar network into the plain one that computes the same, by flipped signs of weights; and back."""

import random
from typing import Any, TypeVar, cast, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from bipolar._activations.patterns import Pattern
from bipolar._rewrite.functional_calls import Replacement, replace_calls_
from bipolar._rewrite.optimizer_state import Partners, carry_over
from bipolar._rewrite.outputs import difference, outputs_of
from bipolar._rewrite.replacement import copied, replaced, set_activation
from bipolar._rnn import StackedRNN
from bipolar._symmetry.analysis import Analysis, Goal, analyse, checked
from bipolar._symmetry.channels import channel_dim
from bipolar._symmetry.example import example_for
from bipolar._symmetry.recording import ActivationCall
from bipolar._symmetry.report import SymmetryReport

_Model = TypeVar("_Model", bound=nn.Module)


class FoldingError(RuntimeError):
    """A model cannot be folded, or not completely; the message names the nodes and the reasons."""


@overload
def fold(
    model: StackedRNN, example: Any = ..., *, strict: bool = ..., optimizer: torch.optim.Optimizer | None = ...
) -> "SignedRNN": ...
@overload
def fold(
    model: _Model, example: Any = ..., *, strict: bool = ..., optimizer: torch.optim.Optimizer | None = ...
) -> _Model: ...
def fold(
    model: nn.Module,
    example: Any = None,
    *,
    strict: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
) -> nn.Module:
    r"""The same function with plain activations: a bipolar network, folded into weights with flipped signs.

    With :math:`S` the signs of a pattern, :math:`S f(S x)` becomes :math:`f(x)`, every weight :math:`W` between two
    activations :math:`S W S`, and every bias :math:`S b`. Nothing is lost: for activations of the ReLU type the outputs
    are equal to the last bit. What has to stay bipolar does, because something between does not commute with the signs
    (:func:`~bipolar.symmetry` says what); ``folded.fold_report`` is that report.

    Where a model hands out the states of a :class:`~bipolar.StackedRNN`, to be given back, their signs are flipped as
    well. A stack on its own becomes a ``SignedRNN`` around a plain stack, and gives out what it did.

    Args:
        model: any model with bipolar activations; it is not changed
        example: an input, as for :func:`~bipolar.lsuv_`. Default: one is made up, if the first layer says enough
        strict: raise a :class:`FoldingError` if an activation has to stay bipolar. Default: ``False``
        optimizer: the model's optimiser: from now on it is that of the folded model, with its state flipped alike, and
            training goes on as if nothing had happened. Gradients are not taken along: fold between two steps

    Examples::

        >>> model = nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(), nn.Linear(8, 2))
        >>> plain = bipolar.fold(model)
        >>> plain[1]
        ReLU()
        >>> x = torch.randn(16, 4)
        >>> torch.equal(plain(x), model(x))
        True
    """
    return _with_activations(model, example, "plain", "alternate", strict, optimizer)


@overload
def unfold(
    model: StackedRNN,
    example: Any = ...,
    *,
    pattern: Pattern = ...,
    strict: bool = ...,
    optimizer: torch.optim.Optimizer | None = ...,
) -> "SignedRNN": ...
@overload
def unfold(
    model: _Model,
    example: Any = ...,
    *,
    pattern: Pattern = ...,
    strict: bool = ...,
    optimizer: torch.optim.Optimizer | None = ...,
) -> _Model: ...
def unfold(
    model: nn.Module,
    example: Any = None,
    *,
    pattern: Pattern = "alternate",
    strict: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
) -> nn.Module:
    """The same function with bipolar activations: a plain network, trained or not, to go on training as a bipolar one.

    The opposite of :func:`fold`, and with its arguments.

    Args:
        pattern: which channels the activations flip, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Examples::

        >>> plain = nn.Sequential(nn.Linear(4, 8), nn.ELU(), nn.Linear(8, 2))
        >>> bipolar.unfold(plain)[1]
        BELU(alpha=1.0, dim=-1)
    """
    return _with_activations(model, example, "bipolar", pattern, strict, optimizer)


def fold_report(model: nn.Module) -> SymmetryReport:
    """The report of the folding, or unfolding, that made a model; also its attribute ``fold_report``.

    Examples::

        >>> plain = bipolar.fold(nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(), nn.Linear(8, 2)))
        >>> bipolar.fold_report(plain).holds
        True
    """
    report = getattr(model, "fold_report", None)
    if not isinstance(report, SymmetryReport):
        raise ValueError(f"model: {type(model).__name__} was not made by bipolar.fold or unfold, and has no report")
    return report


class SignedRNN(nn.Module):
    """A recurrent stack between signs: what is left of a bipolar :class:`~bipolar.StackedRNN` when it stands alone.

    ``rnn`` is the plain one. Within a model that is folded as a whole there are no such signs: the layers before and
    after take them up.
    """

    input_sign: Tensor
    sign: Tensor

    def __init__(self, rnn: nn.Module, input_sign: Tensor, sign: Tensor) -> None:
        super().__init__()
        self.rnn = rnn
        self.register_buffer("input_sign", input_sign)
        self.register_buffer("sign", sign)

    def forward(
        self, input: Tensor | PackedSequence, state: Tensor | None = None, **options: Any
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        state = None if state is None else state * self.sign
        output, last = self.rnn(_flipped(input, self.input_sign), state, **options)
        return _flipped(output, self.sign), last * self.sign


def _flipped(sequences: Tensor | PackedSequence, sign: Tensor) -> Tensor | PackedSequence:
    if isinstance(sequences, PackedSequence):
        return PackedSequence(sequences.data * sign, *sequences[1:])
    return sequences * sign


class _BetweenLinear(nn.Module):
    """A stack between two linear layers, which let its input and output have any signs."""

    def __init__(self, rnn: StackedRNN) -> None:
        super().__init__()
        self.rnn = rnn
        self.before, self.after = (nn.Linear(n, n) for n in (rnn.input_size, rnn.hidden_size))

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = self.after(self.rnn(self.before(input))[0])
        return output


def _with_activations(
    model: nn.Module,
    example: Any,
    goal: Goal,
    pattern: Pattern,
    strict: bool,
    optimizer: torch.optim.Optimizer | None,
) -> nn.Module:
    original = checked(model)
    if isinstance(original, StackedRNN):
        changed, partners = _stack_alone(original, goal, pattern, strict)
    else:
        changed, partners = _changed(original, example_for(original, example), goal, pattern, strict)
    if optimizer is not None:
        carry_over(optimizer, partners)
    return changed


def _changed(
    original: nn.Module, example: Any, goal: Goal, pattern: Pattern, strict: bool
) -> tuple[nn.Module, Partners]:
    """A changed copy of a model, and for each parameter its new one with the signs of its flip."""
    changed = copied(original)
    analysis = analyse(changed, example, goal, pattern)
    report = analysis.report()
    if strict and not report.holds:
        raise FoldingError(f"model: {type(original).__name__} keeps activations as they are. {report.summary()}")
    flips = dict(analysis.flips())
    partners: Partners = {
        old: (new, flips.get(new)) for old, new in zip(original.parameters(), changed.parameters(), strict=True)
    }
    with torch.no_grad():
        for tensor, sign in flips.items():
            tensor.mul_(sign)
    changed = _with_other_activations(changed, analysis, goal)
    before, after = (_outputs_by_the_same_chance(some, example) for some in (original, changed))
    found = difference(before, after, 1e-4, any_sign=analysis.recording.flips_states)
    if found:
        raise FoldingError(
            f"model: {type(original).__name__} and its changed version do not compute the same on the example: {found}."
            " Does it compute something that no torch function shows?"
        )
    if analysis.changing:
        for module in changed.modules():  # with the old activations, convert(like=...) would not repeat this model
            module.__dict__.pop("conversion_report", None)
    changed.fold_report = report  # type: ignore[assignment]
    return changed, partners


def _outputs_by_the_same_chance(model: nn.Module, example: Any) -> list[Tensor]:
    """The outputs of a model, whose random numbers begin with the present state, and leave it as it is."""
    drawn = random.getstate()
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    try:
        with torch.random.fork_rng(list(devices)):
            return outputs_of(model, example)
    finally:
        random.setstate(drawn)


def _stack_alone(rnn: StackedRNN, goal: Goal, pattern: Pattern, strict: bool) -> tuple[nn.Module, Partners]:
    """Changes a stack between two layers that take up its signs, and puts these signs around it."""
    like = cast(Tensor, rnn.weight_ih_l0)
    between = _BetweenLinear(rnn).to(like)
    with torch.no_grad():
        between.before.bias.fill_(1)
        between.after.weight.fill_(1)
    example = torch.ones(2, 1, rnn.input_size, dtype=like.dtype, device=like.device)
    changed, partners = _changed(between, example, goal, pattern, strict)
    before, after = cast(nn.Linear, changed.before), cast(nn.Linear, changed.after)
    made = SignedRNN(cast(nn.Module, changed.rnn), before.bias.detach().clone(), after.weight.detach()[0].clone())
    made.training = rnn.training
    made.fold_report = changed.fold_report
    return made, partners


def _with_other_activations(model: nn.Module, analysis: Analysis, goal: Goal) -> nn.Module:
    functions: dict[str, list[Replacement]] = {}
    for site, calls in analysis.changing.items():
        module = model.get_submodule(site.owner)
        made = _other(calls, goal, analysis.pattern)
        if site.number is not None:
            place = analysis.recording.places[site.owner][site.number]
            functions.setdefault(site.owner, []).append(Replacement(place, calls[0].activation, made))
        elif isinstance(module, StackedRNN):
            set_activation(module, made)
        else:
            model = replaced(model, module, made)
    for owner, replacements in functions.items():
        replace_calls_(model.get_submodule(owner), replacements)
    return model


def _other(calls: list[ActivationCall], goal: Goal, pattern: Pattern) -> nn.Module:
    activation = calls[0].activation
    if goal == "plain":
        return activation.plain()
    stacked = len(calls[0].shape) == 1
    return activation.bipolar(-1 if stacked else channel_dim(calls) or 0, pattern)


__all__ = ["FoldingError", "SignedRNN", "fold", "fold_report", "unfold"]
