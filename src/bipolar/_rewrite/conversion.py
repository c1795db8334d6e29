"""Conversion in progress: norm layers that go, activations that change, and the report on both."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from bipolar._activations.modules import Bipolar
from bipolar._activations.recognition import RecognisedActivation, resembles_activation
from bipolar._rewrite.activation_choice import ActivationChoice, ChannelPlaces, UnknownChannelsError
from bipolar._rewrite.conversion_report import LEFT, ConversionReport, ConversionRow
from bipolar._rewrite.functional_calls import Replacement, replace_calls_
from bipolar._rewrite.norm_recognition import ChosenNorms, norm_calls
from bipolar._rewrite.norms import ChannelAffine, Neighbours, is_folded, remove
from bipolar._rewrite.outputs import difference, outputs_of
from bipolar._rewrite.placing import HOLDERS, held_by, put
from bipolar._rewrite.replacement import replaced
from bipolar._rewrite.steps import step, stored
from bipolar._rnn import StackedRNN
from bipolar._symmetry.channels import channel_dims_differ
from bipolar._symmetry.computed import computes_an_activation
from bipolar._symmetry.own_source import NotReplaceableError
from bipolar._symmetry.recording import ActivationCall, Recording, Site
from bipolar._symmetry.rules.modules import SELF_ACTIVATED
from bipolar._tools.calling import arguments_of


@dataclass
class _FunctionCalls:
    """Activations that a module calls as functions, and their replacements."""

    replacements: list[Replacement] = field(default_factory=list)
    #: Whether one of them would change a tensor that others use.
    exposed: bool = False


class Conversion:
    """A conversion in progress."""

    def __init__(
        self, model: nn.Module, choice: ActivationChoice, dim: int | None, recording: Recording | None
    ) -> None:
        self.model, self.choice = model, choice
        self.places = ChannelPlaces(model, dim, recording)
        self.report = ConversionReport()
        self._without_bias = [name for name, module in model.named_modules() if _lacks_bias(module)]
        self._names = [name for name, _ in model.named_modules()]
        self._rows: dict[str, list[ConversionRow]] = {}
        self._done: set[nn.Module] = set()
        #: Nodes, by id, that would change a tensor that others use, now that norms are gone.
        self._exposed: set[int] = set()
        #: Norms that are gone, by what is in their place: the name, the norm and its label.
        self._removed: dict[nn.Module, tuple[str, nn.Module, str]] = {}
        #: Labels of modules from before they were changed, for modules that are reported later.
        self._was: dict[str, str] = {}

    # Norms

    def remove_norms(self, chosen: ChosenNorms, recording: Recording, example: Any) -> None:
        self.report.steps += chosen.steps
        for name, norm, reason in chosen.left:
            self._say(name, type(norm).__name__, LEFT, reason)
        neighbours = Neighbours(recording)
        folded = [(name, norm) for name, norm in chosen.norms if is_folded(norm)]
        before = outputs_of(self.model, example) if folded else []
        for name, norm in folded:
            self._remove(name, norm, chosen.split.get(name, type(norm).__name__), neighbours)
        found = difference(before, outputs_of(self.model, example), 1e-2) if folded else ""
        if found:
            raise RuntimeError(
                f"model: without its batch norm {type(self.model).__name__} does not compute the same on the "
                f"example: {found}; leave a norm out by remove_norm=lambda name, module: ..."
            )
        for name, norm in chosen.norms:
            if not is_folded(norm):
                self._remove(name, norm, chosen.split.get(name, type(norm).__name__), neighbours)
        self._put_back_norms_that_are_read(example)
        self._in_place_to_out_of_place(recording)

    def _remove(self, name: str, norm: nn.Module, label: str, neighbours: Neighbours) -> None:
        removal = remove(name, norm, neighbours)
        if removal is None:
            self._say(name, label, LEFT, self._why_not_run(name))
            return
        channels = len(removal.replacement.weight) if isinstance(removal.replacement, ChannelAffine) else None
        if channels is None:
            self._exposed |= neighbours.exposed(name)
        self.report.steps.append(step("norm", name, norm, channels=channels))
        self.model = replaced(self.model, norm, removal.replacement)
        self._removed[removal.replacement] = name, norm, label
        self._say(name, label, type(removal.replacement).__name__, removal.note)

    def _put_back_norms_that_are_read(self, example: Any) -> None:
        """Puts back norms whose attributes the model reads, as in ``self.norm(x.to(self.norm.weight.dtype))``."""
        args, kwargs = arguments_of(example)
        while self._removed:
            try:  # on copies: an activation in place may reach the example, until it is replaced
                outputs_of(self.model, tree_map(_cloned, kwargs or args))
            except Exception as error:
                read, attribute = (error.obj, error.name) if isinstance(error, AttributeError) else (None, "")
                if not isinstance(read, nn.Module) or read not in self._removed:
                    raise RuntimeError(
                        f"model: without its norms {type(self.model).__name__} raises {type(error).__name__} on the "
                        f"example: {error}; leave a norm out by remove_norm=lambda name, module: ..."
                    ) from error
                name, norm, label = self._removed.pop(read)
                self.model = replaced(self.model, read, norm)
                self.report.steps = [s for s in self.report.steps if (s["step"], s["module"]) != ("norm", name)]
                self._rows[name] = [ConversionRow(name, label, LEFT, f"the model reads its {attribute}")]
            else:
                return

    def _why_not_run(self, name: str) -> str:
        for i, character in enumerate(name):
            around = self.model.get_submodule(name[:i]) if character == "." else self.model
            if isinstance(around, SELF_ACTIVATED):
                return f"{type(around).__name__} reads it in its own fast path"
        return "it did not run on this example"

    def say_norm_functions(self, recording: Recording, functions: Collection[str]) -> None:
        """Reports norms that are called as functions."""
        found = norm_calls(recording, functions)
        for owner, function in dict.fromkeys((node.module, node.function) for node in found):
            if owner not in self._rows:
                note = "a norm called as a function; to have it removed, call a module"
                self._say(owner or "(model)", f"{function}()", LEFT, note)

    def _in_place_to_out_of_place(self, recording: Recording) -> None:
        """Changes modules that would work in place on tensors that others use; functions are replaced later."""
        for call in recording.activations:
            if call.site.number is None and call.activation.inplace and id(recording.nodes[call.node]) in self._exposed:
                module = self.model.get_submodule(call.site.owner)
                self._was.setdefault(call.site.owner, _label(module))
                self.report.steps.append(step("out of place", call.site.owner, module))
                module.inplace = False  # type: ignore[assignment]  # to mypy a module's attribute is a tensor or module

    # Activations

    def change_recorded(self, recording: Recording) -> None:
        """Changes the activations that ran on the example."""
        sites: dict[Site, list[ActivationCall]] = {}
        for call in recording.activations:
            sites.setdefault(call.site, []).append(call)
        functions: dict[str, _FunctionCalls] = {}
        for site, calls in sites.items():
            recognised = calls[0].activation
            exposed = recognised.inplace and any(id(recording.nodes[call.node]) in self._exposed for call in calls)
            made, why = self._made_at(site, calls, exposed)
            if site.number is None:
                self._change_module(site.owner, made, why, exposed)
            elif made is not None or exposed:
                found = functions.setdefault(site.owner, _FunctionCalls())
                place = recording.places[site.owner][site.number]
                module = made or recognised.out_of_place().plain()
                found.replacements.append(Replacement(place, recognised, module))
                found.exposed |= exposed
            else:
                self._say(site.owner or "(model)", f"{recognised.name}()", LEFT, why)
        for owner, found in functions.items():
            self._change_functions(owner, found)

    def _made_at(self, site: Site, calls: list[ActivationCall], exposed: bool) -> tuple[nn.Module | None, str]:
        """The replacement of an activation that ran; or None, and the reason."""
        module = self.model.get_submodule(site.owner)
        stacked = isinstance(module, StackedRNN)
        if not stacked and channel_dims_differ(calls):
            return None, "called with its channels in different dimensions; use one activation per call"
        kind = None if stacked or site.number is not None else type(module)
        dim = partial(self._dim, module, site.owner, calls)
        return self._made(calls[0].activation, kind, dim, site.owner, exposed)

    def _made(
        self,
        recognised: RecognisedActivation | None,
        kind: type[nn.Module] | None,
        dim: Callable[[], int],
        name: str,
        exposed: bool = False,
    ) -> tuple[nn.Module | None, str]:
        """The replacement of an activation; or None, and the reason: an example that shows too little is one."""
        try:
            return self.choice.made(recognised, kind, dim, name, exposed)
        except UnknownChannelsError as error:
            return None, str(error)

    def _dim(self, module: nn.Module, name: str, calls: Sequence[ActivationCall]) -> int:
        return -1 if isinstance(module, HOLDERS) else self.places.of(name, calls)

    def _change_module(self, name: str, made: nn.Module | None, why: str, exposed: bool) -> None:
        module = self.model.get_submodule(name)
        note = "out of place now: in place it would change a residual stream, or a tensor that others use"
        self._done.add(module)
        if made is not None:
            self._put(module, name, made, note if exposed else "")
        elif exposed:
            self._say(name, _label(module), _label(module), note)
        else:
            self._say(name, _label(module), LEFT, why)

    def _change_functions(self, owner: str, found: _FunctionCalls) -> None:
        module = self.model.get_submodule(owner)
        labels = ", ".join(f"{r.activation.name}()" for r in found.replacements)
        made = ", ".join(_label(r.module) for r in found.replacements)
        try:
            edits = replace_calls_(module, found.replacements)
        except NotReplaceableError as error:
            danger = "; one of them changes in place a tensor that others use" if found.exposed else ""
            note = f"{error}{danger}; to have it converted, call a module: {made}"
            self._say(owner or "(model)", labels, LEFT, note)
            return
        calls = [asdict(edit) | {"to": stored(r.module)} for edit, r in zip(edits, found.replacements, strict=True)]
        self.report.steps.append(step("functions", owner, module, calls=calls))
        self._done |= {part for r in found.replacements for part in r.module.modules()}
        self._say(owner or "(model)", labels, made, "functions, now modules")

    def change_others(self) -> None:
        """Changes the activation modules that did not run on the example, or all of them without one."""
        for name, module in list(self.model.named_modules()):
            if module in self._done:
                continue
            recognised, kind = held_by(module), None if isinstance(module, HOLDERS) else type(module)
            if isinstance(module, HOLDERS) and isinstance(module.activation, nn.Module):
                self._done.add(module.activation)
            if recognised is None and self.choice.activations == "auto" and computes_an_activation(module):
                recognised = RecognisedActivation(type(module).__name__, f=module)
            if recognised is None and not self.choice.names(type(module)):
                self._say_left(name, module)
                continue
            made, why = self._made(recognised, kind, partial(self._dim, module, name, ()), name)
            if made is None:
                self._say(name, _label(module), LEFT, why)
            else:
                self._put(module, name, made, "")

    def _put(self, module: nn.Module, name: str, made: nn.Module, note: str) -> None:
        before = _label(module)
        if isinstance(module, HOLDERS):
            held = module.activation
            before = f"{type(module).__name__}, {_label(held) if isinstance(held, nn.Module) else held.__name__ + '()'}"
        self._say(name, before, _label(made), note)
        self.report.steps.append(step("activation", name, module, to=stored(made, module)))
        self.model = put(self.model, module, made)
        self._done |= {module, *made.modules()}

    # Report

    def finish(self) -> None:
        order = {name: place for place, name in enumerate(self._names)}
        for name in sorted(self._rows, key=lambda name: order.get(name, -1)):
            self.report.rows += self._rows[name]
        for name in self._without_bias:
            module = self.model.get_submodule(name)
            if not _lacks_bias(module) and "bias" in module._parameters:
                self.report.steps.append(step("bias", name, module))
        self.model.conversion_report = self.report  # type: ignore[assignment]

    def _say_left(self, name: str, module: nn.Module) -> None:
        """Reports a module that looks like an activation, but is left."""
        kind = type(module)
        if isinstance(module, SELF_ACTIVATED):
            self._say(name, kind.__name__, LEFT, "it has activations of its own")
            self._done |= set(module.modules())
        elif kind.__module__ == "torch.nn.modules.activation":
            self._say(name, kind.__name__, LEFT, "not of the ReLU family")
        elif not any(module.children()) and resembles_activation(kind.__name__):
            self._say(name, kind.__name__, LEFT, f"not an activation that is known: {_MAPPING.format(kind.__name__)}")

    def _say(self, name: str, before: str, after: str, note: str) -> None:
        self._rows.setdefault(name, []).append(ConversionRow(name, self._was.get(name, before), after, note))


_MAPPING = "activations={{{0}: lambda dim, pattern: bipolar.Bipolar({0}(), dim, pattern)}} makes it bipolar"


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _lacks_bias(module: nn.Module) -> bool:
    return "bias" in module._parameters and module._parameters["bias"] is None


def _label(module: object) -> str:
    if isinstance(module, Bipolar):
        return f"Bipolar({module.f}, {module.extra_repr()})" if isinstance(module.f, nn.Module) else "Bipolar"
    text = str(module)
    return text if isinstance(module, nn.Module) and "\n" not in text else type(module).__name__
