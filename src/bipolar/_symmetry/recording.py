"""Record of a forward pass: the calls that ran, the signs of their tensors, and the constraints on these signs."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from bipolar._activations.recognition import RecognisedActivation
from bipolar._symmetry.own_source import Place
from bipolar._symmetry.solver import PLUS, Constraints

#: The signs of a tensor: unknowns that broadcast to its shape. The signs of a weight are a product of two such factors.
Tag: TypeAlias = tuple[Tensor, ...]
#: Moves values, or the unknowns in their place, to a tensor of another shape.
Move: TypeAlias = Callable[[Tensor], Tensor]
#: A tensor at one moment: its id, and its version, which counts changes in place.
Key: TypeAlias = tuple[int, int]
#: The positional and the keyword arguments of a call.
Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass
class Node:
    """A call of a function within a module, and the tensors that it took and made."""

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
    """The place of an activation: a module that is one, or the n-th place in another module's code that calls one."""

    owner: str
    number: int | None = None

    def __str__(self) -> str:
        if self.number is None:
            return self.owner
        return f"{self.owner or 'the model'}, call {self.number + 1} of an activation"


@dataclass(frozen=True)
class ActivationCall:
    """A call of an activation that has a plain and a bipolar version, with the unknown signs and shape of its input."""

    site: Site
    activation: RecognisedActivation
    node: int
    unknowns: Tensor
    shape: torch.Size


