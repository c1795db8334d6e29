import pytest

from bipolar.lab.reproduce.outcomes import DNC
from bipolar.lab.reproduce.tables import Entry


def test_the_texts_of_entries() -> None:
    entry = Entry([1.0, 2.0, DNC], 1.25)
    assert entry.text(2) == "1.50 ± 0.71 (1 of 3 did not converge)"
    assert entry.difference == pytest.approx(0.25)
    assert entry.rendered(2).difference == "+0.25"
    assert Entry([-1e-9]).text(3) == "0.000"
    assert Entry(["did not converge"]).text(3) == "did not converge"
    assert Entry((), "did not converge").rendered(3).published == "did not converge"
    assert Entry().text(3) == ""
    assert Entry([38085823823872.0]).text(3) == "3.81e+13"
