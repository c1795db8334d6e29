"""Training with LSUV and without."""

from bipolar.lab.paper import figure5, lsuv
from bipolar.lab.reproduce.scales import SCALES


def test_the_runs_with_lsuv_are_those_of_figure_5() -> None:
    for scale in SCALES:
        runs, shared = lsuv.runs(scale), list(figure5.runs(scale).values())
        assert len(runs) == 8
        for name, config in runs.items():
            assert config.model.lsuv == ("none" if "no LSUV" in name else "variance")
            assert (config in shared) == ("no LSUV" not in name)
