"""One pass of a model, recorded: what each torch function does to the signs of what goes through it.

The pass is a real one, on an example, so any Python goes: what is recorded is what ran, in evaluation and in training.
A torch function mode sees every function, and hooks tell in which module it was called.
"""

import inspect
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from bipolar._activations.twins import Twin, of_call, of_module
from bipolar._init.follow import is_metadata
from bipolar._symmetry import opaque, rules
from bipolar._symmetry.solver import PLUS, Constraints
from bipolar._tools.calling import call
from bipolar._tools.nested import tensors_in, tensors_in_objects
from bipolar._tools.restoring import restored

#: The signs of a tensor: unknowns that broadcast to its shape. Those of a weight are a product of two.
Tag: TypeAlias = tuple[Tensor, ...]
#: A tensor at a moment: its id, and how often it was changed.
Key: TypeAlias = tuple[int, int]
Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]

_READS_VALUES = frozenset(("__bool__", "__float__", "__int__", "__index__", "item", "tolist", "numpy", "equal"))


@dataclass
class Node:
    """A call: of which function, in which module, between which tensors."""

    function: str
    module: str
    inputs: list[Key] = field(default_factory=list)
    outputs: list[Key] = field(default_factory=list)
    signs: Tensor | None = None
    shape: torch.Size | None = None
    training: bool = False

    def __str__(self) -> str:
        return f"{self.module} ({self.function})" if self.module else self.function


@dataclass(frozen=True)
class Site:
    """Where an activation stands: a module that is one, or the n-th call of one in the forward of another module."""

    owner: str
    number: int | None = None

    def __str__(self) -> str:
        if self.number is None:
            return self.owner
        return f"{self.owner or 'the model'}, call {self.number + 1} of an activation"


@dataclass(frozen=True)
class ActivationCall:
    """One call of an activation that has a plain and a bipolar version: where, which, and on what."""

    site: Site
    twin: Twin
    node: int
    unknowns: Tensor
    shape: torch.Size


@dataclass
class _Frame:
    """A module that is being called."""

    module: nn.Module
    name: str
    arguments: Arguments
    calls: int = 0
    activations: list[ActivationCall] = field(default_factory=list)


