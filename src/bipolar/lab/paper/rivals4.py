"""The networks of Table 4, and three of today, trained by us: equal parameters, equal steps and equal time."""

from dataclasses import replace

from bipolar.lab.paper import rivals2, table3, table4
from bipolar.lab.reproduce.contest import Contest, Network
from bipolar.lab.training.text import TextConfig, TextModel
from bipolar.lab.training.text.rival_options import RivalOptions

NETWORKS = {
    "MI-tanh": Network(TextModel(1, 2048, cell="mi_rnn"), ("MI-Tanh 1x2048 (Wu et al., 2016)",), gates=False),
    "LSTM": Network(
        TextModel(1, 2000, cell="lstm"),
        (
            "LSTM 1x2048 (Wu et al., 2016)",
            "LSTM 1x2000 (Cooijmans et al., 2016)",
            "LSTM 1x2000 (Krueger et al., 2016)",
        ),
    ),
    "Skipping-RNN": Network(
        TextModel(1, params=16.2e6, cell="skipping"), ("Skipping-RNN (Pachitariu & Sahani, 2013)",), gates=False
    ),
    "MI-LSTM": Network(TextModel(1, 2048, cell="mi_lstm"), ("MI-LSTM 1x2048 (Wu et al., 2016)",)),
    "mLSTM": Network(TextModel(1, 1900, cell="mlstm"), ("mLSTM 1x1900 (Krause et al., 2016)",)),
    "LSTM + recurrent batch norm": Network(
        TextModel(1, 2000, cell="lstm", rival=RivalOptions(batch_norm=True)),
        ("LSTM 1x2000 + Recurrent BN (Cooijmans et al., 2016)",),
    ),
    "LSTM + stochastic depth": Network(
        TextModel(1, 2000, cell="lstm", rival=RivalOptions(stochastic_depth=0.05)),
        ("LSTM 1x2000 + Stochastic depth (Krueger et al., 2016)",),
        noise=True,
    ),
    "LSTM + zoneout": Network(
        TextModel(1, 2000, cell="lstm", rival=RivalOptions(zoneout=0.2, zoneout_cell=0.2)),
        ("LSTM 1x2000 + Zoneout (Krueger et al., 2016)",),
        noise=True,
    ),
    "Recurrent Highway Network": Network(
        TextModel(1, 1500, cell="highway", recurrent_dropout=0.1, rival=RivalOptions(depth=10, input_dropout=0.1)),
        ("Recurrent Highway Network (Zilly et al., 2016)",),
    ),
    "HM-LSTM + layer norm": Network(
        TextModel(3, 2048, cell="hm_lstm", rival=RivalOptions(layer_norm=True, level_share=0.5, constant_slope=True)),
        ("HM-LSTM 3x1024 + Layer norm (Chung et al., 2016)",),
    ),
    rivals2.STACK: Network(table3.runs("paper")["belu"].model, ("BELU 36x474 (Eidnes & Nøkland, 2018)",), gates=False),
    **{name: replace(network, model=replace(network.model, params=16.2e6)) for name, network in rivals2.TODAY.items()},
}
CONTEST = Contest(
    name="rivals4",
    place="Table 4",
    networks=NETWORKS,
    ours=rivals2.STACK,
    published=table4.NETWORKS,
    small="text8-74M",
    paper=TextConfig("text8", max_epochs=2),
)
ITEM = CONTEST.item(title="The networks of Table 4, trained by us: error (BPC) on Text8", about=rivals2.ABOUT)