class Recording:
    """All calls of a model's forward pass, and the constraints on the signs of their tensors."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.constraints = Constraints()
        self.nodes: list[Node] = []
        self.activations: list[ActivationCall] = []
        #: Modules that have to stay as they are, because they may do something else another time, with the reason.
        self.frozen: dict[nn.Module, str] = {}
        #: The arguments of every call of each module, by the module's name.
        self.arguments: dict[str, list[Arguments]] = defaultdict(list)
        #: The places in each module's source that call activations, by the module's name, in the order of sites.
        self.places: dict[str, list[Place | None]] = defaultdict(list)
        self.weights: dict[Tensor, Tag] = {}
        self.notes: list[str] = []
        #: The address of each tensor's memory; and the addresses of the example's.
        self.storage: dict[Key, int] = {}
        self.given: set[int] = set()
        #: The function of the present node.
        self.function: Callable[..., Any] = torch.positive
        #: Signs that tensors had before the present function, which may work in place.
        self.before: dict[int, Tensor] = {}
        #: The final states of recurrent stacks; and their initial states, each with the unknowns of the units.
        self.states: list[Tensor] = []
        self.initial_states: list[tuple[Tensor, Tensor]] = []
        #: Whether the model gives out states for the caller to hand back, whose signs may be flipped.
        self.flips_states = False
        self._inputs: set[int] = set()
        self._tags: dict[int, tuple[Tensor, int, Tag]] = {}
        #: Tensors made of one weight, each with its version, the weight, and the function that moved its values.
        self._weights_made: dict[int, tuple[Tensor, int, Tensor, Move]] = {}
        #: All signs that were given, in order, each with its node; and the same by memory.
        self._given: list[tuple[int, Tag]] = []
        self._in_memory: dict[int, list[Tag]] = defaultdict(list)
        self._derived: dict[int, Tensor] = {}
        self._indices: dict[int, Tensor] = {}
        self._alive: list[Tensor] = []  # or their ids would be used again
        #: Weights that keep their signs, whatever uses them later.
        self._kept: set[Tensor] = set()
        self._own = {*model.parameters(), *model.buffers()}

    # Nodes

    @property
    def node(self) -> int:
        """The number of the present node."""
        return len(self.nodes) - 1

    def start_node(self, function: str, module: str, given: Sequence[Tensor]) -> None:
        self.nodes.append(Node(function, module, self._keys(given), training=self.model.training))

    def complete_node(self, made: Sequence[Tensor]) -> None:
        node = self.nodes[-1]
        node.outputs = self._keys(made)
        followed = next((t for t in made if id(t) in self._tags), None)
        if followed is not None:
            node.signs, node.shape = self._tags[id(followed)][2][0], followed.shape

    def _keys(self, tensors: Sequence[Tensor]) -> list[Key]:
        self._alive += tensors
        self.storage |= {_key(t): t.untyped_storage().data_ptr() for t in tensors if t.layout == torch.strided}
        return [_key(t) for t in tensors]

    # Kinds of tensors

    def add_input(self, tensor: Tensor) -> None:
        """Notes a tensor of the example; its values come from outside, so their signs are +1."""
        self._inputs.add(id(tensor))
        self.given.add(tensor.untyped_storage().data_ptr())
        if tensor.is_floating_point():
            self.give(tensor, self.everywhere_plus(tensor))

    def is_input(self, tensor: Tensor) -> bool:
        """Whether a tensor is one of the example's."""
        return id(tensor) in self._inputs

    def is_own(self, tensor: object) -> bool:
        """Whether a tensor is a parameter or buffer of the model."""
        return isinstance(tensor, Tensor) and tensor in self._own

    def is_weight(self, tensor: object) -> bool:
        """Whether a tensor is a parameter or buffer of the model, or made of just one, value by value."""
        known = self._tags.get(id(tensor))
        return self.is_own(tensor) or id(tensor) in self._weights_made or (known is not None and len(known[2]) > 1)

    def is_trained(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter, or made of one, and not of a buffer."""
        return isinstance(self._origin(tensor)[0], nn.Parameter)

    def is_derived(self, tensor: object) -> bool:
        """Whether a tensor holds integers or truth values that depend on the values of a signal."""
        return id(tensor) in self._derived

    def may_differ(self, tensor: object) -> bool:
        """Whether a tensor holds integers or truth values that another input may change."""
        return id(tensor) in self._indices or id(tensor) in self._derived

    def follow_integers(self, given: Sequence[Tensor], made: Sequence[Tensor], from_signal: bool) -> None:
        """Notes which of the integers and truth values that a function made depend on a signal, or on the input."""
        integers = {id(t): t for t in made if not t.is_floating_point()}
        if from_signal:
            self._derived |= integers
        if any(self.may_differ(t) or self.is_input(t) for t in given):
            self._indices |= integers

    # Signs of tensors

    def give(self, output: Any, *tag: Tensor) -> None:
        """Sets the signs of an output."""
        self._tags[id(output)] = (output, _key(output)[1], tag)
        self._given.append((self.node, tag))
        if output.layout == torch.strided:
            self._in_memory[output.untyped_storage()._cdata].append(tag)

    def give_same(self, output: Tensor, source: Tensor, move: Move | None = None) -> None:
        """Gives an output the signs of one tensor, moved; those of a weight are still open until its use shows them."""
        if self.is_product(source) and move is None:
            return self.give(output, *self._tags[id(source)][2])
        if not self.is_weight(source) or self.is_product(source):
            unknowns = self.of(source)
            return self.give(output, unknowns if move is None else move(unknowns))
        version = _key(output)[1]
        if output is not source:
            self._weights_made[id(output)] = (output, version, source, move or _unmoved)
        elif id(source) in self._weights_made:  # changed in place
            self._weights_made[id(source)] = (source, version, *self._weights_made[id(source)][2:])
        return None

    def is_product(self, tensor: Tensor) -> bool:
        """Whether the signs of a tensor, such as a transposed weight, are a product of factors."""
        known = self._tags.get(id(tensor))
        return known is not None and len(known[2]) > 1

    def of(self, tensor: Tensor) -> Tensor:
        """The unknowns of a tensor; a parameter has one for each element."""
        if id(tensor) in self.before:
            return self.before[id(tensor)]
        if tensor in self._own and tensor not in self.weights:
            kept = tensor in self._kept
            self.weights[tensor] = (self.everywhere_plus(tensor) if kept else self.constraints.fresh(*tensor.shape),)
        tag = self.weights[tensor] if tensor in self._own else self._tag(tensor)
        if len(tag) == 1:
            return tag[0]
        self.plus(tag, "its weight is used in another way elsewhere")
        return self.everywhere_plus(tensor)

    def _tag(self, tensor: Tensor) -> Tag:
        """The signs of a tensor that is not the model's own."""
        made = self._weights_made.get(id(tensor))
        if made is not None and made[1] == _key(tensor)[1]:
            return (made[3](self.of(made[2])),)
        known = self._tags.get(id(tensor))
        if known is not None:
            if known[1] == _key(tensor)[1]:
                return known[2]
            # What is in its memory now was written with the signs of one of the tensors there.
            for tag in list(self._in_memory[tensor.untyped_storage()._cdata]):
                self.plus(tag, "it was changed in place through a view of its memory")
            self.give(tensor, self.everywhere_plus(tensor))
        return (self.everywhere_plus(tensor),)

    def weight_of(self, tensor: Tensor, factors: Callable[[], Tag]) -> Tag | None:
        """The signs of a weight as a product, made at its first use; None for a tensor that is not a parameter."""
        made = self._weights_made.get(id(tensor))
        while made is not None and made[1] == _key(made[0])[1] and made[3] is _unmoved:
            tensor = made[2]
            made = self._weights_made.get(id(tensor))
        if tensor in self._own:
            if tensor not in self.weights:
                tag = factors()
                self.weights[tensor] = (
                    tuple(torch.full_like(factor, PLUS) for factor in tag) if tensor in self._kept else tag
                )
            return self.weights[tensor]
        known = self._tags.get(id(tensor))
        return known[2] if known is not None and len(known[2]) == 2 else None

    def uniform(self, tensor: Tensor, dims: Iterable[int]) -> Tensor:
        """Equates the unknowns of a tensor along some dimensions, and returns them with size 1 there.

        A weight that was not used before gets one unknown for each that remains, not one for each element: it may have
        millions.
        """
        dims = list(dims)
        weight, move = self._origin(tensor)
        if weight in self._own and weight not in self.weights and weight not in self._kept:
            for dim in range(weight.ndim):
                shape = [size if d == dim else 1 for d, size in enumerate(weight.shape)]
                moved = move(torch.arange(weight.size(dim)).view(shape).expand(weight.shape))
                first = _narrowed(moved, dims)
                if first.numel() == weight.size(dim) and bool((moved == first).all()):
                    self.weights[weight] = (self.constraints.fresh(*shape),)
                    break
        return self.constraints.uniform(self.of(tensor), dims, self.node)

    def _origin(self, tensor: Tensor) -> tuple[Tensor, Move]:
        """The weight that a tensor is made of, and the function that moved its values; or the tensor itself."""
        move: Move = _unmoved
        while id(tensor) in self._weights_made:
            _, _, tensor, inner = self._weights_made[id(tensor)]
            move = _composed(inner, move)
        return tensor, move

    def everywhere_plus(self, tensor: Tensor) -> Tensor:
        return torch.full((1,) * tensor.ndim, PLUS)

    def created(self, tensor: Tensor) -> Tensor:
        """The unknowns of a tensor made from nothing: zeros may have any sign, other values keep theirs."""
        if self.nodes[-1].function in ("zeros", "zeros_like", "new_zeros"):
            return self.constraints.fresh(*tensor.shape)
        return self.everywhere_plus(tensor)

    # Constraints

    def plus(self, unknowns: Tensor | Tag, reason: str) -> None:
        """Requires +1 for the unknowns at the present node."""
        for factor in unknowns if isinstance(unknowns, tuple) else (unknowns,):
            self.constraints.plus(factor, self.node, reason)

    def keep_sign(self, weight: Tensor, reason: str) -> None:
        """Requires +1 for all of a weight."""
        origin = self._origin(weight)[0]
        if origin in self._own and origin not in self.weights:
            self._kept.add(origin)
        elif origin in self._own:
            self.plus(self.weights[origin], reason)
        else:
            self.plus(self.of(weight), reason)

    def keeps_layout(self, output: Tensor, unknowns: Tensor, reason: str) -> None:
        """Requires +1 for an output, whose unknowns still show which dimension its channels are in."""
        sizes = [
            size if unknowns.ndim == output.ndim and unknowns.size(dim) == size else 1
            for dim, size in enumerate(output.shape)
        ]
        fresh = self.constraints.fresh(*sizes)
        self.plus(fresh, reason)
        self.give(output, fresh)

    def freeze(self, module: nn.Module, start: int, given: Iterable[Tensor], node: int, reason: str) -> None:
        """Requires +1 for a call of a module that began with node ``start``, and for what it was given and gave.

        Then the module computes the same as before, whatever it runs on another input.
        """
        self.frozen |= dict.fromkeys(module.modules(), reason)
        for tensor in given:
            if tensor.is_floating_point() and not self.is_weight(tensor):
                former = self._in_memory[tensor.untyped_storage()._cdata] if _key(tensor)[1] else []
                for tag in ((self.of(tensor),), *former):  # it may have been changed in place since the call began
                    for factor in tag:
                        self.constraints.plus(factor, node, reason)
        for own in (*module.parameters(), *module.buffers()):
            self.keep_sign(own, reason)
        for number, tag in self._given:
            for factor in tag if number >= start else ():
                self.constraints.plus(factor, node, reason)

    # Activations

    def add_activation(
        self, site: Site, recognised: RecognisedActivation, unknowns: Tensor, shape: torch.Size
    ) -> ActivationCall:
        """Adds a call of an activation at the present node; slopes of its own keep their sign."""
        if recognised.slopes and self.is_own(recognised.options["weight"]):
            self.weights.setdefault(recognised.options["weight"], (torch.full((1,), PLUS),))
        found = ActivationCall(site, recognised, self.node, unknowns, shape)
        self.activations.append(found)
        return found

    def settle_sites(self) -> None:
        """Counts a module as an activation only if none of its calls does anything else."""
        mixed = {call.site.owner for call in self.activations if call.site.number is not None}
        self.activations = [
            replace(call, site=Site(call.site.owner, 0))
            if call.site.owner in mixed and call.site.number is None
            else call
            for call in self.activations
        ]

    def site_of(self, owner: str, place: Place | None) -> Site:
        """The site of a call at a place in the source of a module; a place that is not known is one of its own."""
        places = self.places[owner]
        if place is None or place not in places:
            places.append(place)
            return Site(owner, len(places) - 1)
        return Site(owner, places.index(place))


def _unmoved(unknowns: Tensor) -> Tensor:
    return unknowns


def _composed(inner: Move, outer: Move) -> Move:
    return lambda unknowns: outer(inner(unknowns))


def _narrowed(unknowns: Tensor, dims: Iterable[int]) -> Tensor:
    for dim in dims:
        unknowns = unknowns.narrow(dim, 0, 1)
    return unknowns


def _key(tensor: Tensor) -> Key:
    return id(tensor), 0 if tensor.is_inference() else tensor._version
