"""Places in the source of a module's own methods at which it calls activations as functions.

A call is found by its position in the source. So it is the same call in a loop, in a branch that another argument
takes, and in training and evaluation.
"""

import ast
import inspect
import linecache
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import torch.overrides
from torch import nn

from bipolar._activations.catalogue import of_function
from bipolar._activations.recognition import RecognisedActivation


class NotReplaceableError(RuntimeError):
    """A module cannot take the place of a call of a function; the message says why."""


@dataclass(frozen=True)
class Place:
    """The end of a call in a file. Python 3.10 knows the line alone, and the ``column`` is None."""

    filename: str
    function: str
    line: int
    column: int | None


@dataclass(frozen=True)
class OwnCall:
    """A call of an activation in the source of a method, as the text before and after its input."""

    method: str
    #: Of the method's source, by which a later one is known to be the same.
    checksum: int
    #: The name of the module in the method, usually ``self``.
    owner: str
    #: Offsets in the encoded source of the method: the call, and the input in it.
    start: int
    end: int
    input_start: int
    input_end: int
    #: The attribute of the module that holds the function, as ``act`` in ``self.act(x)``.
    attribute: str | None = None
    #: The variable that a call in place changes.
    variable: str | None = None


def place_of_call(function: Callable[..., Any], machinery: str) -> Place | None:
    """The place that called a torch function, seen from its override in the file ``machinery``."""
    between = {getattr(f, "__code__", None) for f in (function, inspect.unwrap(function))}
    frame = sys._getframe(1)
    while frame.f_code in between or frame.f_code.co_filename in (machinery, torch.overrides.__file__):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    line: int | None = frame.f_lineno
    column = None
    if sys.version_info >= (3, 11):
        _, line, _, column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    return None if line is None else Place(frame.f_code.co_filename, frame.f_code.co_name, line, column)


def find_call(owner: nn.Module, place: Place | None, activation: RecognisedActivation) -> OwnCall:
    """The call of an activation that a module was seen to make.

    Raises a :class:`NotReplaceableError` where a module would not be the same as the call.
    """
    if activation.has_state:
        raise NotReplaceableError(f"it calls {activation.name} as a function, which is not the same as the module")
    if place is None:
        raise NotReplaceableError(f"the code that calls {activation.name} is not known")
    for name, function in _methods(type(owner)):
        if function.__code__.co_filename == place.filename:
            source = _source_of(function)
            found = source.call_at(place, activation) if source is not None else None
            if source is not None and found is not None:
                return _Checked(owner, name, function, source, found, activation).call
    inner = [inspect.unwrap(function).__code__ for _, function in _methods(type(owner))]
    is_own = any((code.co_filename, code.co_name) == (place.filename, place.function) for code in inner)
    why = "whose source is decorated or not known" if is_own else f"which is not a method of {type(owner).__name__}"
    where = f"{place.function} ({place.filename}, line {place.line})"
    raise NotReplaceableError(f"{activation.name} is called in {where}, {why}")


def _methods(kind: type) -> list[tuple[str, FunctionType]]:
    """The methods of a class that are plain functions, as its objects see them."""
    names = dict.fromkeys(name for base in kind.__mro__ if base is not nn.Module for name in vars(base))
    found = ((name, inspect.getattr_static(kind, name)) for name in names)
    return [(name, function) for name, function in found if isinstance(function, FunctionType)]


@dataclass(frozen=True)
class _Source:
    """The source of a function, parsed below a header that makes its indentation right."""

    text: bytes
    tree: ast.FunctionDef
    #: The number of lines in the file before the source, and in the header.
    before: int
    header: int

    def call_at(self, place: Place, activation: RecognisedActivation) -> ast.Call | None:
        line = place.line - self.before + self.header
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        if place.column is not None:
            return next((c for c in calls if (c.end_lineno, c.end_col_offset) == (line, place.column)), None)
        near = [c for c in calls if c.lineno <= line <= (c.end_lineno or 0)]
        near = [c for c in near if activation.name in ast.unparse(c.func)] or near
        return near[0] if len(near) == 1 else None

    def offset(self, line: int | None, column: int | None) -> int:
        lines = self.text.splitlines(keepends=True)
        return sum(map(len, lines[: (line or 1) - self.header - 1])) + (column or 0)


HEADER = "def _({}):\n class {}:\n"


def source_of(function: FunctionType) -> bytes:
    """The encoded source of a method in which :func:`find_call` has found a call."""
    source = _source_of(function)
    if source is None:
        raise NotReplaceableError(f"the source of {function.__qualname__} is not known")
    return source.text


