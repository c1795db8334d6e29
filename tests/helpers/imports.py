"""The imports of a source file, in every form that Python has."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.paths import ROOT

SOURCE = ROOT / "src"


def modules() -> dict[str, Path]:
    """All modules of the package, by name."""
    paths = {path.relative_to(SOURCE).with_suffix(""): path for path in (SOURCE / "bipolar").rglob("*.py")}
    return {".".join(part for part in name.parts if part != "__init__"): path for name, path in paths.items()}


def imports_of(path: Path, source: str | None = None) -> set[str]:
    """The modules that a file imports, at its top, within functions, and for the type checker alone.

    ``from a import b`` imports the module ``a.b`` if there is one, and else ``a``.
    """
    text = path.read_text(encoding="utf-8") if source is None else source
    package = path.relative_to(SOURCE).parent.parts
    return {name for node in ast.walk(ast.parse(text)) for name in _imported(node, package)}


def _imported(node: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parents = package[: len(package) - node.level + 1] if node.level else ()
        base = ".".join((*parents, *([node.module] if node.module else [])))
        for alias in node.names:
            yield f"{base}.{alias.name}" if _is_module(f"{base}.{alias.name}") else base
    elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
        yield from (str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant))


def _is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()
