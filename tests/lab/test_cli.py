"""The ``bipolar`` command, as a person meets it."""

import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from bipolar.lab.cli import main
from bipolar.lab.paper import ITEMS


def test_reproduce_writes_the_figure_and_prints_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "some" / "where"
    main(["reproduce", "figure1", "--out", str(out)])
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert paths == [out / "figure1.svg", out / "figure1.png"]
    assert ElementTree.parse(paths[0]).getroot().tag.endswith("svg")  # noqa: S314 - our own file
    assert paths[1].read_bytes().startswith(b"\x89PNG")


def test_reproduce_without_an_item_does_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def note(name: str) -> Callable[..., list[Path]]:
        def item(*_: object) -> list[Path]:
            asked.append(name)
            return []

        return item

    for name in ITEMS:
        monkeypatch.setitem(ITEMS, name, note(name))
    main(["reproduce", "--out", str(tmp_path)])
    assert asked == list(ITEMS)


def test_an_unknown_item_is_answered_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "figure99"])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert "figure99" in message
    assert "figure1" in message


def test_a_directory_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SystemExit, match=r"--out .*file: cannot write there"):
        main(["reproduce", "figure1", "--out", str(tmp_path / "file")])


def test_help_of_the_installed_command() -> None:
    command = Path(sys.executable).with_name("bipolar")
    result = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    assert "reproduce" in result.stdout


@pytest.mark.parametrize("missing", ["tyro", "matplotlib"])
def test_a_missing_extra_is_named(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import bipolar.lab.cli"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.strip() == f"The bipolar command needs {missing}: pip install 'bipolar[lab]'"


def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    """As written, but for a shorter training."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    block = next(part for part in readme.split("```")[1::2] if "bipolar train text" in part)
    commands = [shlex.split(line) for line in block.splitlines() if line.startswith("bipolar ")]
    assert [command[1] for command in commands] == ["train", "sample", "eval", "data"]
    outputs = []
    for command in commands:
        arguments = [{"300": "5"}.get(word, word) for word in command[1:]]
        done = subprocess.run(
            [sys.executable, "-m", "bipolar.lab", *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert "status finished, step 5" in outputs[0]
    assert outputs[1].startswith("The ")
    assert outputs[2].startswith("test_bpc ")
    assert "python-docs" in outputs[3]