def _source_of(function: FunctionType) -> _Source | None:
    """The source of a method; None if there is none, or if it is not that of the running code."""
    try:
        linecache.checkcache(function.__code__.co_filename)
        lines, first = inspect.getsourcelines(function)
        text = "".join(lines)
        header = HEADER.format("", "Owner") if text[:1].isspace() else ""
        tree = ast.parse(header + text)
    except (OSError, SyntaxError, TypeError, IndexError):
        return None
    found = next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name != "_"), None)
    if found is None or found.name != function.__name__ or found.decorator_list:
        return None
    return _Source(text.encode(), found, first - 1, header.count("\n"))


class _Checked:
    """A call of which it is certain that it calls the activation, and with which arguments."""

    def __init__(
        self,
        owner: nn.Module,
        name: str,
        function: FunctionType,
        source: _Source,
        node: ast.Call,
        activation: RecognisedActivation,
    ) -> None:
        self._owner, self._function, self._activation = owner, function, activation
        self._text = ast.unparse(node)
        parameters = source.tree.args.posonlyargs + source.tree.args.args
        self._self = parameters[0].arg if parameters else ""
        given, attribute = self._input_and_attribute(node)
        self.call = OwnCall(
            name,
            zlib.crc32(source.text),
            self._self,
            source.offset(node.lineno, node.col_offset),
            source.offset(node.end_lineno, node.end_col_offset),
            source.offset(given.lineno, given.col_offset),
            source.offset(given.end_lineno, given.end_col_offset),
            attribute,
            self._variable(given),
        )

    def _input_and_attribute(self, node: ast.Call) -> tuple[ast.expr, str | None]:
        """The input of the call, and the attribute of the module that holds the function, if one does."""
        function = self._static(node.func)
        entry = of_function(function)
        if function is not None and getattr(function, "__name__", "") == "bipolar":
            values = dict(zip(("f", "input", "dim", "pattern"), node.args, strict=False))
            values |= {str(keyword.arg): keyword.value for keyword in node.keywords}
            f = values.pop("f")
            if not isinstance(f, ast.Lambda) and self._static(f) is None:
                raise NotReplaceableError(f"the function in {self._text} is looked up at each call")
            return self._only_input(values), None
        if entry is not None and entry.name == self._activation.name:
            return self._input_of(node, node.args), None
        if isinstance(node.func, ast.Attribute):
            held = self._held(node.func)
            if held is not None and (of_function(held) is not None or isinstance(held, partial)):
                if len(node.args) != 1 or node.keywords:
                    raise NotReplaceableError(f"{self._text} has arguments beside its input")
                return self._input_of(node, node.args), node.func.attr
            if node.func.attr.rstrip("_") == self._activation.name and not self._is_self(node.func.value):
                return self._input_of(node, [node.func.value, *node.args]), None  # a method of a tensor
        raise NotReplaceableError(f"which function {self._text} calls is decided at each call")

    def _input_of(self, node: ast.Call, args: list[ast.expr]) -> ast.expr:
        values = {str(i): value for i, value in enumerate(args)}
        if args:
            values["input"] = values.pop("0")
        return self._only_input(values | {str(keyword.arg): keyword.value for keyword in node.keywords})

    def _only_input(self, values: dict[str, ast.expr]) -> ast.expr:
        """The input, if all other arguments are constants."""
        given = values.pop("input", None)
        if given is None or isinstance(given, ast.Starred) or "None" in values:
            raise NotReplaceableError(f"the input of {self._text} is not an argument of its own")
        for value in values.values():
            try:
                ast.literal_eval(value)
            except ValueError:
                raise NotReplaceableError(f"{self._text} reads {ast.unparse(value)} at each call") from None
        return given

    def _variable(self, given: ast.expr) -> str | None:
        if not self._activation.inplace:
            return None
        if isinstance(given, ast.Attribute | ast.Subscript):
            raise NotReplaceableError(f"{self._text} changes {ast.unparse(given)} in place")
        return given.id if isinstance(given, ast.Name) else None

    def _static(self, node: ast.expr) -> Any:
        """The value of a name, or of its attributes, that no local variable decides; None if there is none."""
        if isinstance(node, ast.Attribute):
            home = self._static(node.value)
            return None if home is None else getattr(home, node.attr, None)
        if not isinstance(node, ast.Name) or node.id in _local_names(self._function.__code__):
            return None
        cells = zip(self._function.__code__.co_freevars, self._function.__closure__ or (), strict=True)
        closure = {name: cell.cell_contents for name, cell in cells if name != "__class__"}
        return closure.get(node.id, self._function.__globals__.get(node.id))

    def _held(self, node: ast.Attribute) -> Any:
        return vars(self._owner).get(node.attr) if self._is_self(node.value) else None

    def _is_self(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self._self


def _local_names(code: CodeType) -> set[str]:
    """The variables of a function, and of those within it."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_varnames, *code.co_cellvars}.union(*map(_local_names, inner))
