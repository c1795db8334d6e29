"""Forward pass of a model on an example, recorded function by function.

The pass is a real one, so any Python code works: the recording holds the calls that ran, in evaluation and in training.
A torch function mode sees every function, and hooks tell which module called it.
"""

import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from bipolar._activations.catalogue import of_function
from bipolar._activations.recognition import RecognisedActivation, recognise_call, recognise_module
from bipolar._init.follow import is_metadata
from bipolar._symmetry.computed import computes_an_activation
from bipolar._symmetry.own_source import place_of_call
from bipolar._symmetry.recording import ActivationCall, Arguments, Recording, Site
from bipolar._symmetry.rules.modules import rule_of
from bipolar._symmetry.rules.refusal import refuse, require_plus
from bipolar._symmetry.rules.table import rule_for
from bipolar._symmetry.solver import PLUS
from bipolar._tools.calling import call
from bipolar._tools.nested import tensors_in, tensors_in_objects
from bipolar._tools.restoring import restored

#: The node that stands for what the model gives out.
MODEL_OUTPUT = "the model's output"
_READS_VALUES = frozenset(("__bool__", "__float__", "__int__", "__index__", "item", "tolist", "numpy", "equal"))


class FunctionCall:
    """A call of a torch function, with its first argument given by position."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not args and "input" in kwargs:
            args, kwargs = (kwargs["input"],), {key: value for key, value in kwargs.items() if key != "input"}
        self.function, self.args, self.kwargs = function, args, kwargs
        self.name = _function_name(function)
        self.tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]

    def run(self) -> Any:
        return self.function(*self.args, **self.kwargs)


#: Takes a recording and a call of a function that is about to run.
Look: TypeAlias = Callable[[Recording, FunctionCall], None]


def record(
    model: nn.Module, example: Any, look: Look | None = None, modes: Sequence[bool] = (False, True)
) -> Recording:
    """Runs a model on an example, once in evaluation and once in training mode, and leaves it as it was.

    ``look`` is called before each function, with the recording and the call. ``modes`` are those of the passes: whether
    the model trains.
    """
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ValueError(f"model: {name} has no shape yet; call the model once on an input first")
    recording, given = Recording(model), list(tensors_in(example))
    if given and not any(tensor.numel() for tensor in given):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in given)
        raise ValueError(f"example: expected values, which tell where signs go, got tensors without any, {shapes}")
    for tensor in given:
        recording.add_input(tensor)
    for training in modes:
        _record_pass(recording, example, training, look)
    recording.settle_sites()
    return recording


def _record_pass(recording: Recording, example: Any, training: bool, look: Look | None) -> None:
    model, tracer = recording.model, _Tracer(recording, look)
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    with restored(model), torch.random.fork_rng(list(devices)), torch.no_grad(), _watched(tracer):
        model.train(training)
        drawn = random.getstate()
        try:
            with tracer:
                output = call(model, example)
        except Exception as error:  # such as batch norm's on a batch of one
            if not training:
                raise ValueError(
                    f"example: {type(model).__name__} raises {type(error).__name__} when it is called with it: {error}"
                ) from error
            recording.notes.append(f"Not followed in training mode, where it raises {type(error).__name__}: {error}")
            return
        finally:
            random.setstate(drawn)
        _pin_output(recording, output, look)


def _pin_output(recording: Recording, output: Any, look: Look | None) -> None:
    """Requires +1 for the outputs of a pass, except for states that the caller only hands back to the model."""
    found = list(tensors_in_objects(output))
    recording.start_node(MODEL_OUTPUT, "", found)
    states = {id(state) for state in recording.states}
    handed_out = [t for t in found if id(t) in states]
    if len(handed_out) == len([t for t in found if t.is_floating_point()]):
        handed_out = []  # without another output, a state is the result
    fixed = [t for t in found if t.is_floating_point() and not any(t is state for state in handed_out)]
    if look is not None:
        look(recording, FunctionCall(_given_out, tuple(fixed), {}))
    for tensor in fixed:
        recording.plus(recording.of(tensor), "its signs must not change")
    for initial, unknowns in recording.initial_states:
        if not (handed_out and recording.is_input(initial)):
            units = recording.of(initial)
            recording.constraints.equate(units, unknowns.view((1,) * (units.ndim - 1) + (-1,)), recording.node)
    if handed_out and not recording.flips_states:
        recording.flips_states = True
        recording.notes.append("The states that the model gives out, to be given back to it, have flipped signs, too.")
    recording.states, recording.initial_states = [], []


def _given_out(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tensors


@contextmanager
def _watched(tracer: "_Tracer") -> Iterator[None]:
    """Hooks every module, and turns compiled modules back into Python, because compiled code shows no functions."""
    handles, compiled = [], {}
    for name, module in tracer.recording.model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(f"model: {name or 'it'} is a scripted module, which cannot be looked into")

        def enter(module: nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
            tracer.enter(name, module, (args, kwargs))

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            tracer.leave(module, output)

        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True, prepend=True))
        handles.append(module.register_forward_hook(leave, always_call=True))
        if module._compiled_call_impl is not None:
            compiled[module] = module._compiled_call_impl
            module._compiled_call_impl = None
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module, implementation in compiled.items():
            module._compiled_call_impl = implementation


@dataclass
class _Frame:
    """A module that is being called."""

    module: nn.Module
    name: str
    arguments: Arguments
    #: The number of the first node within, and the attributes that are plain values, when the call began.
    start: int
    settings: dict[str, Any]
    calls: int = 0
    activations: list[ActivationCall] = field(default_factory=list)
    #: The node and the reason why another input may run other code.
    undecided: tuple[int, str] | None = None


class _Tracer(TorchFunctionMode):
    """Records the functions and modules of a pass as they are called."""

    def __init__(self, recording: Recording, look: Look | None) -> None:
        super().__init__()
        self.recording, self._look = recording, look
        self._stack: list[_Frame] = []
        #: The depth of modules, around the present call, that are followed as a whole.
        self._opaque = 0
        #: Whether modules are activations by what they compute.
        self._computed: dict[nn.Module, bool] = {}
        self._drawn = random.getstate()

    # Functions

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self._opaque or is_metadata(func) or func is torch._C._set_grad_enabled:
            return func(*args, **kwargs)
        return self._record(FunctionCall(func, args, kwargs))

    def _record(self, call: FunctionCall) -> Any:
        """Runs a function, and follows the signs from its inputs to its outputs."""
        recording, frame = self.recording, self._stack[-1]
        frame.calls += 1
        recording.start_node(call.name, frame.name, call.tensors)
        recording.function = call.function
        before = self._signs_before(call)
        from_signal = any(bool((unknowns != PLUS).any()) for unknowns in before.values()) or any(
            map(recording.is_derived, call.tensors)
        )
        if call.name in _READS_VALUES:
            reason = "the values of a tensor are read, and may decide what runs"
            for weight in filter(recording.is_weight, call.tensors):
                recording.keep_sign(weight, reason)
            if from_signal:
                for unknowns in before.values():
                    recording.plus(unknowns, reason)
                frame.undecided = frame.undecided or (recording.node, reason)
            return call.run()
        if self._look is not None:
            self._look(recording, call)
        returned = call.run()
        output = call.args[0] if call.name == "__setitem__" else returned
        made = list(tensors_in(output))
        recording.follow_integers(call.tensors, made, from_signal)
        recording.before = before
        self._give_signs(call, output)
        recording.before = {}
        recording.complete_node(made)
        return returned

    def _signs_before(self, call: FunctionCall) -> dict[int, Tensor]:
        """The signs of the signals that a function takes."""
        recording = self.recording
        signals = [t for t in call.tensors if t.is_floating_point() and not recording.is_weight(t)]
        return {id(t): recording.of(t) for t in signals}

    def _give_signs(self, call: FunctionCall, output: Any) -> None:
        """Gives signs to the output of a function: it creates values, is an activation, or has a rule."""
        recording, frame = self.recording, self._stack[-1]
        floats = [t for t in tensors_in(output) if t.is_floating_point()]
        known = _is_known(call.function)
        recognised = recognise_call(call.name, call.args, call.kwargs) if known else None
        if not any(t.is_floating_point() for t in call.tensors):
            for t in floats:
                recording.give(t, recording.created(t))
        elif recognised is not None and recording.before:
            unknowns = next(iter(recording.before.values()))
            site = recording.site_of(frame.name, place_of_call(call.function, __file__))
            frame.activations.append(recording.add_activation(site, recognised, unknowns, floats[0].shape))
            recording.give(floats[0], unknowns)
        else:
            rule = rule_for(call.name) if known and floats else refuse
            try:
                rule(recording, call.args, call.kwargs, output)
            except Exception:  # such as an argument that only another version of torch has
                given = [t for t in call.tensors if t.is_floating_point()]
                require_plus(recording, given, output, f"{call.name} is called in a way that is not known")

    # Modules

    def enter(self, name: str, module: nn.Module, arguments: Arguments) -> None:
        if not self._opaque:
            self._notice_random_numbers()
            self._stack.append(_Frame(module, name, arguments, len(self.recording.nodes), _settings(module)))
            self.recording.arguments[name].append(arguments)
        if self._is_followed_as_a_whole(module):
            self._opaque += 1

    def leave(self, module: nn.Module, output: Any) -> None:
        rule = rule_of(module)
        if self._is_followed_as_a_whole(module):
            self._opaque -= 1
        if self._opaque:
            return
        self._notice_random_numbers()
        frame = self._stack.pop()
        if frame.undecided is not None:
            self._freeze(frame, output)
        if output is None:  # it failed
            return
        if rule is None and self._computed.get(module):
            self._add_computed_activation(frame, output)
        elif rule is not None:
            given = [t for t in tensors_in(list(frame.arguments)) if t.is_floating_point()]
            self.recording.start_node(type(module).__name__, frame.name, given)
            self._opaque += 1  # the rule's own computations are not the model's
            rule(self.recording, module, given, output)
            self._opaque -= 1
            self.recording.complete_node(list(tensors_in(output)))
        elif _is_an_activation(frame, output):
            activations, found = self.recording.activations, frame.activations[0]
            recognised = recognise_module(module) or found.activation
            activations[activations.index(found)] = replace(found, site=Site(frame.name), activation=recognised)

    def _is_followed_as_a_whole(self, module: nn.Module) -> bool:
        """Whether a module has a rule, or is an activation that is written by hand of several functions."""
        if rule_of(module) is not None:
            return True
        if module not in self._computed:
            self._opaque += 1  # what is tried out here is not the model's
            self._computed[module] = recognise_module(module) is None and computes_an_activation(module)
            self._opaque -= 1
        return self._computed[module]

    def _add_computed_activation(self, frame: _Frame, output: Any) -> None:
        recording, kind = self.recording, type(frame.module).__name__
        given = [t for t in tensors_in(list(frame.arguments)) if t.is_floating_point()]
        recording.start_node(kind, frame.name, given)
        if len(given) == 1 and isinstance(output, Tensor):
            unknowns, found = recording.of(given[0]), RecognisedActivation(kind, f=frame.module)
            recording.add_activation(Site(frame.name), found, unknowns, output.shape)
            recording.give(output, unknowns)
        else:
            require_plus(recording, given, output, f"{kind} is called in a way that is not known")
        recording.complete_node(list(tensors_in(output)))

    # Code that may run another way

    def _notice_random_numbers(self) -> None:
        """Notes whether the present module has drawn random numbers of Python since the last look."""
        state = random.getstate()
        if state != self._drawn and self._stack:
            reason = "random numbers of Python may decide what runs"
            self._stack[-1].undecided = self._stack[-1].undecided or (self.recording.node, reason)
        self._drawn = state

    def _freeze(self, frame: _Frame, output: Any) -> None:
        """Keeps a module whose code may run another way as it is; those around it, too, if they may learn of it."""
        node, reason = frame.undecided or (0, "")
        self._opaque += 1  # what is computed here is not the model's
        given = [*tensors_in(list(frame.arguments)), *tensors_in_objects(output)]
        self.recording.freeze(frame.module, frame.start, given, node, reason)
        self._opaque -= 1
        told = any(not isinstance(leaf, (Tensor, NoneType)) for leaf in tree_leaves(output))
        if told and self._stack:
            self._stack[-1].undecided = self._stack[-1].undecided or frame.undecided
        if _settings(frame.module) != frame.settings:
            for outer in self._stack:
                outer.undecided = outer.undecided or frame.undecided


def _settings(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module that are plain values."""
    return {name: value for name, value in vars(module).items() if isinstance(value, (bool, int, float, str, NoneType))}


def _is_an_activation(frame: _Frame, output: Any) -> bool:
    """Whether a module does nothing but call an activation on its only argument."""
    if not frame.calls == len(frame.activations) == 1:
        return False
    if recognise_module(frame.module) is not None:
        return True
    args, kwargs = frame.arguments
    alone = len(args) + len(kwargs) == 1 and not any(frame.module.children())
    return alone and isinstance(output, Tensor) and len(inspect.signature(frame.module.forward).parameters) == 1


def _is_known(function: Callable[..., Any]) -> bool:
    """Whether a function is torch's, this library's or the catalogue's, so that its name identifies it."""
    if of_function(function) is not None:
        return True
    home = getattr(function, "__module__", None) or "torch"
    if home.startswith("torch._ops."):
        return home == "torch._ops.aten"
    return home.startswith(("torch.", "bipolar.")) or home == "torch"


def _function_name(function: Callable[..., Any]) -> str:
    """The name of a function, or of the property that it reads."""
    name = getattr(function, "__name__", type(function).__name__)
    if name == "__get__":
        return str(getattr(getattr(function, "__self__", None), "__name__", name))
    return str(name)
