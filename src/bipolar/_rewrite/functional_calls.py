"""Replacement of activations that a module calls as functions, by a new forward from its traced graph.

The module stays an object of its class, with all its attributes.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from torch import fx, nn

from bipolar._symmetry.own_graph import function_name, own_graph, recognise_node
from bipolar._symmetry.recording import Arguments


def replace_calls_(
    owner: nn.Module, calls: Sequence[Arguments], activations: Mapping[int, nn.Module], count: int
) -> None:
    """Replaces activations that a module calls as functions, by their number, with modules.

    ``calls`` are the arguments of its calls, with ``count`` activations each. The new forward raises an error for other
    values of arguments that are not tensors. A dropout called as a function becomes a module, too, because traced code
    would forget whether the model trains.
    """
    own = own_graph(owner, calls, count)
    for name, tensor in own.constants.items():
        owner.register_buffer(name, tensor, persistent=False)
    for number, node in enumerate(own.activations):
        if number in activations:
            _replace(owner, own.graph, node, f"activation{number + 1}", activations[number])
    for number, (node, p) in enumerate(own.dropouts):
        _replace(owner, own.graph, node, f"dropout{number + 1}", nn.Dropout(p).train(owner.training))
    code = own.graph.python_code("self")
    original = getattr(type(owner), "_rewritten_from", type(owner))
    modules = {name: value.__name__ for name, value in code.globals.items() if isinstance(value, ModuleType)}
    names = {name: value for name, value in code.globals.items() if name not in modules}
    owner.__class__ = _with_forward(original, code.src, names, modules)


def _replace(owner: nn.Module, graph: fx.Graph, node: fx.Node, name: str, module: nn.Module) -> None:
    """Replaces a call of a function in a graph with a call of a module."""
    while hasattr(owner, name):
        name += "_"
    owner.add_module(name, module)
    place = 1 if function_name(node) == "bipolar" else 0
    x = node.args[place] if len(node.args) > place else node.kwargs["input"]
    recognised = recognise_node(node)
    with graph.inserting_after(node):
        new = graph.call_module(name, (x,))
    if recognised is not None and recognised.inplace and isinstance(x, fx.Node):  # later uses saw the changed value
        nodes = list(graph.nodes)
        later = set(nodes[nodes.index(new) + 1 :])
        for user in list(x.users):
            if user in later:
                user.replace_input_with(x, new)
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _with_forward(
    original: type[nn.Module], source: str, names: dict[str, Any], modules: dict[str, str]
) -> type[nn.Module]:
    """A class with another forward, whose objects can be copied and pickled."""
    namespace = names | {name: importlib.import_module(module) for name, module in modules.items()}
    exec(compile(source, f"<{original.__name__}, rewritten>", "exec"), namespace)  # noqa: S102 - source that fx made

    def reduce(self: nn.Module, protocol: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        return _rebuilt, (original, source, names, modules), self.__dict__

    members = {"forward": namespace["forward"], "__reduce_ex__": reduce, "_rewritten_from": original}
    return type(original.__name__, (original,), members | {"__module__": original.__module__})


def _rebuilt(*code: Any) -> nn.Module:
    made = _with_forward(*code)
    return made.__new__(made)
