"""Figure 6: training loss by activation, in RNNs of 36 layers on Penn Treebank; the runs are those of Table 1."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from bipolar._tools.figures import ACTIVATION_COLORS
from bipolar.lab.paper import table1
from bipolar.lab.reproduce.item import DNC, Results, Scale, Training, draw_losses, table_of_curves, train_curves
from bipolar.lab.training.text import TextConfig


def runs(scale: Scale) -> dict[str, TextConfig]:
    return {name.removeprefix("36: "): c for name, c in table1.runs(scale).items() if name.startswith("36: ")}


def draw(seeds: Sequence[Results]) -> Figure:
    def look(name: str) -> tuple[str, str, str]:
        plain = name.partition(",")[0]
        bipolar = plain.startswith("b")
        style = "--" if bipolar else ":" if "second moment" in name else "-"
        return ACTIVATION_COLORS[plain.removeprefix("b") if bipolar else plain], style, name

    return draw_losses(seeds[0], "36 layers, by activation", look, top=8.0)


ITEM = Training(
    name="figure6",
    title="Figure 6: training loss by activation, 36 layers",
    about=table1.SECOND_MOMENT,
    published={"elu": DNC},
    runs=runs,
    collect=train_curves,
    draw=draw,
    tables=table_of_curves,
)
