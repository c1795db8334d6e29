"""Activations of a model that can change between bipolar and plain if some weights change their signs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from bipolar._activations.patterns import Pattern, check_pattern, signs
from bipolar._rnn import StackedRNN
from bipolar._symmetry.channels import channel_dim
from bipolar._symmetry.evidence import Question, counter_examples
from bipolar._symmetry.example import example_for
from bipolar._symmetry.own_source import NotReplaceableError, find_call
from bipolar._symmetry.recording import ActivationCall, Recording, Site
from bipolar._symmetry.report import SymmetryReport, SymmetryRow
from bipolar._symmetry.rules.modules import rule_of
from bipolar._symmetry.rules.refusal import NOT_ODD
from bipolar._symmetry.solver import Conflict, SolvedSigns, Wish
from bipolar._symmetry.trace import record
from bipolar._tools.calling import unwrapped

Goal: TypeAlias = Literal["plain", "bipolar"]


@dataclass
class Analysis:
    """A recorded pass, its signs, and the activations that change, or stay for a reason."""

    recording: Recording
    solution: SolvedSigns
    pattern: Pattern
    changing: dict[Site, list[ActivationCall]] = field(default_factory=dict)
    staying: dict[Site, str] = field(default_factory=dict)
    #: For activations that cannot change, a counter-example in words.
    refuted: dict[Site, str] = field(default_factory=dict)
    #: The nodes that break the symmetry, with the reason.
    breaking: dict[int, str] = field(default_factory=dict)

    def flips(self) -> list[tuple[Tensor, Tensor]]:
        """The parameters and buffers that change, each with the signs to multiply it by."""
        found = []
        for tensor, factors in self.recording.weights.items():
            sign = torch.ones((), dtype=torch.float64)
            for factor in factors:
                sign = sign * self.solution.of(factor)
            if (sign == -1).any():
                found.append((tensor, sign.to(tensor)))
        return found

    def report(self) -> SymmetryReport:
        sites = dict.fromkeys(self.changing, "") | self.staying
        order = list(dict.fromkeys(call.site for call in self.recording.activations if call.site in sites))
        reasons = {call.node: self.staying.get(call.site, "") for call in self.recording.activations}
        rows = []
        for number, node in enumerate(self.recording.nodes):
            if node.training and number not in self.breaking:
                continue  # the same node of the pass in evaluation has a row
            flipped = 0 if node.signs is None else int((self.solution.of(node.signs) == -1).sum())
            reason = self.breaking.get(number, "") or reasons.get(number, "")
            rows.append(SymmetryRow(node.module, node.function, flipped, number in self.breaking, reason))
        idle = _idle_modules(self.recording)
        notes = [f"Did not run on this example, and was not looked at: {', '.join(idle)}."] if idle else []
        refuted = {str(site): self.refuted[site] for site in order if site in self.refuted}
        return SymmetryReport({str(site): sites[site] for site in order}, rows, notes + self.recording.notes, refuted)


def symmetry(model: nn.Module, example: Any = None) -> SymmetryReport:
    r"""Whether bipolar activations make this model anything but the plain one with some weights' signs flipped.

    With :math:`S = \text{diag}(\pm 1)` a bipolar activation is :math:`S f(S x)`. Put :math:`S W S` for every weight and
    :math:`S b` for every bias, and the S cancel, as long as everything between the activations commutes with them. Here
    the signs are followed through one pass on an example. Where they cancel, bipolar activations can change what an
    initialiser measures, and nothing else; and :func:`~bipolar.fold` can take them away.

    Other activations get one of two verdicts. One *cannot be* folded if a node f that its signs reach changes more than
    signs: for the node's input x on the example, the sizes of :math:`f(S x)` and :math:`f(x)` differ. This refutes that
    f lets the signs through, whatever signs of units change before and after it. For all others it is *not shown*: no
    rule tells the signs behind some node, or weights of its own might take them up.

    Args:
        model: a model with bipolar activations; one with only plain ones is judged as if they were bipolar
        example: an input, as for :func:`~bipolar.lsuv_`: a tensor, a tuple of arguments or a dictionary of them.
            Default: one is made up, if the model's first layer says enough

    Examples::

        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), bipolar.BReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2))
        >>> report = bipolar.symmetry(model, torch.randn(2, 3, 4, 4))
        >>> report.holds, report.broken_by[0].name, report.broken_by[0].reason
        (False, '2', 'it takes a maximum')
    """
    model = checked(model)
    example = example_for(model, example)
    analysis = analyse(model, example, "plain")
    if not any(call.activation.channels for call in analysis.recording.activations):
        analysis = analyse(model, example, "bipolar")
    return analysis.report()


def checked(model: object) -> nn.Module:
    """A model without its wrappers; an error for anything else."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, not {model!r} of type {type(model).__name__}")
    return unwrapped(model)


