"""Modules in place of activations that a module calls as functions, by an edit of its own methods.

The methods stay the Python code that they are, but for the edited calls: attributes, buffers and arguments count at
each call. A torch function mode around the forward would need no source, but would reach into the modules within it;
what tells them apart, the frames of the interpreter, is not there under ``torch.compile(fullgraph=True)`` and strict
export.
"""

import linecache
import types
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from bipolar._activations.recognition import RecognisedActivation
from bipolar._symmetry.own_source import HEADER, NotReplaceableError, OwnCall, Place, find_call, source_of


@dataclass(frozen=True)
class Replacement:
    """A module for the calls of an activation at a place in the source of a module."""

    place: Place | None
    activation: RecognisedActivation
    module: nn.Module


def replace_calls_(owner: nn.Module, replacements: Iterable[Replacement]) -> None:
    """Replaces activations that a module calls as functions; it stays an object of its class, with all its attributes.

    A function that the module holds as an attribute, as in ``self.act(x)``, is replaced there. Raises a
    :class:`NotReplaceableError`, before anything changes, where that is not possible.
    """
    found = [(find_call(owner, r.place, r.activation), r.module) for r in replacements]
    held = _by_attribute([(call, module) for call, module in found if call.attribute is not None])
    edited = [(call, module) for call, module in found if call.attribute is None]
    for name, module in held.items():
        delattr(owner, name)
        owner.add_module(name, module.train(owner.training))
    names = []
    for number, (_, module) in enumerate(edited):
        name = f"activation{number + 1}"
        while hasattr(owner, name):
            name += "_"
        owner.add_module(name, module.train(owner.training))
        names.append(name)
    if edited:
        _edit(owner, [(call, name, module) for (call, module), name in zip(edited, names, strict=True)])


def _by_attribute(calls: list[tuple[OwnCall, nn.Module]]) -> dict[str, nn.Module]:
    found: dict[str, nn.Module] = {}
    for call, module in calls:
        known = found.setdefault(str(call.attribute), module)
        if str(known) != str(module):
            raise NotReplaceableError(
                f"{call.owner}.{call.attribute} would be {known} at one call and {module} at another; use one "
                "activation per call"
            )
    return found


def _edit(owner: nn.Module, calls: list[tuple[OwnCall, str, nn.Module]]) -> None:
    kind = type(owner)
    sources: dict[str, str] = dict(getattr(kind, "_rewritten_sources", {}))
    for method in {call.method for call, _, _ in calls}:
        text = source_of(getattr(kind, method))
        edits = [edit for call, name, module in calls if call.method == method for edit in _edits(call, name, module)]
        # from the end, so that the offsets before it hold; at one place the outer call's text comes first
        for start, end, _, new in sorted(edits, key=lambda edit: (-edit[0], edit[2])):
            text = text[:start] + new.encode() + text[end:]
        sources[method] = text.decode()
    owner.__class__ = _with_methods(getattr(kind, "_rewritten_from", kind), sources)


def _edits(call: OwnCall, name: str, module: nn.Module) -> list[tuple[int, int, int, str]]:
    """The texts before and after the input, each with its place and the length of the whole call."""
    before, after = f"{call.owner}.{name}(", ")"
    if call.variable is not None and not getattr(module, "inplace", False):
        before, after = f"({call.variable} := {before}", "))"  # later uses saw the changed value
    length = call.end - call.start
    return [(call.start, call.input_start, length, before), (call.input_end, call.end, length, after)]


def _with_methods(original: type[nn.Module], sources: Mapping[str, str]) -> type[nn.Module]:
    """A class with edited methods, whose objects can be copied and pickled."""

    def reduce(self: nn.Module, protocol: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        return _rebuilt, (original, dict(sources)), self.__dict__

    members: dict[str, Any] = {name: _compiled(original, name, text) for name, text in sources.items()}
    members |= {"__reduce_ex__": reduce, "_rewritten_from": original, "_rewritten_sources": dict(sources)}
    members |= {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
    made: type[nn.Module] = types.new_class(original.__name__, (original,), exec_body=lambda body: body.update(members))
    return made


def _rebuilt(original: type[nn.Module], sources: Mapping[str, str]) -> nn.Module:
    made = _with_methods(original, sources)
    return made.__new__(made)


def _compiled(original: type[nn.Module], method: str, source: str) -> FunctionType:
    """A method with another source, in the surroundings of the original: its globals, closure and defaults."""
    function: FunctionType = getattr(original, method)
    home = next(base for base in original.__mro__ if method in vars(base))
    if source[:1].isspace():  # the class is there for names such as __name, the function for variables around it
        free = ", ".join(name for name in function.__code__.co_freevars if name != "__class__")
        source = HEADER.format(free, home.__name__.lstrip("_") or "Owner") + source
    filename = f"<{original.__qualname__}.{method}, rewritten {zlib.crc32(source.encode()):08x}>"
    future = function.__code__.co_flags & ~0xFFFF  # what the file imports from __future__
    code = _code_named(function.__name__, compile(source, filename, "exec", flags=future, dont_inherit=True))
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__, made.__annotations__ = function.__kwdefaults__, function.__annotations__
    made.__qualname__, made.__doc__, made.__module__ = function.__qualname__, function.__doc__, function.__module__
    made.__dict__.update(function.__dict__)
    return made


def _code_named(name: str, code: CodeType) -> CodeType:
    """The code of a function by its name, in that of its surroundings."""
    waiting = [code]
    while waiting:
        for constant in waiting.pop(0).co_consts:
            if isinstance(constant, CodeType):
                if constant.co_name == name:
                    return constant
                waiting.append(constant)
    raise AssertionError(f"{name} is not in its own source")