class Recording(TorchFunctionMode):
    """What ran, and the constraints on its signs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.constraints = Constraints()
        self.nodes: list[Node] = []
        self.activations: list[ActivationCall] = []
        #: Why the signs cannot be followed at all: the node, and the reason.
        self.obstacles: list[tuple[int, str]] = []
        #: With which arguments each module was called.
        self.arguments: dict[str, list[Arguments]] = defaultdict(list)
        self.weights: dict[Tensor, Tag] = {}
        self.notes: list[str] = []
        #: The memory of each tensor, by its key, and that of what the model was given.
        self.storage: dict[Key, int] = {}
        self.given: set[int] = set()
        self.current: Callable[..., Any] = torch.positive
        #: The states that stacks gave out; and those they were given, each with the unknowns of the units.
        self.states: list[Tensor] = []
        self.initial_states: list[tuple[Tensor, Tensor]] = []
        self._inputs: set[int] = set()
        self._tags: dict[int, tuple[Tensor, int, Tag]] = {}
        self._before: dict[int, Tensor] = {}
        self._derived: dict[int, Tensor] = {}
        self._indices: dict[int, Tensor] = {}
        self._alive: list[Tensor] = []  # or their ids would be used again
        self._stack: list[_Frame] = []
        self._opaque = 0
        self._own = {*model.parameters(), *model.buffers()}

    def idle(self) -> list[str]:
        """The modules with parameters that did not run."""
        whole = {part for m in self.model.modules() if opaque.rule_of(m) is not None for part in m.modules()}
        return [
            name
            for name, module in self.model.named_modules()
            if name not in self.arguments
            and module not in whole
            and any(p not in self.weights for p in module.parameters(recurse=False))
        ]

    # What the rules use

    @property
    def node(self) -> int:
        """The present node."""
        return len(self.nodes) - 1

    def tag(self, tensor: Tensor) -> Tag:
        """The signs of a tensor that is not a parameter's own."""
        known = self._tags.get(id(tensor))
        if known is not None:
            if known[1] == _key(tensor)[1]:
                return known[2]
            self.obstacles.append((self.node, "it was changed in place through a view of its memory"))
        return (self.everywhere_plus(tensor),)

    def of(self, tensor: Tensor) -> Tensor:
        """The unknowns of a tensor: those of a parameter are its own, one for each element."""
        if id(tensor) in self._before:  # what it had before the present function, which may work in place
            return self._before[id(tensor)]
        if tensor in self._own and tensor not in self.weights:
            self.weights[tensor] = (self.constraints.fresh(*tensor.shape),)
        tag = self.weights[tensor] if tensor in self._own else self.tag(tensor)
        if len(tag) == 1:
            return tag[0]
        self.plus(tag, "its weight is used in another way elsewhere")
        return self.everywhere_plus(tensor)

    def weight_of(self, tensor: Tensor, factors: Callable[[], Tag]) -> Tag | None:
        """The signs of a weight as a product, made when it is first used; None if it is not a parameter."""
        if tensor in self._own:
            return self.weights.setdefault(tensor, factors())
        known = self._tags.get(id(tensor))
        return known[2] if known is not None and len(known[2]) == 2 else None

    def is_own(self, tensor: object) -> bool:
        """Whether it is a parameter or buffer of the model."""
        return isinstance(tensor, Tensor) and tensor in self._own

    def is_derived(self, tensor: object) -> bool:
        """Whether it holds whole numbers or truth values that depend on the values of a signal."""
        return id(tensor) in self._derived

    def may_differ(self, tensor: object) -> bool:
        """Whether it holds whole numbers or truth values that may be others for another input."""
        return id(tensor) in self._indices or id(tensor) in self._derived

    def is_input(self, tensor: Tensor) -> bool:
        """Whether it is what the model was given."""
        return id(tensor) in self._inputs

    def add_activation(self, name: str, twin: Twin, unknowns: Tensor, shape: torch.Size) -> None:
        """A module that is an activation, or has one for all its units."""
        self.activations.append(ActivationCall(Site(name), twin, self.node, unknowns, shape))

    def give(self, output: Any, *tag: Tensor) -> None:
        """Says what the signs of an output are."""
        self._tags[id(output)] = (output, _key(output)[1], tag)

    def plus(self, unknowns: Tensor | Tag, reason: str) -> None:
        for factor in unknowns if isinstance(unknowns, tuple) else (unknowns,):
            self.constraints.plus(factor, self.node, reason)

    def everywhere_plus(self, tensor: Tensor) -> Tensor:
        return torch.full((1,) * tensor.ndim, PLUS)

    def keeps_layout(self, output: Tensor, unknowns: Tensor, reason: str) -> None:
        """For an output whose signs are all +1: unknowns still tell where its channels are."""
        sizes = [
            size if unknowns.ndim == output.ndim and unknowns.size(dim) == size else 1
            for dim, size in enumerate(output.shape)
        ]
        fresh = self.constraints.fresh(*sizes)
        self.plus(fresh, reason)
        self.give(output, fresh)

    def created(self, tensor: Tensor) -> Tensor:
        """What a function makes of nothing: zeros have any sign, all else has to stay what it is."""
        if self.nodes[-1].function in ("zeros", "zeros_like", "new_zeros"):
            return self.constraints.fresh(*tensor.shape)
        return self.everywhere_plus(tensor)

    # What torch calls

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
        name = function_name(func)
        if not args and "input" in kwargs:
            args, kwargs = (kwargs["input"],), {key: value for key, value in kwargs.items() if key != "input"}
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        frame = self._stack[-1]
        frame.calls += 1
        self.nodes.append(Node(name, frame.name, self._keys(given), training=self.model.training))
        self.current = func
        followed = [t for t in given if t.is_floating_point() and not self.is_own(t)]
        before = {id(t): self.of(t) for t in followed if not self._is_weight(t)}
        signal = any(bool((u != PLUS).any()) for u in before.values()) or any(map(self.is_derived, given))
        if name in _READS_VALUES:
            if signal:
                self.obstacles.append((self.node, "the values of a tensor are read, and may decide what runs"))
            return func(*args, **kwargs)
        output = func(*args, **kwargs)
        made = list(tensors_in(output))
        whole = {id(t): t for t in made if not t.is_floating_point()}
        if signal:
            self._derived |= whole
        if any(self.may_differ(t) or self.is_input(t) for t in given):
            self._indices |= whole
        floats = [t for t in made if t.is_floating_point()]
        self._before = before
        known = _is_known(func)
        twin = of_call(name, args, kwargs) if known else None
        if not any(t.is_floating_point() for t in given):
            for t in floats:
                self.give(t, self.created(t))
        elif twin is not None and before:
            self._activation(twin, before, floats[0])
        else:
            rule = rules.rule_for(name) if known and floats else rules.unknown
            rule(self, args, kwargs, output)
        self._before = {}
        self._complete_node(made)
        return output

    def _keys(self, tensors: Sequence[Tensor]) -> list[Key]:
        self._alive += tensors
        self.storage |= {_key(t): t.untyped_storage().data_ptr() for t in tensors if t.layout == torch.strided}
        return [_key(t) for t in tensors]

    def _complete_node(self, made: Sequence[Tensor]) -> None:
        node = self.nodes[-1]
        node.outputs = self._keys(made)
        followed = next((t for t in made if id(t) in self._tags), None)
        if followed is not None:
            node.signs, node.shape = self._tags[id(followed)][2][0], followed.shape

    def _is_weight(self, tensor: Tensor) -> bool:
        known = self._tags.get(id(tensor))
        return known is not None and len(known[2]) > 1

    def _activation(self, twin: Twin, before: dict[int, Tensor], output: Tensor) -> None:
        frame = self._stack[-1]
        unknowns = next(iter(before.values()))
        if twin.slopes and self.is_own(twin.options["weight"]):
            self.weights.setdefault(twin.options["weight"], (torch.full((1,), PLUS),))
        number = len(frame.activations)
        site = Site(frame.name, number)
        found = ActivationCall(site, twin, self.node, unknowns, output.shape)
        frame.activations.append(found)
        self.activations.append(found)
        self.give(output, unknowns)

    # Modules

    def enter(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._opaque:
            self._stack.append(_Frame(module, name, (args, kwargs)))
            self.arguments[name].append((args, kwargs))
        if opaque.rule_of(module) is not None:
            self._opaque += 1

    def leave(self, module: nn.Module, output: Any) -> None:
        rule = opaque.rule_of(module)
        if rule is not None:
            self._opaque -= 1
        if self._opaque:
            return
        frame = self._stack.pop()
        if output is None:  # it failed
            return
        if rule is not None:
            given = [t for t in tensors_in(list(frame.arguments)) if t.is_floating_point()]
            self.nodes.append(Node(type(module).__name__, frame.name, self._keys(given), training=self.model.training))
            self._opaque += 1  # what the rule computes is not the model's
            rule(self, module, given, output)
            self._opaque -= 1
            self._complete_node(list(tensors_in(output)))
        elif _is_an_activation(frame, output):
            found = frame.activations[0]
            twin = of_module(module) or found.twin
            self.activations[self.activations.index(found)] = replace(found, site=Site(frame.name), twin=twin)

    def finish(self, output: Any) -> None:
        """What holds at the end of a pass: what the model gives out stays as it is."""
        found = list(tensors_in_objects(output))
        self.nodes.append(Node("the model's output", "", self._keys(found), training=self.model.training))
        states = {id(state) for state in self.states}
        handed_out = [t for t in found if id(t) in states]
        if len(handed_out) == len([t for t in found if t.is_floating_point()]):
            handed_out = []  # they are all there is, and not only to be given back
        for tensor in found:
            if tensor.is_floating_point() and not any(tensor is state for state in handed_out):
                self.plus(self.of(tensor), "it is what the model gives out")
        for initial, unknowns in self.initial_states:
            if not (handed_out and self.is_input(initial)):
                units = self.of(initial)
                self.constraints.equate(units, unknowns.view((1,) * (units.ndim - 1) + (-1,)), self.node)
        if handed_out and not self.notes:
            self.notes.append("The states that the model gives out, to be given back to it, have flipped signs, too.")
        self.states, self.initial_states = [], []

    def settle_sites(self) -> None:
        """A module is an activation if it is nothing else in any call."""
        mixed = {call.site.owner for call in self.activations if call.site.number is not None}
        self.activations = [
            replace(call, site=Site(call.site.owner, 0))
            if call.site.owner in mixed and call.site.number is None
            else call
            for call in self.activations
        ]

    def count(self, owner: str) -> int:
        """How many activations a module calls as functions in its forward."""
        return 1 + max((call.site.number or 0 for call in self.activations if call.site.owner == owner), default=-1)


def _is_an_activation(frame: _Frame, output: Any) -> bool:
    """Whether a module does nothing but call an activation on its only argument."""
    if not frame.calls == len(frame.activations) == 1:
        return False
    if of_module(frame.module) is not None:
        return True
    args, kwargs = frame.arguments
    alone = len(args) + len(kwargs) == 1 and not any(frame.module.children())
    return alone and isinstance(output, Tensor) and len(inspect.signature(frame.module.forward).parameters) == 1


def _is_known(func: Callable[..., Any]) -> bool:
    """Whether it is a function of torch or of this library, so that its name tells what it does."""
    home = getattr(func, "__module__", None) or "torch"
    if home.startswith("torch._ops."):
        return home == "torch._ops.aten"
    return home.startswith(("torch.", "bipolar.")) or home == "torch"


def function_name(func: Callable[..., Any]) -> str:
    """The name of a function; of a property, the property's."""
    name = getattr(func, "__name__", type(func).__name__)
    if name == "__get__":
        return str(getattr(getattr(func, "__self__", None), "__name__", name))
    return str(name)


def _key(tensor: Tensor) -> Key:
    return id(tensor), 0 if tensor.is_inference() else tensor._version


@contextmanager
def _watched(recording: Recording) -> Iterator[None]:
    """Hooks on all modules; and none of them compiled, which would hide what they do."""
    handles, compiled = [], {}
    for name, module in recording.model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(f"model: {name or 'it'} is a scripted module, which cannot be looked into")

        def enter(module: nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
            recording.enter(name, module, args, kwargs)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            recording.leave(module, output)

        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True, prepend=True))
        handles.append(module.register_forward_hook(leave, always_call=True))
        compiled[module] = module._compiled_call_impl
        module._compiled_call_impl = None
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module, implementation in compiled.items():
            module._compiled_call_impl = implementation


def record(model: nn.Module, example: Any) -> Recording:
    """Runs a model on an example, once in evaluation and once in training mode, and leaves it as it was."""
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ValueError(f"model: {name} has no shape yet; call the model once on an input first")
    recording = Recording(model)
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    for tensor in tensors_in(example):
        recording._inputs.add(id(tensor))
        recording.given.add(tensor.untyped_storage().data_ptr())
        if tensor.is_floating_point():
            recording.give(tensor, recording.everywhere_plus(tensor))
    for training in (False, True):
        with restored(model), torch.random.fork_rng(list(devices)), torch.no_grad(), _watched(recording):
            model.train(training)
            drawn = random.getstate()
            try:
                with recording:
                    output = call(model, example)
            except Exception as error:  # such as batch norm's on a batch of one
                if not training:
                    raise
                recording.notes.append(
                    f"Not followed in training mode, where it raises {type(error).__name__}: {error}"
                )
                continue
            finally:
                if random.getstate() != drawn:
                    random.setstate(drawn)
                    recording.obstacles.append((recording.node, "random numbers of Python may decide what runs"))
            recording.finish(output)
    recording.settle_sites()
    return recording
