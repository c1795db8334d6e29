from bipolar.lab.reproduce.outcomes import DNC
from bipolar.lab.reproduce.tables import Entry
from bipolar.lab.reproduce.verdicts import Margin, compare


def test_a_comparison_needs_a_margin_and_with_seeds_two_standard_errors() -> None:
    margin = Margin(0.02, 0.05, "BPC")
    for a, b, order in (
        ([1.0], [1.1], "below"),
        ([1.1], [1.0], "above"),
        ([1.0], [1.04], "unclear"),  # one seed
        ([1.0], [1.01], "equal"),
        ([1.0, 1.001], [1.03, 1.031], "below"),
        ([1.0, 2.0], [2.0, 3.0], "unclear"),  # 1 apart, by a standard error of 0.7
        ([1.0, 1.001], [1.0, 1.002], "equal"),
        ([1.0, 1.05], [1.0, 1.05], "unclear"),  # too noisy to be called equal
        ([1.0], [DNC], "below"),
        ([DNC], [1.0], "above"),
        ([DNC], [DNC], "unclear"),
        ([1.0, DNC], [2.0, 2.0], "unclear"),
    ):
        assert compare(Entry(a), Entry(b), margin) == order, (a, b)
