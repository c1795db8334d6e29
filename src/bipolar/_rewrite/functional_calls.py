"""Modules in place of activations that a module calls as functions, by an edit of its own methods.

The methods stay the Python code that they are, but for the edited calls: attributes, buffers and arguments count at
each call. A torch function mode around the forward would need no source, but would reach into the modules within it;
what tells them apart, the frames of the interpreter, is not there under ``torch.compile(fullgraph=True)`` and strict
export.
"""

import linecache
import types
import zlib
from collections.abc import Callable, Mapping, Sequence
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


@dataclass(frozen=True)
class CallEdit:
    """A call in the source of a module, and the name that the module in its place has there."""

    call: OwnCall
    name: str


def replace_calls_(owner: nn.Module, replacements: Sequence[Replacement]) -> list[CallEdit]:
    """Replaces activations that a module calls as functions; it stays an object of its class, with all its attributes.

    A function that the module holds as an attribute, as in ``self.act(x)``, is replaced there. Raises a
    :class:`NotReplaceableError`, before anything changes, where that is not possible.
    """
    edits: list[CallEdit] = []
    for replacement in replacements:
        call = find_call(owner, replacement.place, replacement.activation)
        name = call.attribute or f"activation{len([e for e in edits if e.call.attribute is None]) + 1}"
        while call.attribute is None and hasattr(owner, name):
            name += "_"
        edits.append(CallEdit(call, name))
    make_edits_(owner, edits, [replacement.module for replacement in replacements])
    return edits


def make_edits_(owner: nn.Module, edits: Sequence[CallEdit], modules: Sequence[nn.Module]) -> None:
    """Puts modules into the places of calls."""
    new: dict[str, nn.Module] = {}
    for edit, module in zip(edits, modules, strict=True):
        known = new.setdefault(edit.name, module)
        if str(known) != str(module):
            raise NotReplaceableError(
                f"{edit.call.owner}.{edit.name} would be {known} at one call and {module} at another; use one "
                "activation per call"
            )
    written = [edit for edit in edits if edit.call.attribute is None]
    sources = _edited_sources(type(owner), written, new)
    for name, module in new.items():
        vars(owner).pop(name, None)
        owner.add_module(name, module.train(owner.training))
    if written:
        owner.__class__ = _with_methods(getattr(type(owner), "_rewritten_from", type(owner)), sources)


def _edited_sources(
    kind: type[nn.Module], edits: Sequence[CallEdit], modules: Mapping[str, nn.Module]
) -> dict[str, str]:
    """The sources of all methods of a class that are not the original's."""
    sources: dict[str, str] = dict(getattr(kind, "_rewritten_sources", {}))
    for method in dict.fromkeys(edit.call.method for edit in edits):
        text = source_of(getattr(kind, method))
        texts = [text_ for e in edits if e.call.method == method for text_ in _edits(e.call, e.name, modules[e.name])]
        if any(e.call.checksum != zlib.crc32(text) for e in edits if e.call.method == method):
            raise NotReplaceableError(f"the source of {kind.__qualname__}.{method} has changed")
        # from the end, so that the offsets before it hold; at one place the outer call's text comes first
        for start, end, _, new in sorted(texts, key=lambda edit: (-edit[0], edit[2])):
            text = text[:start] + new.encode() + text[end:]
        sources[method] = text.decode()
    return sources


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
