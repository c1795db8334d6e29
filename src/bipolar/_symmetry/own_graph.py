"""Graph of a module's own forward, for the activations that it calls as functions.

torch.fx traces the module that makes the calls alone, not the modules within it, and not the model around it.
"""

import copy
import inspect
import random
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.graph import CodeGen

from bipolar._activations.recognition import RecognisedActivation, recognise_call
from bipolar._symmetry.recording import Arguments
from bipolar._tools.nested import tensors_in


class UntraceableError(RuntimeError):
    """A graph cannot take the place of a module's forward; the message says why."""


@dataclass(frozen=True)
class OwnGraph:
    """The graph of a module's forward, and the nodes in it that matter here."""

    graph: fx.Graph
    #: Tensors that the forward makes from nothing, by the names that the graph gives them.
    constants: dict[str, Tensor]
    activations: list[fx.Node]
    #: Calls of dropout that are on in training and off otherwise, each with its probability.
    dropouts: list[tuple[fx.Node, float]]


def own_graph(owner: nn.Module, calls: Sequence[Arguments], count: int) -> OwnGraph:
    """The graph of a module that was called with some arguments, and then called ``count`` activations.

    Raises an :class:`UntraceableError` if the graph and the forward may differ.
    """
    fixed = [_fixed_arguments(owner, arguments) for arguments in calls]
    if any(other != fixed[0] for other in fixed):
        raise UntraceableError(f"it is called with different arguments that are not tensors: {fixed[0]}, and others")
    present, constants = _traced(owner, fixed[0], owner.training)
    other, _ = _traced(owner, fixed[0], not owner.training)
    pairs = list(zip(present.nodes, other.nodes, strict=False))
    if len(present.nodes) != len(other.nodes) or any(_essence(a) != _essence(b) for a, b in pairs):
        raise UntraceableError("its forward runs differently in training, which traced code would forget")
    activations = [n for n in present.nodes if _is_call(n) and recognise_node(n) is not None]
    if len(activations) != count:
        raise UntraceableError(f"it calls {count} activations, but {len(activations)} when it is traced")
    dropouts = [(a, _dropout(a)[0]) for a, b in pairs if _is_dropout(a) and _dropout(a)[1] != _dropout(b)[1]]
    return OwnGraph(present, constants, activations, dropouts)


def check_replaceable(
    owner: nn.Module, calls: Sequence[Arguments], count: int, activations: Iterable[RecognisedActivation]
) -> None:
    """Raises an :class:`UntraceableError` if modules cannot replace activations that a module calls as functions."""
    for activation in activations:
        if activation.has_state:
            raise UntraceableError(f"it calls {activation.name} as a function, which is not the same as the module")
    own_graph(owner, calls, count)


def recognise_node(node: fx.Node) -> RecognisedActivation | None:
    """The activation that a node of a graph calls as a function."""
    return recognise_call(function_name(node), node.args, dict(node.kwargs))


def function_name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", ""))


class _Shallow(fx.Tracer):
    """Traces no module but the one it is given."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _traced(owner: nn.Module, fixed: dict[str, Any], training: bool) -> tuple[fx.Graph, dict[str, Tensor]]:
    """The graph in one mode, and its constants."""
    copied = copy.copy(owner)  # a shallow copy, with a flag of its own
    copied.training = training
    states = random.getstate(), torch.random.get_rng_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # fx warns of an argument that it cannot check, for example
            graph = _Shallow().trace(copied, concrete_args=fixed or None)
    except Exception as error:
        raise UntraceableError(
            "torch.fx cannot trace it, as its code asks for the values or the number of tensors, or calls what is not "
            "torch's; as a module of its own, the activation could change"
        ) from error
    if random.getstate() != states[0] or not torch.equal(torch.random.get_rng_state(), states[1]):
        random.setstate(states[0])
        torch.random.set_rng_state(states[1])
        raise UntraceableError("its forward draws random numbers, which traced code would draw once and for all")
    graph.set_codegen(CodeGen())
    names = inspect.signature(owner.forward).parameters
    for name, node in zip(names, (n for n in graph.nodes if n.op == "placeholder"), strict=False):
        node.target = node.target if node.target.startswith("*") else name  # fx numbers the arguments that are fixed
    return graph, {name: value for name, value in vars(copied).items() if name.startswith("_tensor_constant")}


def _fixed_arguments(owner: nn.Module, arguments: Arguments) -> dict[str, Any]:
    """The arguments without tensors, which the graph takes as constants: fx would take a None for a tensor."""
    bound = inspect.signature(owner.forward).bind(*arguments[0], **arguments[1])
    bound.apply_defaults()
    return {
        name: value
        for name, value in bound.arguments.items()
        if not any(True for _ in tensors_in(value)) and value not in ((), {})
    }


def _essence(node: fx.Node) -> tuple[str, ...]:
    """All of a call but whether its dropout is on."""
    if _is_dropout(node):
        return (node.op, str(node.target), str(node.args[:1]), str(_dropout(node)[0]))
    return (node.op, str(node.target), str(node.args), str(node.kwargs))


def _dropout(node: fx.Node) -> tuple[Any, Any]:
    """The probability of a dropout, and whether it is on."""
    values = dict(zip(("input", "p", "training", "inplace"), node.args, strict=False)) | dict(node.kwargs)
    return values.get("p", 0.5), values.get("training", True)


def _is_dropout(node: fx.Node) -> bool:
    return _is_call(node) and function_name(node) == "dropout"


def _is_call(node: fx.Node) -> bool:
    return node.op in ("call_function", "call_method")
