import os
from pathlib import Path

from matplotlib.figure import Figure

from bipolar.lab.report import write_report
from bipolar.lab.reproduce.item import Computation
from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.reproduction import Reproduction, record_again


def test_a_picture_is_drawn_once_for_file_and_page(tmp_path: Path) -> None:
    drawn: list[Results] = []

    def draw(seeds: list[Results]) -> Figure:
        drawn.extend(seeds)
        return Figure()

    item = Computation(name="sum", title="A sum", compute=lambda scale, data_dir: {"a": 1.0}, draw=draw)
    Reproduction([item], "quick", tmp_path).run()
    write_report(tmp_path, [item])
    assert len(drawn) == 1
    record_again([item], tmp_path)
    write_report(tmp_path, [item])
    assert len(drawn) == 2
    later = (tmp_path / "sum.svg").stat().st_mtime_ns + 1_000_000_000
    os.utime(tmp_path / "sum.json", ns=(later, later))  # a run was recorded since
    write_report(tmp_path, [item])
    assert len(drawn) == 3
