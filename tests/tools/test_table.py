"""Tables as text: columns as wide as they need to be, folded to the terminal."""

import io

import pytest

from bipolar._tools.table import text_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


HEADER = ["module", "note", "mean"]
ROWS = [("layers.0", "a note that is longer than the others", 0.123456), ("layers.1", "", None)]


def test_without_a_terminal_nothing_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")  # of the terminal that started it
    assert text_table(HEADER, [("m", "x" * 500, 1.0)]).count("\n") == 2
    assert text_table(HEADER, ROWS).splitlines() == [
        "module    note                                     mean",
        "--------  -------------------------------------  ------",
        "layers.0  a note that is longer than the others  0.1235",
        "layers.1                                              -",
    ]


@pytest.mark.parametrize("width", [20, 30, 40, 50])
def test_texts_are_folded_to_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout", Terminal())
    table = text_table(HEADER, ROWS)
    assert max(map(len, table.splitlines())) <= max(width, 30)  # numbers and narrow columns stay
    words = " ".join(table.splitlines()[2:]).split()
    assert [word for word in words if word.isalpha()] == str(ROWS[0][1]).split()
    assert "0.1235" in words
