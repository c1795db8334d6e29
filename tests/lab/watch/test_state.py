"""The state of a run, from files in any condition."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bipolar.lab.watch.places import runs_in
from bipolar.lab.watch.state import RECENT, State, Watched

CONFIG: dict[str, Any] = {"task": "text", "config": {"max_steps": None, "max_epochs": 4, "lr": 0.001}}


def rows(steps: int, every: int = 10, seconds: float = 0.5, **more: Any) -> list[dict[str, Any]]:
    return [
        {"step": step, "epoch": 1, "train_bpc": 5 - step / steps, "seconds": seconds * step, **more}
        for step in range(every, steps + 1, every)
    ]


def write(directory: Path, lines: list[dict[str, Any]] | None, config: Any = CONFIG, result: Any = None) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    if lines is not None:
        (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, values in (("config.json", config), ("result.json", result)):
        if values is not None:
            (directory / name).write_text(json.dumps(values))
    return directory


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    lines = [*rows(100, lr=0.002), {"step": 100, "epoch": 1, "valid_bpc": 2.5, "lr": 0.002, "seconds": 60.0}]
    run = write(tmp_path / "run", lines, CONFIG | {"steps": 400})
    state = Watched(run).state(now=(run / "metrics.jsonl").stat().st_mtime + 5)
    assert (state.status, state.step, state.total, state.rate) == ("running", 100, 400, 0.002)
    assert state.validation == {"valid_bpc": 2.5}
    assert state.losses[-1] == (100, 4.0)
    assert state.seconds == 60.0
    assert state.pace == pytest.approx(55 / 90)  # from step 10, after 5 seconds, to step 100, after 60
    assert state.left == pytest.approx(300 * 55 / 90)


@pytest.mark.parametrize(
    ("config", "lines", "total"),
    [
        (CONFIG | {"steps": 70}, rows(20), 70),
        ({"config": {"max_steps": 50, "max_epochs": 4}}, rows(20), 50),
        (CONFIG, rows(20), None),  # within the first epoch
        (CONFIG, [*rows(20), {"step": 30, "epoch": 2}], 80),
        ({}, rows(20), None),
        ({"steps": "many", "config": []}, rows(20), None),
    ],
)
def test_the_steps_of_the_whole_run(config: dict[str, Any], lines: list[dict[str, Any]], total: int | None) -> None:
    assert State(lines, config).total == total


def test_the_pace_is_that_of_the_last_lines() -> None:
    slow, fast = rows(1000, seconds=2.0), rows(1000, seconds=1.0)
    later = [row | {"step": row["step"] + 1000, "seconds": row["seconds"] + 2000} for row in fast]
    assert State([*slow, *later]).pace == pytest.approx(1.0)
    assert State([*slow, *later[: RECENT // 2]]).pace == pytest.approx(1.5, abs=0.1)
    assert State(rows(10)).pace == pytest.approx(0.5)  # one line
    assert State([]).pace is None


def test_a_run_falls_silent_after_many_of_its_pauses() -> None:
    for seconds, silent in ((0.01, 60.0), (2.0, 10 * 20.0)):  # a line in 0.1 seconds, or in 20
        lines = rows(100, seconds=seconds)
        assert State(lines, age=silent - 1).status == "running"
        assert State(lines, age=silent + 1).status == "silent"
        assert State(lines, age=silent + 1).left is None


def test_runs_that_have_not_begun_and_that_have_ended(tmp_path: Path) -> None:
    assert Watched(write(tmp_path / "new", None)).state(0).status == "no steps yet"
    assert Watched(write(tmp_path / "new", None)).state(0).rate == 0.001  # as configured
    finished = write(tmp_path / "done", rows(20), result={"status": "finished"})
    assert Watched(finished).state(1e12).status == "finished"
    diverged = [*rows(20), {"step": 21, "epoch": 1, "train_bpc": "nan", "seconds": 11.0}]
    state = Watched(write(tmp_path / "lost", diverged, result={"status": "did not converge", "reason": "r"})).state(0)
    assert (state.status, state.ended, state.step, state.losses[-1][0]) == ("did not converge", True, 21, 20)


@given(cut=st.integers(0, 2000), garbage=st.sampled_from([b"", b"\x00\xff", b'{"step": "x"}\n', b"[1]\n", b"null\n"]))
def test_a_file_that_is_being_written(tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes) -> None:
    whole = "".join(json.dumps(row) + "\n" for row in rows(200)).encode()
    run = tmp_path_factory.mktemp("run")
    (run / "metrics.jsonl").write_bytes(whole[:cut] + garbage)
    state = Watched(run).state(0)
    lines = [line for line in (whole[:cut] + garbage).split(b"\n") if line and line in whole.split(b"\n")]
    if b"\xff" not in garbage:  # which no text has: then nothing of the file counts
        assert state.step == 10 * len(lines)
    assert (state.total, state.validation) == (None, {})
    _ = state.status, state.left, state.losses


@given(
    row=st.dictionaries(
        st.sampled_from(["step", "epoch", "seconds", "lr", "train_bpc", "valid_bpc"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
    ),
    config=st.recursive(
        st.none() | st.integers() | st.text(),
        lambda c: st.dictionaries(st.sampled_from(["config", "steps", "max_steps", "max_epochs", "lr"]), c),
    ),
)
def test_files_of_anyones_making(tmp_path_factory: pytest.TempPathFactory, row: Any, config: Any) -> None:
    run = write(tmp_path_factory.mktemp("run"), [row, {"step": 5} | row], config, config)
    state = Watched(run).state(0)
    _ = state.status, state.total, state.rate, state.left, state.losses, state.validation, state.seconds


def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    watched = Watched(write(tmp_path, rows(20)))
    first = watched.state(0).rows
    assert watched.state(0).rows is first
    write(tmp_path, rows(10))  # a run that goes on from a checkpoint cuts off what came after
    assert watched.state(0).step == 10
    (tmp_path / "metrics.jsonl").unlink()
    assert watched.state(0).status == "no steps yet"


def test_runs_below_a_directory(tmp_path: Path) -> None:
    write(tmp_path / "a", rows(10))
    write(tmp_path / "b/c", None)
    write(tmp_path / "search", None)  # stands for its attempts
    write(tmp_path / "search/lr-0.1", rows(10))
    write(tmp_path / "a/model", None, {"task": "text", "config": {}})
    write(tmp_path / "other", None, {"a": "config of something else"})
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.json").write_text("{")
    (tmp_path / "a/around").symlink_to(tmp_path)
    assert [run.relative_to(tmp_path).as_posix() for run in runs_in(tmp_path)] == ["a", "b/c", "search/lr-0.1"]
    assert runs_in(tmp_path / "a") == [tmp_path / "a"]
    assert runs_in(tmp_path / "other") == []
