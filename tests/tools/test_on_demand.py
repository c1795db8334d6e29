"""A package that imports its modules when one of their names is used."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "lazy").mkdir()
    for name, content in (
        ("__init__", "from bipolar._tools.on_demand import on_demand\n"),
        ("_inside", "a, hidden = 1, 2\n__all__ = ['a']"),
        ("outside", "b = 3"),
    ):
        (tmp_path / "lazy" / f"{name}.py").write_text(content)
    with (tmp_path / "lazy/__init__.py").open("a") as file:
        file.write('__getattr__, __dir__ = on_demand(__name__, {"outside": ("b",), "_inside": None})')
    monkeypatch.syspath_prepend(tmp_path)
    import lazy  # type: ignore[import-not-found]  # made above

    yield lazy
    for name in [name for name in sys.modules if name.split(".")[0] == "lazy"]:
        del sys.modules[name]


def test_modules_wait_for_their_names(package: ModuleType) -> None:
    assert "lazy.outside" not in sys.modules
    assert package.b == 3
    assert "lazy._inside" not in sys.modules
    assert package.a == 1
    assert vars(package)["a"] == 1  # found at once from now on


def test_what_there_is(package: ModuleType) -> None:
    assert package.__all__ == ["a", "b", "outside"]
    assert {"a", "b", "outside", "__name__"} <= set(dir(package))
    assert package.outside.b == 3
    for name in ("hidden", "c", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"module 'lazy' has no attribute '{name}'"):
            getattr(package, name)
