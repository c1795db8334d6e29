import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from bipolar._tools import figures
from bipolar.lab.paper import figure1


def test_the_curves_are_the_two_kinds_of_unit() -> None:
    expected: dict[str, Callable[[float], float]] = {
        "Bipolar ELU": lambda x: x if x > 0 else math.expm1(x),
        "Bipolar Leaky ReLU": lambda x: x if x > 0 else 0.2 * x,
        "Bipolar ReLU": lambda x: max(x, 0.0),
    }
    axes = figure1.draw([]).axes
    assert [panel.get_title() for panel in axes] == list(expected)  # from left, as in the caption
    for panel, f in zip(axes, expected.values(), strict=True):
        curves = {line.get_label(): line for line in panel.get_lines()}
        for label, sign in (("ordinary unit, $f(x)$", 1), ("flipped unit, $-f(-x)$", -1)):
            x, y = (torch.tensor(data) for data in curves[label].get_data())
            unit = torch.tensor([sign * f(sign * value) for value in x.tolist()], dtype=y.dtype)
            torch.testing.assert_close(y, unit, rtol=1e-5, atol=1e-6)


def test_the_mean_of_a_bipolar_activation_is_none() -> None:
    found = figure1.compute("quick", None)
    assert found["Bipolar ReLU"]["mean of the plain one"] == pytest.approx((2 * math.pi) ** -0.5, rel=1e-4)
    assert all(values["mean"] == pytest.approx(0, abs=1e-6) for values in found.values())


def test_the_same_figure_gives_the_same_files(tmp_path: Path) -> None:
    first, second = (figures.save_all(figure1.draw([]), tmp_path / name / "figure1") for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_failed_drawing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "figure.svg").write_text("old")

    def disk_full(self: Figure, path: Path, **_: object) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", disk_full)
    with pytest.raises(OSError, match="No space left"):
        figures.save_all(Figure(), tmp_path / "figure")
    assert [path.name for path in tmp_path.iterdir()] == ["figure.svg"]
    assert (tmp_path / "figure.svg").read_text() == "old"
