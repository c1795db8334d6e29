"""Which activations of a model could change between bipolar and plain, by nothing but flipped signs of weights."""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from bipolar._activations.patterns import Pattern, check_pattern, signs
from bipolar._rewrite import functional_calls as rewriting
from bipolar._symmetry.guess import example_for
from bipolar._symmetry.report import SymmetryReport, SymmetryRow
from bipolar._symmetry.solver import Conflict, Solution, Wish
from bipolar._symmetry.trace import ActivationCall, Recording, Site, record
from bipolar._tools.calling import unwrapped

Goal: TypeAlias = Literal["plain", "bipolar"]


@dataclass
class Analysis:
    """A recorded pass, its signs, and the sites of the activations that can change, or cannot, with the reason."""

    recording: Recording
    solution: Solution
    pattern: Pattern
    changing: dict[Site, list[ActivationCall]] = field(default_factory=dict)
    staying: dict[Site, str] = field(default_factory=dict)
    #: the nodes that are the reason
    breaking: dict[int, str] = field(default_factory=dict)

    def flips(self) -> list[tuple[Tensor, Tensor]]:
        """The parameters and buffers that change, each with the signs to multiply it with."""
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
                continue  # told already, as it runs in evaluation
            flipped = 0 if node.signs is None else int((self.solution.of(node.signs) == -1).sum())
            reason = self.breaking.get(number, "") or reasons.get(number, "")
            rows.append(SymmetryRow(node.module, node.function, flipped, number in self.breaking, reason))
        idle = self.recording.idle()
        notes = [f"Did not run on this example, and was not looked at: {', '.join(idle)}."] if idle else []
        return SymmetryReport({str(site): sites[site] for site in order}, rows, notes + self.recording.notes)


def analyse(model: nn.Module, example: Any, goal: Goal, pattern: Pattern = "alternate") -> Analysis:
    """Records a model, and finds the signs with which its activations become plain, or bipolar."""
    check_pattern(pattern)
    recording = record(model, example)
    units: dict[Site, list[ActivationCall]] = {}
    staying: dict[Site, str] = {}
    for call in recording.activations:
        if (call.twin.channels is None) == (goal == "bipolar"):
            units.setdefault(call.site, []).append(call)
        else:
            reason = "it stays bipolar" if call.twin.channels else "a plain activation, it knows + from -"
            recording.constraints.plus(call.unknowns, call.node, reason)
    for site, calls in units.items():
        reason = _hindrance(recording, site, calls, pattern)
        if reason:
            staying[site] = reason
            for call in calls:
                recording.constraints.plus(call.unknowns, call.node, reason)
    wishes = [
        Wish.of(site, call.node, call.unknowns, _signs(calls, call, pattern))
        for site, calls in units.items()
        if site not in staying
        for call in calls
    ]
    breaking = dict(recording.obstacles)
    solution = recording.constraints.solve([] if breaking else wishes)
    if breaking:
        where, why = recording.obstacles[0]
        staying |= dict.fromkeys(units, f"{recording.nodes[where]}: {why}")
    else:
        for site in units:
            conflict = solution.refused.get(site)
            if conflict is None:
                continue
            staying[site] = _explained(recording, units, site, conflict)
            if conflict.unit is None:
                breaking[conflict.node] = conflict.reason
            elif conflict.meeting is not None and not conflict.reason:
                breaking[conflict.meeting] = "signs that have to differ meet here"
    changing = {site: calls for site, calls in units.items() if site not in staying}
    return Analysis(recording, solution, pattern, changing, staying, breaking)


def symmetry(model: nn.Module, example: Any = None) -> SymmetryReport:
    r"""Whether bipolar activations make this model anything but the plain one with some weights' signs flipped.

    With :math:`S = \text{diag}(\pm 1)` a bipolar activation is :math:`S f(S x)`. Put :math:`S W S` for every weight and
    :math:`S b` for every bias, and the S cancel, as long as everything between the activations commutes with them. Here
    the signs are followed through one pass on an example. Where they cancel, bipolar activations can change what an
    initialiser measures, and nothing else; and :func:`~bipolar.fold` can take them away.

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
    model = unwrapped(model)
    example = example_for(model, example)
    analysis = analyse(model, example, "plain")
    if not any(call.twin.channels for call in analysis.recording.activations):
        analysis = analyse(model, example, "bipolar")
    return analysis.report()


def channel_dim(calls: list[ActivationCall]) -> int | None:
    """The dimension of the channels, for all calls of an activation; None if it is not known.

    -1 after a linear layer, 1 after a convolution, and what else fits elsewhere.
    """
    known = [dims for call in calls if (dims := _channel_dims(call))]
    common = set.intersection(*known) if len(known) == len(calls) else set()
    return next((dim for dim in (-1, 1, *sorted(common, reverse=True)) if dim in common), None)


def disagree(calls: list[ActivationCall]) -> bool:
    """Whether the channels are in one dimension at one call, and in another at another."""
    known = [dims for call in calls if (dims := _channel_dims(call))]
    return bool(known) and not set.intersection(*known)


def _channel_dims(call: ActivationCall) -> set[int]:
    """The one dimension along which its signs may vary, counted from the front and from the back."""
    dims = [dim for dim, size in enumerate(call.unknowns.shape) if size > 1]
    return {dims[0], dims[0] - len(call.shape)} if len(dims) == 1 else set()


def _signs(calls: list[ActivationCall], call: ActivationCall, pattern: Pattern) -> Tensor:
    """The signs of an activation's channels, in a shape that broadcasts to its input's."""
    dim, own = call.twin.channels or (channel_dim(calls) or 0, pattern)
    dim = 0 if len(call.shape) == 1 else dim % len(call.shape)
    return signs(call.shape[dim], own).view([-1 if d == dim else 1 for d in range(len(call.shape))])


def _hindrance(recording: Recording, site: Site, calls: list[ActivationCall], pattern: Pattern) -> str:
    """Why an activation cannot be changed, whatever the signs."""
    twin = calls[0].twin
    stacked = len(calls[0].shape) == 1
    if site.number is not None:
        owner = recording.model.get_submodule(site.owner)
        try:
            rewriting.check(owner, recording.arguments[site.owner], recording.count(site.owner), [twin])
        except rewriting.RewritingError as error:
            return str(error)
    if twin.channels is None and channel_dim(calls) is None:
        return "its channels are not in one dimension that is known"
    dim = twin.channels[0] if twin.channels else channel_dim(calls)
    if twin.slopes > 1 and not stacked and dim not in (1, 1 - len(calls[0].shape)):
        return "a plain PReLU has its channels in dimension 1"
    return ""


def _explained(recording: Recording, units: dict[Site, list[ActivationCall]], site: Site, conflict: Conflict) -> str:
    node = recording.nodes[conflict.node]
    if conflict.unit is None:
        return f"{node}: {conflict.reason}" if conflict.node != units[site][0].node else conflict.reason
    meeting = "" if conflict.meeting is None else f" at {recording.nodes[conflict.meeting]}"
    if conflict.unit == site:
        return f"some of its channels have to have one sign{meeting}"
    if conflict.reason:
        return f"it meets{meeting} {conflict.unit}, which stays as it is"
    return f"it meets{meeting} {conflict.unit}, which has another pattern"
