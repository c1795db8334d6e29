"""The ``bipolar`` command, as a person meets it."""

import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import bipolar
from bipolar.lab.cli import item_names, main
from bipolar.lab.paper import ITEMS
from bipolar.lab.reproduce.reproduction import Reproduction
from bipolar.lab.training.flags import ACTIVATIONS
from bipolar.lab.training.guard import Guard
from tests.helpers.interruptions import ask_to_stop, interrupt_at
from tests.helpers.paths import ROOT


def test_reproduce_writes_the_figure_and_prints_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "some" / "where"
    main(["reproduce", "figure1", "--out", str(out)])
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()[1:]]
    assert paths[:3] == [out / "figure1.json", out / "figure1.svg", out / "figure1.png"]
    assert paths[3:] == [out / "report.json", out / "report.md", out / "report.html"]
    assert ElementTree.parse(paths[1]).getroot().tag.endswith("svg")  # noqa: S314 - our own file
    assert paths[2].read_bytes().startswith(b"\x89PNG")


def test_reproduce_without_an_item_does_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def note(work: Reproduction, executor: object) -> list[Path]:
        asked.extend(item.name for item in work.items)
        return []

    monkeypatch.setattr(Reproduction, "run", note)
    monkeypatch.setattr("bipolar.lab.report.write_report", lambda out: [])
    main(["reproduce", "--out", str(tmp_path)])
    assert asked == list(ITEMS)


