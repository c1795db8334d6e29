"""One pass of a model, recorded: what each torch function does to the signs of what goes through it.

The pass is a real one, on an example, so any Python goes: what is recorded is what ran. A torch function mode sees
every function, and hooks tell in which module it was called.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from bipolar.lsuv.follow import is_metadata
from bipolar.state import call, restored, tensors_in
from bipolar.symmetry import rules
from bipolar.symmetry.constraints import PLUS, Constraints
from bipolar.twins import Twin, of_call, of_module

#: The signs of a tensor: unknowns that broadcast to its shape. Those of a weight are a product of two.
Tag = tuple[Tensor, ...]

_READS_VALUES = frozenset(("__bool__", "__float__", "__int__", "__index__", "item", "tolist", "numpy", "equal"))


@dataclass
class Node:
    """A call: of which function, in which module, between which tensors."""

    function: str
    module: str
    inputs: list[tuple[int, int]] = field(default_factory=list)
    outputs: list[tuple[int, int]] = field(default_factory=list)
    signs: Tensor | None = None

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
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
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
        #: With which arguments each module was called last.
        self.arguments: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        #: How often each module was called, by its name.
        self.called: dict[str, int] = defaultdict(int)
        self.weights: dict[Tensor, Tag] = {}
        self.states: list[Tensor] = []
        self.current: Callable[..., Any] = torch.positive
        self._inputs: set[int] = set()
        self._tags: dict[int, tuple[Tensor, int, Tag]] = {}
        self._before: dict[int, Tensor] = {}
        self._derived: dict[int, Tensor] = {}
        self._alive: list[Tensor] = []  # or their ids would be used again
        self._stack: list[_Frame] = []
        self._opaque = 0
        self._own = {*model.parameters(), *model.buffers()}

    def idle(self) -> list[str]:
        """The modules with parameters that did not run."""
        whole = {part for m in self.model.modules() if rules.rule_of(m) is not None for part in m.modules()}
        return [
            name
            for name, module in self.model.named_modules()
            if not self.called[name]
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
            if known[1] == tensor._version:
                return known[2]
            self.obstacles.append((self.node, "it was changed in place through a view of its memory"))
        return (self.constant(tensor),)

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

    def is_input(self, tensor: Tensor) -> bool:
        """Whether it is what the model was given."""
        return id(tensor) in self._inputs

    def add_activation(self, name: str, twin: Twin, unknowns: Tensor, shape: torch.Size) -> None:
        """A module that is an activation, or has one for all its units."""
        self.activations.append(ActivationCall(Site(name), twin, self.node, unknowns, shape))

    def give(self, output: Any, *tag: Tensor) -> None:
        """Says what the signs of an output are."""
        self._tags[id(output)] = (output, output._version, tag)

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

    def constant(self, tensor: Tensor) -> Tensor:
        """A zero has any sign; what else comes from outside has to stay what it is."""
        if tensor.device.type != "meta" and tensor.numel() and not tensor.any():
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
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        frame = self._stack[-1]
        frame.calls += 1
        self.nodes.append(Node(name, frame.name, [_key(t) for t in given]))
        self.current = func
        followed = [t for t in given if t.is_floating_point() and not self.is_own(t)]
        if name in _READS_VALUES:
            if followed or any(map(self.is_derived, given)):
                self.obstacles.append((self.node, "the values of a tensor are read, and may decide what runs"))
            return func(*args, **kwargs)
        before = {id(t): self.of(t) for t in followed if not self._is_weight(t)}
        output = func(*args, **kwargs)
        made = list(tensors_in(output))
        self._alive += given + made
        if followed or any(map(self.is_derived, given)):
            self._derived |= {id(t): t for t in made if not t.is_floating_point()}
        floats = [t for t in made if t.is_floating_point()]
        self._before = before
        if not any(t.is_floating_point() for t in given):
            for t in floats:
                self.give(t, self.constant(t))
        elif _is_known(func) and (twin := of_call(name, args, kwargs)) is not None:
            self._activation(twin, before, floats[0])
        else:
            rule = rules.rule_for(name) if _is_known(func) and floats else rules.unknown
            rule(self, args, kwargs, output)
        self._before = {}
        self.nodes[-1].outputs = [_key(t) for t in made]
        self.nodes[-1].signs = self._tags[id(floats[0])][2][0] if floats else None
        return output

    def _is_weight(self, tensor: Tensor) -> bool:
        known = self._tags.get(id(tensor))
        return known is not None and len(known[2]) > 1

    def _activation(self, twin: Twin, before: dict[int, Tensor], output: Tensor) -> None:
        frame = self._stack[-1]
        unknowns = next(iter(before.values()))
        if twin.name == "prelu":
            self.weights.setdefault(twin.options["weight"], (torch.zeros(1, dtype=torch.int64),))
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
            self.called[name] += 1
            self.arguments[name] = (args, kwargs)
        if rules.rule_of(module) is not None:
            self._opaque += 1

    def leave(self, module: nn.Module, output: Any) -> None:
        rule = rules.rule_of(module)
        if rule is not None:
            self._opaque -= 1
        if self._opaque:
            return
        frame = self._stack.pop()
        if rule is not None:
            given = [t for t in tensors_in(list(frame.arguments)) if t.is_floating_point()]
            made = list(tensors_in(output))
            inputs, outputs = [_key(t) for t in given], [_key(t) for t in made]
            self.nodes.append(Node(type(module).__name__, frame.name, inputs, outputs))
            self._alive += given + made
            self._opaque += 1  # what the rule computes is not the model's
            rule(self, module, given, output)
            self._opaque -= 1
            self.nodes[-1].signs = self._tags[id(made[0])][2][0]
        elif frame.calls == len(frame.activations) == 1 and (of_module(module) or not any(module.children())):
            # nothing but an activation: the module itself is one
            found = frame.activations[0]
            place = self.activations.index(found)
            self.activations[place] = ActivationCall(
                Site(frame.name), of_module(module) or found.twin, found.node, found.unknowns, found.shape
            )


def _is_known(func: Callable[..., Any]) -> bool:
    """Whether it is a function of torch or of this library, so that its name tells what it does."""
    home = getattr(func, "__module__", None) or "torch"
    return home.startswith(("torch.", "bipolar.")) or home == "torch"


def function_name(func: Callable[..., Any]) -> str:
    """The name of a function; of a property, the property's."""
    name = getattr(func, "__name__", type(func).__name__)
    if name == "__get__":
        return str(getattr(getattr(func, "__self__", None), "__name__", name))
    return str(name)


def _key(tensor: Tensor) -> tuple[int, int]:
    return id(tensor), tensor._version


@contextmanager
def _watched(recording: Recording) -> Iterator[None]:
    handles = []
    for name, module in recording.model.named_modules():

        def enter(module: nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
            recording.enter(name, module, args, kwargs)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            recording.leave(module, output)

        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True, prepend=True))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def record(model: nn.Module, example: Any) -> Recording:
    """Runs a model on an example in evaluation mode, and leaves it as it was."""
    recording = Recording(model)
    with restored(model), torch.no_grad(), _watched(recording):
        model.eval()
        for tensor in tensors_in(example):
            recording._inputs.add(id(tensor))
            if tensor.is_floating_point():
                recording.give(tensor, recording.everywhere_plus(tensor))
        with recording:
            output = call(model, example)
    recording.nodes.append(Node("the model's output", ""))
    states = {id(state) for state in recording.states}
    for tensor in tensors_in(output):
        if tensor.is_floating_point() and id(tensor) not in states:
            recording.plus(recording.of(tensor), "it is what the model gives out")
    return recording
