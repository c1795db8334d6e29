"""The networks of Table 2, and three of today, trained by us: equal parameters, equal steps and equal time.

The paper sets its stack beside numbers copied from other papers. Here each row is a run of the same loop.
"""

from bipolar.lab.paper import table1, table2
from bipolar.lab.reproduce.contest import PARAMS, RATES, UPDATE, Contest, Network
from bipolar.lab.training.text import TextConfig, TextModel
from bipolar.lab.training.text.rival_options import RivalOptions

STACK = "BELU, 36 layers"
#: Networks that the paper does not have; its tables' budget of parameters. Layers: as published, or as common.
TODAY = {
    "IndRNN": Network(TextModel(6, cell="indrnn", params=4.75e6, rival=RivalOptions(batch_norm=True)), gates=False),
    "minGRU": Network(TextModel(3, cell="mingru", params=4.75e6)),
    "transformer": Network(TextModel(4, cell="transformer", params=4.75e6)),
}
NETWORKS = {
    "tanh + zoneout": Network(
        TextModel(1, 1000, cell="rnn", rival=RivalOptions(zoneout=0.05)),
        ("Tanh + Zoneout (Krueger et al., 2016)",),
        gates=False,
        noise=True,
    ),
    "ReLU": Network(TextModel(1, 2048, cell="relu"), ("ReLU 1x2048 (Neyshabur et al., 2016)",), gates=False),
    "GRU + zoneout": Network(
        TextModel(1, 1000, cell="gru", rival=RivalOptions(zoneout=0.05)),
        ("GRU + Zoneout (Krueger et al., 2016)",),
        noise=True,
    ),
    "MI-RNN": Network(TextModel(1, 2000, cell="mi_rnn"), ("MI-RNN 1x2000 (Wu et al., 2016)",), gates=False),
    "DOT(S)-RNN": Network(TextModel(1, 600, cell="dots"), ("DOT(S)-RNN (Pascanu et al., 2013)",), gates=False),
    "LSTM": Network(TextModel(1, 1000, cell="lstm"), ("LSTM 1x1000 (Krueger et al., 2016)",)),
    "LSTM + stochastic depth": Network(
        TextModel(1, 1000, cell="lstm", rival=RivalOptions(stochastic_depth=0.05)),
        ("LSTM 1x1000 + Stoch. depth (Krueger et al., 2016)",),
        noise=True,
    ),
    "LSTM + recurrent batch norm": Network(
        TextModel(1, 1000, cell="lstm", rival=RivalOptions(batch_norm=True)),
        ("LSTM 1x1000 + Recurrent BN (Cooijmans et al., 2016)",),
    ),
    "LSTM + dropout": Network(
        TextModel(1, 1000, cell="lstm", dropout=0.1), ("LSTM 1x1000 + Dropout (Ha et al., 2016)",), noise=True
    ),
    "LSTM + recurrent dropout": Network(
        TextModel(1, 1024, cell="lstm", rival=RivalOptions(candidate_dropout=0.1)),
        ("LSTM 1x1024 + Rec. dropout (Semeniuta et al., 2016)",),
        noise=True,
    ),
    "LSTM + layer norm": Network(
        TextModel(1, 1000, cell="lstm", rival=RivalOptions(layer_norm=True, candidate_dropout=0.1)),
        ("LSTM 1x1000 + Layer norm (Ha et al., 2016)",),
    ),
    "LSTM + zoneout": Network(
        TextModel(1, 1000, cell="lstm", rival=RivalOptions(zoneout=0.05, zoneout_cell=0.5)),
        ("LSTM 1x1000 + Zoneout (Krueger et al., 2016)",),
        noise=True,
    ),
    "Delta-RNN + dropout": Network(
        TextModel(1, 1000, cell="delta_rnn", rival=RivalOptions(candidate_dropout=0.1)),
        ("Delta-RNN + Dropout (Ororbia et al., 2017)",),
        noise=True,
    ),
    "HM-LSTM + layer norm": Network(
        TextModel(3, 512, cell="hm_lstm", rival=RivalOptions(layer_norm=True)),
        ("HM-LSTM 3x512 + Layer norm (Chung et al., 2016)",),
    ),
    "HyperLSTM + layer norm": Network(
        TextModel(
            1,
            1000,
            cell="hyper_lstm",
            rival=RivalOptions(layer_norm=True, candidate_dropout=0.15, embedding_size=16),
        ),
        ("HyperNetworks (Ha et al., 2016)",),
    ),
    STACK: Network(table1.base("paper", 36).model, ("BELU 36x256 (Eidnes & Nøkland, 2018)",), gates=False),
    **TODAY,
}
ABOUT = (
    f"Every network has about {PARAMS / 1e6:g} million parameters, the same batches and steps, and Adam at rates of "
    f"{', '.join(f'{rate:g}' for rate in RATES)}. The rate of lowest validation error with the first seed counts, and "
    "has the other seeds too; where it is the highest of the three, a higher one may be better still. A rate rises "
    "over the first tenth of a run and stays. So a run is at any moment what it "
    "would be if it ended there, and shows its network after any number of steps and at any time; of the weights and "
    f"their running average, over about {UPDATE.average:g} of the steps so far, the better counts. Equal time is that "
    "of the network that makes its steps first, on one machine, validation not counted; errors at that time are read "
    "from the line between two looks at the validation error. A network with noise in its name (zoneout, dropout, "
    "stochastic depth) has that of the paper's row, though in so short a run noise can only cost; no other has any. At "
    "the paper's scale networks have their published sizes and noise, at the quick one hardly any parameters."
)
CONTEST = Contest(
    name="rivals2",
    place="Table 2",
    networks=NETWORKS,
    ours=STACK,
    published=table2.NETWORKS,
    small="ptb",
    paper=TextConfig("ptb", max_epochs=20),
)
ITEM = CONTEST.item(title="The networks of Table 2, trained by us: error (BPC) on Penn Treebank", about=ABOUT)