def test_the_list_of_items(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", "figure1", "--out", str(tmp_path)])
    capsys.readouterr()
    main(["reproduce", "--list", "--out", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[0] == "figure1"
    assert lines[2].endswith("done")
    claims = [claim for item in ITEMS.values() for claim in item.claims]
    assert all(any(claim.text in line for line in lines) for claim in claims)
    table = next(line for line in lines if line.startswith("table1 "))
    assert re.search(r"\d+ (s|min) .* days", table)


def test_an_unknown_item_is_answered_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "figure99"])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert "figure99" in message
    assert "figure1" in message


def test_a_directory_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for options in ([], ["--list"]):
        with pytest.raises(SystemExit, match=r"--out .*file: expected a directory, there is a file"):
            main(["reproduce", "figure1", *options, "--out", str(tmp_path / "file")])
    with pytest.raises(SystemExit, match="expected a directory, this is a file"):
        main(["report", str(tmp_path / "file")])
    with pytest.raises(SystemExit, match="there is no result of bipolar reproduce here"):
        main(["report", str(tmp_path), "--markdown", str(tmp_path / "x.md")])


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"bipolar {bipolar.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["train"]])
def test_without_a_command_there_is_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert not stop.value.code
    assert "usage: bipolar" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command", ["reproduce", "report", "train text", "train images", "watch", "eval", "sample", "export", "data"]
)
def test_help_names_the_real_defaults(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    said = capsys.readouterr().out
    assert "None)" not in said
    if command.startswith("train"):
        words = re.findall(r"\w+", said)
        assert set(ACTIVATIONS.split(", ")) <= set(words)


def test_what_the_help_lists_is_what_there_is() -> None:
    listed = ACTIVATIONS.split(", ")
    assert [name for name in bipolar.list_activations() if name in listed] == listed
    registered_by_examples = {"bsigmoid"}
    assert set(bipolar.list_activations()) - set(listed) <= registered_by_examples
    assert set(item_names()) == set(ITEMS)


def test_help_and_errors_do_not_wait_for_torch(tmp_path: Path) -> None:
    """Which takes seconds to import."""
    commands = (
        "--help",
        "train text --help",
        "train images --help",
        "reproduce --help",
        "reproduce figure99",
        "train text --colour red",
        "train text --max-steps 0",
        f"train text --resume {tmp_path}",
        f"train text --data {tmp_path}/nothing.txt",
        f"train images --data {tmp_path}/nothing",
        f"eval {tmp_path}",
        f"sample {tmp_path}",
        f"report {tmp_path}/nothing",
        "watch --help",
        f"watch {tmp_path}/nothing",
        f"watch {tmp_path}",
    )
    code = f"""
import sys
import bipolar
from bipolar.lab.cli import item_names, main
for command in {commands}:
    try:
        main(command.split())
    except SystemExit:
        print("heavy:", [name for name in ("torch", "numpy", "matplotlib", "rich") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = [line for line in result.stdout.splitlines() if line.startswith("heavy:")]
    assert said == ["heavy: []"] * len(commands)


def test_the_end_of_a_run_says_where_it_is_and_its_code_whether_it_converged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--data python-docs --model.num-layers 2 --model.hidden-size 8 --batch-size 4 --window 10 --max-steps 3"
    command = f"train text {options} --max-valid-windows 2 --accelerator cpu --out {tmp_path}"
    main([*command.split(), "--lr", "1e-3"])
    assert capsys.readouterr().out.splitlines()[-1] == f"The run is in {tmp_path}"
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--lr", "1e5", "--out", f"{tmp_path}/high"])
    assert stop.value.code == 3
    *_, result, place = capsys.readouterr().out.splitlines()
    assert result.startswith("status did not converge")
    assert place == f"The run is in {tmp_path}/high"


def test_help_of_the_installed_command() -> None:
    command = Path(sys.executable).with_name("bipolar")
    result = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    assert "reproduce" in result.stdout


@pytest.mark.parametrize(("missing", "command"), [("tyro", ["--help"]), ("matplotlib", ["reproduce", "--list"])])
def test_a_missing_extra_is_named(missing: str, command: list[str]) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from bipolar.lab.cli import main; main({command})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.strip() == f"The bipolar command needs {missing}: pip install 'bipolar[lab]'"


def commands_of(page: str) -> list[list[str]]:
    """The commands of a page, without the word bipolar."""
    blocks = (ROOT / page).read_text(encoding="utf-8").split("```sh\n")[1:]
    lines = [line for block in blocks for line in block.split("```")[0].splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("bipolar ")]


def test_the_commands_of_the_laboratory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As written, but for a shorter training; and the example in Python on what they leave."""
    commands = commands_of("docs/laboratory.md")
    assert [command[0] for command in commands] == ["train", "sample", "eval", "data", "train", "eval"]
    monkeypatch.chdir(tmp_path)
    outputs = []
    for command in commands:
        main([{"300": "5", "3": "1"}.get(word, word) for word in command])
        outputs.append(capsys.readouterr().out)
    assert "status finished, step 5" in outputs[0]
    assert outputs[1].startswith("The ")
    assert outputs[2].startswith("test_bpc ")
    assert "python-docs" in outputs[3]
    assert "status finished" in outputs[4]
    assert outputs[5].startswith("test_error ")
    (example,) = (ROOT / "docs/laboratory.md").read_text(encoding="utf-8").split("```python\n")[1:]
    exec(compile(example.split("```")[0], "laboratory.md", "exec"), {})  # noqa: S102 - our own page
    assert len(capsys.readouterr().out) == 200 + len("\n")


def test_the_commands_on_a_text_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As written, but for a smaller network and a shorter text."""
    monkeypatch.chdir(tmp_path)
    Path("my_text.txt").write_text("The quick brown fox. " * 6500)
    commands = commands_of("docs/guides/text.md")
    assert [command[0] for command in commands] == ["train", "sample", "eval"]
    for command in commands:
        main([{"36": "2", "1e6": "2e3", "5": "1"}.get(word, word) for word in command])
    said = capsys.readouterr().out
    assert "status finished" in said
    assert "test_bpc" in said


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "run"
    options = "--data python-docs --model.num-layers 2 --model.hidden-size 8 --batch-size 4 --window 10 --max-steps 2"
    main(f"train text {options} --max-valid-windows 2 --accelerator cpu --out {out}".split())
    return out


def test_an_interrupted_experiment_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Guard, "check", interrupt_at(2, ask_to_stop))
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "table2", "--workers", "1", "--out", str(tmp_path)])
    assert stop.value.code == 130
    assert "the same command goes on from here" in capsys.readouterr().err


def test_a_table_brings_the_networks_that_it_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def run(work: Reproduction, executor: object) -> list[object]:
        asked.extend(item.name for item in work.items)
        return []

    monkeypatch.setattr(Reproduction, "run", run)
    monkeypatch.setattr("bipolar.lab.report.write_report", lambda out: [])
    for names in (["table4", "table2"], ["rivals2", "table2"], ["figure1"]):
        main(["reproduce", *names, "--out", str(tmp_path)])
    assert asked == ["table2", "rivals2", "table4", "rivals4", "table2", "rivals2", "figure1"]


def test_the_result_of_one_scale_is_not_replaced_by_another(tmp_path: Path) -> None:
    record = '{"scale": "small", "results": {}}'
    (tmp_path / "table2.json").write_text(record)
    with pytest.raises(SystemExit, match=r"table2.json is there already, of the scale small; choose another --out"):
        main(["reproduce", "table2", "--out", str(tmp_path)])
    assert (tmp_path / "table2.json").read_text() == record


def test_nothing_is_printed_before_something_can_be_sampled(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run, prompt in ((tmp_path, "the "), (trained, "the \u2603")):
        with pytest.raises(SystemExit):
            main(["sample", str(run), "--prompt", prompt])
        assert capsys.readouterr().out == ""


def test_whoever_reads_may_stop_reading(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(SystemExit) as stop:
            main(["sample", str(trained), "--length", "50"])
        assert stop.value.code == 1


def test_the_papers_scale_says_first_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Reproduction, "run", lambda work, executor: [])
    monkeypatch.setattr("bipolar.lab.report.write_report", lambda out: [])
    main(["reproduce", "table3", "table5", "--scale", "paper", "--out", str(tmp_path)])
    assert re.search(r"54 runs to go: about [\d,]+ days on this machine", capsys.readouterr().out)


@pytest.mark.parametrize("option", ["seeds", "workers"])
def test_counts_below_one(option: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=f"--{option} 0: expected at least 1"):
        main(["reproduce", f"--{option}", "0", "--out", str(tmp_path)])


@pytest.mark.parametrize(
    ("scale", "cores", "workers"), [("quick", 2, 2), ("quick", 64, 8), ("quick", 1, 1), ("small", 4, 1)]
)
def test_the_quick_scale_uses_the_cores(
    scale: str, cores: int, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [1]
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr("bipolar.lab.reproduce.executors.in_processes", asked.append)
    monkeypatch.setattr(Reproduction, "run", lambda work, executor: [])
    monkeypatch.setattr("bipolar.lab.report.write_report", lambda out: [])
    main(["reproduce", "table2", "--scale", scale, "--out", str(tmp_path)])
    assert asked[-1] == workers
