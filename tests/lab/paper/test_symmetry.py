import pytest

from bipolar.lab.paper import symmetry
from bipolar.lab.reproduce.verdicts import Evidence
from tests.helpers.records import record


def test_a_network_and_its_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(symmetry.STEPS, "quick", 4)
    results = symmetry.compute("quick", None)
    assert [pair["largest_difference"] == 0 for pair in results.values()] == [True, True, False, False]
    assert all(len(set(pair["plain"])) > 1 for pair in results.values())
    evidence = Evidence({"symmetry": record("symmetry", results, scale="quick")})
    assert symmetry.ITEM.claims[0].verdict(evidence).status == "reproduced"
    titles = [axes.get_title() for axes in symmetry.draw([results]).axes]
    assert sum("equal to the last bit" in title for title in titles) == 2
