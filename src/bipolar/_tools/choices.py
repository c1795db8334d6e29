"""The words that arguments take, known without torch: to the models, and to the command line."""

from typing import Literal, TypeAlias

#: which units are flipped
Pattern: TypeAlias = Literal["alternate", "halves"]
#: the statistic that an initialisation sets to 1
Statistic: TypeAlias = Literal["variance", "second_moment"]
#: the quantity that the weights of a recurrent layer share
Balance: TypeAlias = Literal["magnitude", "variance"]
#: the recurrent layers of a character model
CellName: TypeAlias = Literal["stack", "lstm", "gru", "rnn"]
#: the networks that the laboratory sets beside them
RivalName: TypeAlias = Literal[
    "relu",
    "irnn",
    "mi_rnn",
    "mi_lstm",
    "mlstm",
    "delta_rnn",
    "dots",
    "skipping",
    "highway",
    "hyper_lstm",
    "hm_lstm",
    "indrnn",
    "mingru",
    "transformer",
]
#: the norm of a residual network
Norm: TypeAlias = Literal["batch"]
#: what the shortcut of a residual network carries
Shortcut: TypeAlias = Literal["clean", "rectified"]
#: the encoding of orientations before the last layer
Encoding: TypeAlias = Literal["align", "pool"]
