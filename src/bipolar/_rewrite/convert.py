"""Conversion of a model: bipolar activations in, norm layers out."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from torch import nn
from torch.nn.modules.conv import _ConvNd

from bipolar._activations.modules import Bipolar
from bipolar._activations.patterns import Pattern, check_pattern
from bipolar._activations.recognition import RecognisedActivation, recognise_module, resembles_activation
from bipolar._activations.registry import get_activation
from bipolar._rewrite.conversion_report import LEFT, ConversionReport, ConversionRow
from bipolar._rewrite.functional_calls import Replacement, replace_calls_
from bipolar._rewrite.norm_recognition import NORM_FUNCTIONS, ChosenNorms, is_batch_norm, is_norm, split_norms
from bipolar._rewrite.norms import Neighbours, is_folded, remove
from bipolar._rewrite.outputs import difference, outputs_of
from bipolar._rewrite.replacement import copied, replaced, set_activation
from bipolar._rnn import StackedRNN
from bipolar._symmetry.channels import channel_dim, channel_dims_differ
from bipolar._symmetry.example import example_for
from bipolar._symmetry.own_source import NotReplaceableError
from bipolar._symmetry.recording import ActivationCall, Recording, Site
from bipolar._symmetry.rules.modules import SELF_ACTIVATED
from bipolar._symmetry.trace import record
from bipolar._tools.calling import unwrapped

#: Replacements by the class of an activation module or the name of a plain function: a name, a function that makes a
#: module from ``dim`` and ``pattern``, or None to leave it as it is.
Activations: TypeAlias = Mapping[type[nn.Module] | str, str | Callable[..., nn.Module] | None]
RemoveNorm: TypeAlias = Literal[False, "batch", "all"] | Callable[[str, nn.Module], bool]


def convert(
    model: nn.Module,
    *,
    activations: Literal["auto"] | Activations = "auto",
    remove_norm: RemoveNorm = False,
    pattern: Pattern = "alternate",
    inplace: bool = False,
    example: Any = None,
) -> nn.Module:
    r"""A model with bipolar activations, f(x) becoming :math:`S f(S x)`, and without norm layers if they are to go.

    Every activation of the ReLU family is replaced by its bipolar version: modules, and, if an example shows where they
    are called, functions such as ``F.relu``. ``converted.conversion_report`` says what was changed and what was left.
    For a start without norm layers see :func:`~bipolar.lsuv_`.

    Args:
        model: any module; it is not changed, unless ``inplace`` is true
        activations: ``"auto"``, or a mapping from classes of modules (or names of functions, as ``"relu"``) to what
            takes their place: a name (:func:`~bipolar.list_activations`), a class or function that makes a module from
            ``dim`` and ``pattern``, or None to leave them. What is not in the mapping is left. Default: ``"auto"``
        remove_norm: ``"batch"`` removes batch norm, ``"all"`` every norm layer, a function of a module's name and the
            module those for which it says so. A batch norm that is trained is folded into the layer beside it, so that
            outputs in evaluation mode stay the same; one that is fresh is dropped, and the layer before it gets a bias
            if it had none. Other norms are dropped. Default: ``False``
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``
        inplace: change ``model`` itself. Default: ``False``
        example: an input, as for :func:`~bipolar.lsuv_`: needed to see functions, to tell where channels are in an
            unusual layout, and to find the neighbours of norm layers (for which one is made up if the model's first
            layer says enough)

    Activations in place are made out of place where they would change a residual stream once the norm before them is
    gone.

    Examples::

        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        >>> bipolar.convert(model, remove_norm="batch")
        Sequential(
          (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
          (1): Identity()
          (2): BReLU(dim=1, inplace=True)
        )
    """
    check_pattern(pattern)
    if activations != "auto" and not isinstance(activations, Mapping):
        raise TypeError(f"activations: expected 'auto' or a mapping, got {activations!r}")
    if not (remove_norm is False or remove_norm in ("batch", "all") or callable(remove_norm)):
        raise ValueError(f"remove_norm: expected False, 'batch', 'all' or a function, got {remove_norm!r}")
    model = unwrapped(model)
    if not inplace:
        model = copied(model)
    chosen = [(n, m) for n, m in model.named_modules() if remove_norm and is_norm(m) and _chosen(remove_norm, n, m)]
    if example is not None or chosen:
        example = example_for(model, example)
        norms = split_norms(model, chosen, example)
        conversion = _Conversion(norms.model, activations, pattern)
        recording = record(norms.model, example)
        conversion.remove_norms(norms, recording, example)
        if remove_norm in ("batch", "all"):
            conversion.say_norm_functions(recording, NORM_FUNCTIONS if remove_norm == "all" else {"batch_norm"})
        conversion.change_recorded(recording)
    else:
        conversion = _Conversion(model, activations, pattern)
        conversion.report.notes.append("Functions such as F.relu are not seen without an example.")
    conversion.change_others()
    conversion.finish()
    return conversion.model


def _chosen(remove_norm: RemoveNorm, name: str, module: nn.Module) -> bool:
    if callable(remove_norm):
        return remove_norm(name, module)
    return remove_norm == "all" or (remove_norm == "batch" and is_batch_norm(module))


@dataclass
class _FunctionCalls:
    """Activations that a module calls as functions, and their replacements."""

    replacements: list[Replacement] = field(default_factory=list)
    #: Whether one of them would change a tensor that others use.
    exposed: bool = False


class _Conversion:
    """A conversion in progress."""

    def __init__(self, model: nn.Module, activations: Literal["auto"] | Activations, pattern: Pattern) -> None:
        self.model = model
        self.activations, self.pattern = activations, pattern
        self.report = ConversionReport()
        self._names = [name for name, _ in model.named_modules()]
        self._rows: dict[str, list[ConversionRow]] = {}
        self._done: set[nn.Module] = set()
        #: Nodes, by id, that would change a tensor that others use, now that norms are gone.
        self._exposed: set[int] = set()
        #: Labels of modules from before they were changed, for modules that are reported later.
        self._was: dict[str, str] = {}

    # Norms

    def remove_norms(self, chosen: ChosenNorms, recording: Recording, example: Any) -> None:
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
        self._in_place_to_out_of_place(recording)

    def _remove(self, name: str, norm: nn.Module, label: str, neighbours: Neighbours) -> None:
        removal = remove(name, norm, neighbours)
        if removal is None:
            self._say(name, label, LEFT, self._why_not_run(name))
            return
        if isinstance(removal.replacement, nn.Identity):
            self._exposed |= neighbours.exposed(name)
        self.model = replaced(self.model, norm, removal.replacement)
        self._say(name, label, type(removal.replacement).__name__, removal.note)

    def _why_not_run(self, name: str) -> str:
        for i, character in enumerate(name):
            around = self.model.get_submodule(name[:i]) if character == "." else self.model
            if isinstance(around, SELF_ACTIVATED):
                return f"{type(around).__name__} reads it in its own fast path"
        return "it did not run on this example"

    def say_norm_functions(self, recording: Recording, functions: Collection[str]) -> None:
        """Reports norms that are called as functions."""
        for owner, function in dict.fromkeys((node.module, node.function) for node in recording.nodes):
            if function in functions and owner not in self._rows:
                note = "a norm called as a function; to have it removed, call a module"
                self._say(owner or "(model)", f"{function}()", LEFT, note)

    def _in_place_to_out_of_place(self, recording: Recording) -> None:
        """Changes modules that would work in place on tensors that others use; functions are replaced later."""
        for call in recording.activations:
            if call.site.number is None and call.activation.inplace and id(recording.nodes[call.node]) in self._exposed:
                module = self.model.get_submodule(call.site.owner)
                self._was.setdefault(call.site.owner, _label(module))
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
        for owner, found in functions.items():
            self._change_functions(owner, found)

    def _made_at(self, site: Site, calls: list[ActivationCall], exposed: bool) -> tuple[nn.Module | None, str]:
        """The replacement of an activation that ran; or None, and the reason."""
        module = self.model.get_submodule(site.owner)
        stacked = isinstance(module, StackedRNN)
        dim = -1 if stacked else channel_dim(calls)
        kind = None if stacked or site.number is not None else type(module)
        made, why = self._made(calls[0].activation, kind, dim, site.owner, exposed)
        if made is not None and channel_dims_differ(calls):
            return None, "called with its channels in different dimensions; use one activation per call"
        return made, why

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
            replace_calls_(module, found.replacements)
        except NotReplaceableError as error:
            danger = "; one of them changes in place a tensor that others use" if found.exposed else ""
            note = f"{error}{danger}; to have it converted, call a module: {made}"
            self._say(owner or "(model)", labels, LEFT, note)
            return
        self._done |= {part for r in found.replacements for part in r.module.modules()}
        self._say(owner or "(model)", labels, made, "functions, now modules")

    def change_others(self) -> None:
        """Changes the activation modules that did not run on the example, or all of them without one."""
        for name, module in list(self.model.named_modules()):
            if module in self._done:
                continue
            stacked = isinstance(module, StackedRNN)
            activation = module.activation if isinstance(module, StackedRNN) else module
            recognised = recognise_module(activation) if isinstance(activation, nn.Module) else None
            if stacked:
                self._done.add(activation)  # type: ignore[arg-type]
            mapped = self.activations != "auto" and type(module) in self.activations
            if recognised is None and not mapped:
                self._say_left(name, module)
                continue
            dim, kind = (-1, None) if stacked else (None, type(module))
            made, why = self._made(recognised, kind, dim, name, exposed=False)
            if made is None:
                self._say(name, _label(module), LEFT, why)
            else:
                self._put(module, name, made, "")

    def _made(
        self,
        recognised: RecognisedActivation | None,
        kind: type[nn.Module] | None,
        dim: int | None,
        name: str,
        exposed: bool,
    ) -> tuple[nn.Module | None, str]:
        """The replacement of an activation; or None, and the reason."""
        if recognised is not None and recognised.channels is not None:
            return None, "bipolar already"
        dim = self._dim_by_place(name) if dim is None else dim
        if self.activations == "auto":
            if recognised is None:
                return None, "not of the ReLU family"
            return recognised.bipolar(dim, self.pattern, inplace=False if exposed else None), ""
        keys = [kind, *([] if recognised is None else [recognised.name, recognised.plain_class])]
        wanted = next((self.activations[key] for key in keys if key is not None and key in self.activations), None)
        if wanted is None:
            return None, "not in the mapping"
        options: dict[str, Any] = {"dim": dim, "pattern": self.pattern}
        made = get_activation(wanted, **options) if isinstance(wanted, str) else wanted(**options)
        if not isinstance(made, nn.Module):
            raise TypeError(f"activations: the replacement given for {name!r} made {made!r}, not a module")
        return made, ""

    def _dim_by_place(self, name: str) -> int:
        """1 after a convolution, -1 after a linear layer: the last one registered before it."""
        dim = 1
        for other, module in self.model.named_modules():
            if other == name:
                break
            if isinstance(module, (nn.Linear, nn.Embedding)):
                dim = -1
            elif isinstance(module, _ConvNd):
                dim = 1
        return dim

    def _put(self, module: nn.Module, name: str, made: nn.Module, note: str) -> None:
        if isinstance(module, StackedRNN):
            self._say(name, f"StackedRNN, {_label(module.activation)}", _label(made), note)
            set_activation(module, made)
            self._done |= {module, made}
        else:
            self._say(name, _label(module), _label(made), note)
            self.model = replaced(self.model, module, made)
            self._done |= set(made.modules())

    # Report

    def finish(self) -> None:
        order = {name: place for place, name in enumerate(self._names)}
        for name in sorted(self._rows, key=lambda name: order.get(name, -1)):
            self.report.rows += self._rows[name]
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
            self._say(name, kind.__name__, LEFT, "not an activation that is known")

    def _say(self, name: str, before: str, after: str, note: str) -> None:
        self._rows.setdefault(name, []).append(ConversionRow(name, self._was.get(name, before), after, note))


def _label(module: object) -> str:
    if isinstance(module, Bipolar):
        return f"Bipolar({module.f}, {module.extra_repr()})" if isinstance(module.f, nn.Module) else "Bipolar"
    text = str(module)
    return text if isinstance(module, nn.Module) and "\n" not in text else type(module).__name__
