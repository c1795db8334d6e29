"""``bipolar watch`` as a person meets it."""

import io
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bipolar.lab.cli import main
from bipolar.lab.watch.state import State
from bipolar.lab.watch.view import HEIGHTS, PLAIN, sparkline, table
from tests.helpers.paths import ROOT
from tests.lab.watch.test_state import CONFIG, rows, write


@pytest.fixture
def several(tmp_path: Path) -> Path:
    validated = [*rows(100, lr=0.002), {"step": 100, "epoch": 1, "valid_bpc": 2.5, "seconds": 50.0}]
    write(tmp_path / "going", validated, CONFIG | {"steps": 400})
    write(tmp_path / "new", None)
    write(tmp_path / "done", rows(20), CONFIG | {"steps": 20}, {"status": "finished"})
    write(tmp_path / "lost", rows(20), result={"status": "did not converge", "reason": "the loss is not finite"})
    write(tmp_path / "quiet", rows(20))
    os.utime(tmp_path / "quiet/metrics.jsonl", (0, time.time() - 3600))
    return tmp_path


def test_once_it_prints_the_state_of_each_run(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["watch", str(several), "--once"])
    heading, *lines, summary = (line.rstrip() for line in capsys.readouterr().out.splitlines())
    found = {line.split()[0]: re.split(r" {2,}", line) for line in lines}
    assert heading.split() == ["run", "step", "state", "training", "loss", "rate", "last", "validation"]
    assert list(found) == ["going", "new", "quiet", "done", "lost"]  # those that have ended come last
    assert found["going"][1:3] == ["100", "25 %, 2 min left"]
    assert found["going"][4:] == ["0.002", "2.500 valid bpc"]
    assert re.fullmatch(rf"[{HEIGHTS}]{{20}} 4\.000", found["going"][3])
    assert found["new"][1:] == ["0", "no steps yet", "0.001"]
    assert found["quiet"][2] == "silent for 60 min"
    assert found["done"][2] == "finished, 10 s"
    assert found["lost"][2] == "did not converge"
    assert found["lost"][-1] == "the loss is not finite"
    assert summary == "5 runs: 1 running, 2 ended"


def test_a_run_itself(capsys: pytest.CaptureFixture[str]) -> None:
    main(["watch", str(ROOT / "results/hour")])  # without a terminal, as with --once
    out = capsys.readouterr().out
    assert "hour" in out
    assert "finished, 62 min" in out
    assert "1.812 test bpc" in out
    assert out.rstrip().endswith("1 run: 0 running, 1 ended")


@pytest.mark.parametrize("width", [72, 80, 100, 200])
def test_lines_fit_the_terminal(several: Path, width: int) -> None:
    write(several / ("a long name " * 10), rows(100, valid_bpc=2.0, averaged_valid_bpc=1.9, test_bpc=3.0))
    console = Console(width=width, record=True, file=io.StringIO())
    states = {run: State(rows(100, valid_bpc=2.0, average=1.9), CONFIG | {"steps": 400}) for run in several.iterdir()}
    console.print(table(several, states, width, most=3))
    lines = console.export_text().splitlines()
    assert len(lines) == 1 + 3 + 1
    assert all(len(line.rstrip()) <= width for line in lines)
    assert all("25 %, 2 min left" in line and "4.000" in line for line in lines[1:4])  # never cut
    assert lines[-1].rstrip() == "6 runs: 6 running, 0 ended; 3 not shown"


def test_words_from_files_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = {"status": "did not converge", "reason": "\x1b]0;title\x07[red]x[/red]\n\x1b[2J"}
    write(tmp_path / "run", [*rows(10), {"step": 10, "\x1b[2Jevil": "\x1b[2J"}], result=evil)
    main(["watch", str(tmp_path)])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[red]x[/red]" in out  # nor is it markup


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{}/nothing", "nothing: no such directory"),
        ("{}/file", "expected a directory, this is a file"),
        ("{}", "there is no run of bipolar train here"),
        ("{} --every 0", "--every 0.0: expected seconds, above 0"),
        ("{} --every nan", "--every nan: expected seconds, above 0"),
    ],
)
def test_errors_are_sentences(tmp_path: Path, arguments: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match=message):
        main(["watch", *arguments.format(tmp_path).split()])


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal")
def test_on_a_terminal_it_goes_on_until_control_c(several: Path) -> None:
    import pty

    mine, its = pty.openpty()
    command = [sys.executable, "-m", "bipolar.lab", "watch", str(several), "--every", "0.05"]
    shape = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=shape)
    os.close(its)

    def read_until(words: str) -> str:
        seen, end = "", time.monotonic() + 60
        while words not in seen and time.monotonic() < end:
            if select.select([mine], [], [], 0.1)[0]:
                seen += os.read(mine, 65536).decode(errors="replace")
        return seen

    try:
        assert "1 running, 2 ended" in read_until("1 running, 2 ended")
        write(several / "new", rows(10), CONFIG | {"steps": 400})
        assert "2 running, 2 ended" in read_until("2 running, 2 ended")  # it looks again
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert "Traceback" not in read_until("\x1b[?25h")  # the cursor is back
    finally:
        process.kill()
        process.wait()
        os.close(mine)


CURVES = st.lists(st.tuples(st.integers(0, 1000), st.floats(-1e6, 1e6)), max_size=50).map(sorted)


@given(losses=CURVES, heights=st.sampled_from([HEIGHTS, PLAIN]), width=st.integers(1, 40))
def test_a_sparkline_has_the_means_of_equal_parts(losses: list[tuple[int, float]], heights: str, width: int) -> None:
    drawn = sparkline(losses, heights, width)
    if not losses:
        assert drawn == ""
        return
    assert len(drawn) == width
    assert set(drawn) <= set(heights)
    first, span = losses[0][0], losses[-1][0] - losses[0][0]
    parts = [
        [loss for step, loss in losses if min((step - first) * width // max(span, 1), width - 1) == part]
        for part in range(width)
    ]
    means = {part: sum(values) / len(values) for part, values in enumerate(parts) if values}
    for (part, mean), (other, another) in zip(means.items(), list(means.items())[1:], strict=False):
        if abs(mean - another) > 1e-6:
            up = heights.index(drawn[part]) <= heights.index(drawn[other])
            down = heights.index(drawn[part]) >= heights.index(drawn[other])
            assert up if mean < another else down
        assert set(drawn[part:other]) == {drawn[part]}  # parts without a loss repeat the one before


def test_a_falling_curve() -> None:
    assert sparkline([(step, 100.0 - step) for step in range(100)], width=8) == HEIGHTS[::-1]
