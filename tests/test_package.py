"""The package as others get it: a wheel that needs torch and nothing else."""

import re
import runpy
import subprocess
import sys
import venv
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.imports import SOURCE, imports_of, modules
from tests.helpers.pages import blocks_of
from tests.helpers.paths import ROOT

CHECK = """
import sys
import torch, bipolar
from bipolar.functional import brelu
assert bipolar.__file__.startswith(sys.prefix), bipolar.__file__
assert brelu(torch.tensor([[-1.0, -1.0, 2.0, 2.0]])).tolist() == [[0.0, -1.0, 2.0, 0.0]]
for extra in ("matplotlib", "tyro", "pytest"):
    try:
        __import__(extra)
    except ImportError:
        continue
    raise AssertionError(f"{extra} is there: this does not show that the core needs torch alone")
print("works")
"""


def requirements_of(name: str) -> dict[str, metadata.Distribution]:
    """The distribution and everything it needs, without extras, as far as it is installed."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [name]
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another platform
            continue
        if name not in found:
            found[name] = distribution
            needed = [line for line in distribution.requires or [] if "extra ==" not in line]
            waiting += [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in needed]
    return found


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=ROOT)


@pytest.fixture(scope="module")
def fresh_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel, torch and what torch needs, and nothing else."""
    directory = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory)
    assert built.returncode == 0, built.stderr
    (wheel,) = directory.glob("*.whl")
    venv.create(directory / "venv", symlinks=True)
    python = directory / "venv" / "bin" / "python"
    (site,) = directory.glob("venv/lib/python*/site-packages")
    for distribution in requirements_of("torch").values():
        for file in distribution.files or []:
            source = Path(str(distribution.locate_file(file.parts[0])))
            if file.parts[0] != ".." and source.exists() and not (site / source.name).exists():
                (site / source.name).symlink_to(source)
    installed = run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    assert installed.returncode == 0, installed.stderr
    return python


def test_the_wheel_works_with_torch_alone(fresh_python: Path) -> None:
    result = run(fresh_python, "-I", "-c", CHECK)
    assert (result.stdout, result.returncode) == ("works\n", 0), result.stderr


def test_the_command_of_the_bare_wheel_names_the_extra(fresh_python: Path) -> None:
    result = run(fresh_python, "-I", fresh_python.with_name("bipolar"), "--help")
    assert result.returncode == 1
    assert "pip install 'bipolar[lab]'" in result.stderr


def test_the_wheel_carries_the_types_the_licence_and_the_files_of_the_report(fresh_python: Path) -> None:
    site = next(fresh_python.parents[1].glob("lib/python*/site-packages"))
    assert (site / "bipolar" / "py.typed").exists()
    assert list(site.glob("bipolar-*.dist-info/licenses/LICENSE"))
    for name in ("page.html.jinja", "recorded.json"):
        assert (site / "bipolar" / "lab" / "report" / name).exists()


def room_of(module: str) -> str:
    """The entry of ``src/bipolar`` that a module is in; ``functional`` is the front of the activations."""
    room = [*module.split("."), "bipolar"][1]
    return "_activations" if room == "functional" else room


@pytest.mark.parametrize(
    "statement",
    [
        "import bipolar.lab",
        "import bipolar.lab.cli as command",
        "from bipolar import lab",
        "from bipolar import brelu, lab",
        "from bipolar.lab import cli",
        "from bipolar.lab.cli import main",
        "from . import lab",
        "from .lab.cli import main",
        "def f():\n    from bipolar import lab",
        "if TYPE_CHECKING:\n    from bipolar.lab import cli",
        "importlib.import_module('bipolar.lab')",
        "__import__('bipolar.lab')",
    ],
)
def test_every_form_of_an_import_is_seen(statement: str) -> None:
    assert "lab" in map(room_of, imports_of(SOURCE / "bipolar" / "functional.py", statement))


