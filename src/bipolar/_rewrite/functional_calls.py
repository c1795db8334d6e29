"""Activations that a module calls as functions, replaced: its forward is traced by torch.fx and written anew.

Only the module that makes the calls is traced, not those within it, and not the model around it. It stays what it was,
an object of its class with all it has, but with another forward.
"""

import copy
import importlib
import inspect
import random
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.graph import CodeGen

from bipolar._activations.twins import Twin, of_call
from bipolar._tools.nested import tensors_in

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class RewritingError(RuntimeError):
    """A module's forward cannot be written anew; the message says why."""


class _Shallow(fx.Tracer):
    """Looks into no module but the one it is given."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def rewrite_(owner: nn.Module, calls: Sequence[Arguments], activations: Mapping[int, nn.Module], count: int) -> None:
    """Puts other activations in the place of those that a module calls as functions, by their number.

    ``calls`` are the arguments with which it was called, with ``count`` activations each. Arguments other than tensors
    have to be those; another raises an error. A dropout that is called as a function becomes a module, because traced
    code would forget whether the model trains.
    """
    graph, constants, dropouts = _trace(owner, calls, count)
    for name, tensor in constants.items():
        owner.register_buffer(name, tensor, persistent=False)
    for number, node in enumerate(_activations(graph)):
        if number in activations:
            _replace(owner, graph, node, f"activation{number + 1}", activations[number])
    for number, node in enumerate(dropouts):
        _replace(owner, graph, node, f"dropout{number + 1}", nn.Dropout(_dropout(node)[0]).train(owner.training))
    code = graph.python_code("self")
    original = getattr(type(owner), "_rewritten_from", type(owner))
    modules = {name: value.__name__ for name, value in code.globals.items() if isinstance(value, ModuleType)}
    names = {name: value for name, value in code.globals.items() if name not in modules}
    owner.__class__ = _with_forward(original, code.src, names, modules)


def check(owner: nn.Module, calls: Sequence[Arguments], count: int, twins: Iterable[Twin] = ()) -> None:
    """Raises a :class:`RewritingError` if a module cannot be written anew, or one of its activations not replaced."""
    for twin in twins:
        if twin.name in ("prelu", "rrelu"):
            raise RewritingError(f"it calls {twin.name} as a function, which is not the same as the module")
    _trace(owner, calls, count)


def _with_forward(
    original: type[nn.Module], source: str, names: dict[str, Any], modules: dict[str, str]
) -> type[nn.Module]:
    """A class with another forward, whose objects can be copied and pickled."""
    namespace = names | {name: importlib.import_module(module) for name, module in modules.items()}
    exec(compile(source, f"<{original.__name__}, rewritten>", "exec"), namespace)  # noqa: S102 - what fx has traced

    def reduce(self: nn.Module, protocol: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        return _rebuilt, (original, source, names, modules), self.__dict__

    members = {"forward": namespace["forward"], "__reduce_ex__": reduce, "_rewritten_from": original}
    return type(original.__name__, (original,), members | {"__module__": original.__module__})


def _rebuilt(*code: Any) -> nn.Module:
    made = _with_forward(*code)
    return made.__new__(made)


def _trace(
    owner: nn.Module, calls: Sequence[Arguments], count: int
) -> tuple[fx.Graph, dict[str, Tensor], list[fx.Node]]:
    """The graph, its constants, and those calls of dropout in it that are on in training and off otherwise."""
    fixed = [_fixed_arguments(owner, arguments) for arguments in calls]
    if any(other != fixed[0] for other in fixed):
        raise RewritingError(f"it is called with different arguments that are not tensors: {fixed[0]}, and others")
    present, constants = _traced(owner, fixed[0], owner.training)
    other, _ = _traced(owner, fixed[0], not owner.training)
    pairs = list(zip(present.nodes, other.nodes, strict=False))
    if len(present.nodes) != len(other.nodes) or any(_shape(a) != _shape(b) for a, b in pairs):
        raise RewritingError("its forward runs differently in training, which traced code would forget")
    found = len(_activations(present))
    if found != count:
        raise RewritingError(f"it calls {count} activations, but {found} when it is traced")
    return present, constants, [a for a, b in pairs if _is_dropout(a) and _dropout(a)[1] != _dropout(b)[1]]


def _shape(node: fx.Node) -> tuple[str, ...]:
    """All that a call is, but for whether dropout is on."""
    if _is_dropout(node):
        return (node.op, str(node.target), str(node.args[:1]), str(_dropout(node)[0]))
    return (node.op, str(node.target), str(node.args), str(node.kwargs))


def _dropout(node: fx.Node) -> tuple[Any, Any]:
    """The probability of a dropout, and whether it is on."""
    values = dict(zip(("input", "p", "training", "inplace"), node.args, strict=False)) | dict(node.kwargs)
    return values.get("p", 0.5), values.get("training", True)


def _fixed_arguments(owner: nn.Module, arguments: Arguments) -> dict[str, Any]:
    """The arguments without tensors: fx would take a None for a tensor."""
    bound = inspect.signature(owner.forward).bind(*arguments[0], **arguments[1])
    bound.apply_defaults()
    return {
        name: value
        for name, value in bound.arguments.items()
        if not any(True for _ in tensors_in(value)) and value not in ((), {})
    }


def _traced(owner: nn.Module, fixed: dict[str, Any], training: bool) -> tuple[fx.Graph, dict[str, Tensor]]:
    twin = copy.copy(owner)  # whose flag may be changed
    twin.training = training
    states = random.getstate(), torch.random.get_rng_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # that it cannot check an argument, for example
            graph = _Shallow().trace(twin, concrete_args=fixed or None)
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise RewritingError(f"torch.fx cannot trace it: {lines[0] if lines else type(error).__name__}") from error
    if random.getstate() != states[0] or not torch.equal(torch.random.get_rng_state(), states[1]):
        random.setstate(states[0])
        torch.random.set_rng_state(states[1])
        raise RewritingError("its forward draws random numbers, which traced code would draw once and for all")
    graph.set_codegen(CodeGen())
    names = inspect.signature(owner.forward).parameters
    for name, node in zip(names, (n for n in graph.nodes if n.op == "placeholder"), strict=False):
        node.target = node.target if node.target.startswith("*") else name  # fx has numbered those that are fixed
    # tensors that the forward makes of nothing
    return graph, {name: value for name, value in vars(twin).items() if name.startswith("_tensor_constant")}


def _name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", ""))


def _is_call(node: fx.Node) -> bool:
    return node.op in ("call_function", "call_method")


def _is_dropout(node: fx.Node) -> bool:
    return _is_call(node) and _name(node) == "dropout"


def _activations(graph: fx.Graph) -> list[fx.Node]:
    return [n for n in graph.nodes if _is_call(n) and of_call(_name(n), n.args, dict(n.kwargs)) is not None]


def _replace(owner: nn.Module, graph: fx.Graph, node: fx.Node, name: str, module: nn.Module) -> None:
    while hasattr(owner, name):
        name += "_"
    owner.add_module(name, module)
    place = 1 if _name(node) == "bipolar" else 0
    x = node.args[place] if len(node.args) > place else node.kwargs["input"]
    twin = of_call(_name(node), node.args, dict(node.kwargs))
    with graph.inserting_after(node):
        new = graph.call_module(name, (x,))
    if twin is not None and twin.inplace and isinstance(x, fx.Node):  # what used x afterwards used its new value
        nodes = list(graph.nodes)
        later = set(nodes[nodes.index(new) + 1 :])
        for user in list(x.users):
            if user in later:
                user.replace_input_with(x, new)
    node.replace_all_uses_with(new)
    graph.erase_node(node)


__all__ = ["RewritingError", "check", "rewrite_"]