def analyse(model: nn.Module, example: Any, goal: Goal, pattern: Pattern = "alternate") -> Analysis:
    """Records a model, and finds the signs with which its activations become plain, or bipolar."""
    check_pattern(pattern)
    recording = record(model, example)
    sites = _sites_to_change(recording, goal)
    staying = _pin_hindered(recording, sites)
    wishes = [
        Wish.of(site, call.node, call.unknowns, _pattern_signs(calls, call, pattern))
        for site, calls in sites.items()
        if site not in staying
        for call in calls
    ]
    solution = recording.constraints.solve(wishes)
    conflicts = {site: solution.refused[site] for site in sites if site in solution.refused}
    staying |= {site: _explanation(recording, sites, site, conflict) for site, conflict in conflicts.items()}
    breaking = _breaking_nodes(conflicts.values())
    changing = {site: calls for site, calls in sites.items() if site not in staying}
    refuted = counter_examples(model, example, _questions(recording, conflicts, wishes))
    return Analysis(recording, solution, pattern, changing, staying, refuted, breaking)


def _questions(recording: Recording, conflicts: dict[Site, Conflict], wishes: Sequence[Wish]) -> dict[Site, Question]:
    """For each refused activation the node that its signs do not pass, and the signs that reach this node."""
    found = {}
    for site, conflict in conflicts.items():
        asked = [wish for wish in wishes if wish.unit == site]
        if conflict.unit not in (None, site):
            others = [wish for wish in wishes if wish.unit == conflict.unit]
            asked += [wish.refused() for wish in others] if conflict.reason else others
        number = conflict.node if conflict.unit is None or conflict.meeting is None else conflict.meeting
        node = recording.nodes[number]
        same = {i for i, n in enumerate(recording.nodes) if (n.module, n.function) == (node.module, node.function)}
        signs = recording.constraints.forced(asked, same)
        if signs is not None:
            found[site] = Question(number, node, signs)
    return found


def _sites_to_change(recording: Recording, goal: Goal) -> dict[Site, list[ActivationCall]]:
    """The activations that are to change; all others require +1."""
    found: dict[Site, list[ActivationCall]] = {}
    for call in recording.activations:
        if (call.activation.channels is None) == (goal == "bipolar"):
            found.setdefault(call.site, []).append(call)
        else:
            reason = "it stays bipolar" if call.activation.channels else NOT_ODD
            recording.constraints.plus(call.unknowns, call.node, reason)
    return found


def _pin_hindered(recording: Recording, sites: dict[Site, list[ActivationCall]]) -> dict[Site, str]:
    """The activations that cannot change whatever the signs, with the reason; they require +1."""
    found = {}
    for site, calls in sites.items():
        reason = _hindrance(recording, site, calls)
        if reason:
            found[site] = reason
            for call in calls:
                recording.constraints.plus(call.unknowns, call.node, reason)
    return found


def _hindrance(recording: Recording, site: Site, calls: list[ActivationCall]) -> str:
    """The reason why an activation cannot change, whatever the signs; empty if there is none."""
    recognised = calls[0].activation
    owner = recording.model.get_submodule(site.owner)
    stacked, dimensions = isinstance(owner, StackedRNN), len(calls[0].shape)
    if owner in recording.frozen:
        return recording.frozen[owner]
    if site.number is not None:
        try:
            find_call(owner, recording.places[site.owner][site.number], recognised)
        except NotReplaceableError as error:
            return str(error)
    if recognised.channels is None and channel_dim(calls) is None:
        return "the dimension of its channels is not known"
    dim = recognised.channels[0] if recognised.channels else channel_dim(calls)
    if recognised.slopes > 1 and not stacked and (dimensions == 1 or dim not in (1, 1 - dimensions)):
        return "a plain PReLU has its channels in dimension 1"
    return ""


def _pattern_signs(calls: list[ActivationCall], call: ActivationCall, pattern: Pattern) -> Tensor:
    """The signs of an activation's channels, in a shape that broadcasts to its input's."""
    dim, own = call.activation.channels or (channel_dim(calls) or 0, pattern)
    dim = 0 if len(call.shape) == 1 else dim % len(call.shape)
    return signs(call.shape[dim], own).view([-1 if d == dim else 1 for d in range(len(call.shape))])


def _explanation(recording: Recording, sites: dict[Site, list[ActivationCall]], site: Site, conflict: Conflict) -> str:
    """A conflict in words, for the activation whose wish it refuses."""
    node = recording.nodes[conflict.node]
    if conflict.unit is None:
        return f"{node}: {conflict.reason}" if conflict.node != sites[site][0].node else conflict.reason
    meeting = "" if conflict.meeting is None else f" at {recording.nodes[conflict.meeting]}"
    if conflict.unit == site:
        return f"some of its channels have to have one sign{meeting}"
    if conflict.reason:
        return f"it meets{meeting} {conflict.unit}, which stays as it is"
    return f"it meets{meeting} {conflict.unit}, which has another pattern"


def _breaking_nodes(conflicts: Iterable[Conflict]) -> dict[int, str]:
    """The nodes that conflicts blame, with the reason."""
    found = {}
    for conflict in conflicts:
        if conflict.unit is None:
            found[conflict.node] = conflict.reason
        elif conflict.meeting is not None and not conflict.reason:
            found[conflict.meeting] = "signs that have to differ meet here"
    return found


def _idle_modules(recording: Recording) -> list[str]:
    """The modules with parameters that did not run."""
    whole = {part for m in recording.model.modules() if rule_of(m) is not None for part in m.modules()}
    return [
        name
        for name, module in recording.model.named_modules()
        if name not in recording.arguments
        and module not in whole
        and any(p not in recording.weights for p in module.parameters(recurse=False))
    ]
