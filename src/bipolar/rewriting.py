"""Activations that a module calls as functions, replaced: its forward is traced by torch.fx and written anew.

Only the module that makes the calls is traced, not those within it, and not the model around it.
"""

import copy
import inspect
from collections.abc import Mapping
from typing import Any

from torch import fx, nn
from torch.fx.graph import CodeGen
from torch.fx.proxy import TraceError

from bipolar.state import tensors_in
from bipolar.twins import of_call

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class RewritingError(RuntimeError):
    """A module's forward cannot be written anew; the message says why."""


class _Shallow(fx.Tracer):
    """Looks into no module but the one it is given."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def rewritten(owner: nn.Module, arguments: Arguments, activations: Mapping[int, nn.Module], count: int) -> nn.Module:
    """The same module with other activations in the place of those that it calls as functions, by their number.

    ``arguments`` are those of a call in which there were ``count`` activations. A dropout that is called as a function
    becomes a module, because traced code would forget whether the model trains.
    """
    graph = _trace(owner, arguments, count)
    made = fx.GraphModule(owner, graph, class_name=type(owner).__name__)
    for name, child in owner.named_children():
        if name not in made._modules:
            made.add_module(name, child)
    for name, parameter in owner.named_parameters(recurse=False):
        if name not in made._parameters:
            made.register_parameter(name, parameter)
    made.train(owner.training)
    for number, node in enumerate(_activations(graph)):
        if number in activations:
            _replace(made, node, _free_name(made, f"activation{number + 1}"), activations[number])
    for number, node in enumerate(_calls(graph, "dropout")):
        p: Any = (*node.args, 0.5)[1] if "p" not in node.kwargs else node.kwargs["p"]
        _replace(made, node, _free_name(made, f"dropout{number + 1}"), nn.Dropout(p))
    made.recompile()
    return made


def check(owner: nn.Module, arguments: Arguments, count: int) -> None:
    """Raises a :class:`RewritingError` if a module cannot be written anew."""
    _trace(owner, arguments, count)


def _trace(owner: nn.Module, arguments: Arguments, count: int) -> fx.Graph:
    graphs = [_traced(owner, arguments, training) for training in (not owner.training, owner.training)]
    shapes = [[(n.op, str(n.target), _fixed(n)) for n in graph.nodes] for graph in graphs]
    if shapes[0] != shapes[1]:
        raise RewritingError("its forward runs differently in training, which traced code would forget")
    found = len(_activations(graphs[1]))
    if found != count:
        raise RewritingError(f"it calls {count} activations, but {found} when it is traced")
    return graphs[1]


def _fixed(node: fx.Node) -> str:
    """What is written into a call; but for dropout, which is replaced by a module."""
    return "" if _is_call(node, "dropout") else str((node.args[1:], node.kwargs))


def _traced(owner: nn.Module, arguments: Arguments, training: bool) -> fx.Graph:
    bound = inspect.signature(owner.forward).bind(*arguments[0], **arguments[1])
    given = set(bound.arguments)
    bound.apply_defaults()
    fixed = {
        name: value
        for name, value in bound.arguments.items()
        if not any(True for _ in tensors_in(value)) and value not in ((), {})
    }
    twin = copy.copy(owner)  # whose flag may be changed
    twin.training = training
    try:
        graph = _Shallow().trace(twin, concrete_args=fixed or None)
    except (TraceError, TypeError, RuntimeError, ValueError, AttributeError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise RewritingError(f"torch.fx cannot trace it: {reason}") from error
    graph.set_codegen(CodeGen())
    names = list(inspect.signature(owner.forward).parameters)
    for name, node in zip(names, [n for n in graph.nodes if n.op == "placeholder"], strict=False):
        if name in fixed:
            _erase_users(graph, node)  # the check that it has the value with which it was traced
            if name not in given:
                graph.erase_node(node)
    return graph


def _erase_users(graph: fx.Graph, node: fx.Node) -> None:
    for user in list(node.users):
        _erase_users(graph, user)
        graph.erase_node(user)


def _is_call(node: fx.Node, *names: str) -> bool:
    return node.op in ("call_function", "call_method") and _name(node) in names


def _name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", ""))


def _calls(graph: fx.Graph, *names: str) -> list[fx.Node]:
    return [node for node in graph.nodes if _is_call(node, *names)]


def _activations(graph: fx.Graph) -> list[fx.Node]:
    return [
        node
        for node in graph.nodes
        if node.op in ("call_function", "call_method") and of_call(_name(node), node.args, dict(node.kwargs))
    ]


def _replace(made: fx.GraphModule, node: fx.Node, name: str, module: nn.Module) -> None:
    made.add_submodule(name, module)
    place = 1 if _name(node) == "bipolar" else 0
    x = node.args[place] if len(node.args) > place else node.kwargs["input"]
    twin = of_call(_name(node), node.args, dict(node.kwargs))
    with made.graph.inserting_after(node):
        new = made.graph.call_module(name, (x,))
    if twin is not None and twin.inplace and isinstance(x, fx.Node):  # what used x afterwards used its new value
        later = set(_after(made.graph, new))
        for user in list(x.users):
            if user in later:
                user.replace_input_with(x, new)
    node.replace_all_uses_with(new)
    made.graph.erase_node(node)


def _after(graph: fx.Graph, node: fx.Node) -> list[fx.Node]:
    nodes = list(graph.nodes)
    return nodes[nodes.index(node) + 1 :]


def _free_name(module: nn.Module, name: str) -> str:
    while hasattr(module, name):
        name += "_"
    return name


__all__ = ["RewritingError", "check", "rewritten"]
