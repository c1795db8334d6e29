"""Table 4: Text8 test error beside other networks; the run is one of Table 3."""

from collections.abc import Sequence

from bipolar.lab.paper import table3
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.rules import beats
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Table, over, ranking
from bipolar.lab.reproduce.verdicts import Claim
from bipolar.lab.training.text import TextConfig

#: test BPC, as the paper lists it, with its references
NETWORKS = {
    "MI-Tanh 1x2048 (Wu et al., 2016)": 1.52,
    "LSTM 1x2048 (Wu et al., 2016)": 1.51,
    "Skipping-RNN (Pachitariu & Sahani, 2013)": 1.48,
    "MI-LSTM 1x2048 (Wu et al., 2016)": 1.44,
    "LSTM 1x2000 (Cooijmans et al., 2016)": 1.43,
    "LSTM 1x2000 (Krueger et al., 2016)": 1.408,
    "mLSTM 1x1900 (Krause et al., 2016)": 1.40,
    "LSTM 1x2000 + Recurrent BN (Cooijmans et al., 2016)": 1.36,
    "LSTM 1x2000 + Stochastic depth (Krueger et al., 2016)": 1.343,
    "LSTM 1x2000 + Zoneout (Krueger et al., 2016)": 1.336,
    "Recurrent Highway Network (Zilly et al., 2016)": 1.29,
    "HM-LSTM 3x1024 + Layer norm (Chung et al., 2016)": 1.29,
    "BELU 36x474 (Eidnes & Nøkland, 2018)": 1.423,
}


def runs(scale: Scale) -> dict[str, TextConfig]:
    return {"belu": table3.runs(scale)["belu"]}


def tables(seeds: Sequence[Results]) -> list[Table]:
    title = f"Test error (BPC); the text here is {table3.text_of(seeds)}"
    ours, theirs = over(seeds, "belu", "test_bpc"), NETWORKS["BELU 36x474 (Eidnes & Nøkland, 2018)"]
    return [ranking(title, NETWORKS, "BELU, 36 layers, here", ours, theirs)]


CLAIMS = [
    Claim(
        "best text8",
        "On Text8 the network is better than the best published one without gates.",
        where="Table 4",
        items=("table4",),
        rule="its test error is below 1.48 BPC, of Skipping-RNN, by 0.005",
        decide=beats("table4", 1.48, "Skipping-RNN"),
        least="paper",
    ),
]

ITEM = Training(
    name="table4",
    title="Table 4: Text8 test error (BPC)",
    about=(
        "Errors of the other networks are those of their papers; the item rivals4, which comes with this one, trains "
        "all of them here, and has our errors beside the published ones."
    ),
    beside="rivals4",
    claims=CLAIMS,
    published=NETWORKS,
    runs=runs,
    collect=table3.collect,
    tables=tables,
)