#: The rooms that each room may import from. Imports go one way, so that each can be read without those above it.
BELOW: dict[str, set[str]] = {
    "_tools": set(),
    "_activations": {"_tools"},
    "_rnn": {"_tools", "_activations"},
    "_init": {"_tools", "_activations", "_rnn"},
    "_probe": {"_tools", "_activations", "_rnn", "_init"},
    "_symmetry": {"_tools", "_activations", "_rnn", "_init"},
    "_rewrite": {"_tools", "_activations", "_rnn", "_init", "_symmetry"},
    "optim": {"_tools", "_activations", "_rnn", "_init", "_symmetry", "_rewrite"},
    "models": {"_tools", "_activations", "_rnn", "_init", "_probe", "_symmetry", "_rewrite"},
    "_public": {"_tools", "_activations", "_rnn", "_init", "_probe", "_symmetry", "_rewrite", "optim"},
    "bipolar": {"_tools", "_public", "models"},
    "lab": {"_tools", "_activations", "_rnn", "_init", "_probe", "_symmetry", "_rewrite", "optim", "models", "bipolar"},
}


def test_every_room_has_its_place() -> None:
    assert {room_of(module) for module in modules()} == BELOW.keys()


@pytest.mark.parametrize("room", BELOW)
def test_imports_between_rooms_go_one_way(room: str) -> None:
    """Nothing but the laboratory imports the laboratory."""
    for module, path in modules().items():
        if room_of(module) == room:
            imported = {name for name in imports_of(path) if name.split(".")[0] == "bipolar"}
            wrong = {name for name in imported if room_of(name) not in BELOW[room] | {room}}
            assert not wrong, path


def test_every_pin_satisfies_its_range() -> None:
    """What ``make setup`` installs is what the package says it works with."""
    from packaging.requirements import Requirement

    pins = dict(
        line.split(";")[0].strip().split("==")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#") and "python_version <" not in line
    )
    pins = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    requirements = [Requirement(line) for line in metadata.requires("bipolar") or []]
    assert requirements
    for requirement in requirements:
        assert requirement.specifier.contains(pins[requirement.name]), requirement


def example_of_the_readme(number: int) -> dict[str, Any]:
    """Runs an example; returns its names."""
    blocks = blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))
    examples = [block.code for block in blocks if block.language == "python"]
    assert len(examples) == 3
    names: dict[str, Any] = {}
    exec(compile(examples[number], "README.md", "exec"), names)  # noqa: S102 - our own README
    return names


def test_the_readme_takes_norms_out_and_folds() -> None:
    names = example_of_the_readme(0)
    plain, model, batch = names["plain"], names["model"], names["batch"]
    assert plain.fold_report.holds
    assert torch.equal(plain.eval()(batch), model.eval()(batch))


def test_the_readme_finds_a_fault_and_mends_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The comments say what is printed."""
    example_of_the_readme(1)
    variance, gradient, after = capsys.readouterr().out.splitlines()
    assert variance.startswith("variance shrinks")
    assert gradient.startswith("the gradient shrinks")
    assert after == "[]"


def test_the_readme_runs_a_stack() -> None:
    assert example_of_the_readme(2)["output"].shape == (50, 8, 256)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a program of ``examples`` as a script, but for a fresh interpreter; returns what it prints."""

    def run_it(name: str, *options: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, options)])
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        return capsys.readouterr().out

    return run_it


# raised within torch and onnxscript, by the export to ONNX
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.long
def test_the_example_of_a_builder_runs(example: Callable[..., str], tmp_path: Path) -> None:
    """From batch norm to ONNX; its two networks have learned something."""
    path = tmp_path / "digits.onnx"
    printed = example("batch_of_four.py", "--steps", "300", "--out", path)
    errors = [float(number) for number in re.findall(r"([\d.]+) %", printed)]
    assert len(errors) == 2
    assert all(error < 60 for error in errors), printed
    assert "outputs equal to the last bit: True" in printed
    assert path.stat().st_size > 10_000


@pytest.mark.long
def test_the_example_of_unfair_batches_shows_its_point(example: Callable[..., str]) -> None:
    printed = example("unfair_batches.py", "--steps", "200", "--seeds", "1")
    without, *with_norm = (float(number) for number in re.findall(r"([\d.]+) %", printed))
    assert without < 10 < 25 < min(with_norm), printed
