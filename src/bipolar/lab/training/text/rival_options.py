"""The options of the rivals, as the command line takes them: known without torch."""

from dataclasses import dataclass, fields
from typing import Any

from bipolar.lab.training.flags import FloatFlag, IntFlag


@dataclass(frozen=True)
class RivalOptions:
    """Options of the rivals, each of some cells alone; their defaults are the published values."""

    zoneout: FloatFlag = None
    """Zoneout of hidden units: rnn, relu, irnn, gru, lstm. Default: 0."""
    zoneout_cell: FloatFlag = None
    """Zoneout of the cell: lstm. Default: 0."""
    stochastic_depth: FloatFlag = None
    """The rate at which the whole state stays for a step: rnn, relu, irnn, gru, lstm. Default: 0."""
    candidate_dropout: FloatFlag = None
    """Recurrent dropout without memory loss, on the candidate alone: lstm, hyper_lstm. Default: 0."""
    layer_norm: bool = False
    """Layer norm: lstm, hyper_lstm, hm_lstm."""
    weight_norm: bool = False
    """Weight norm: lstm."""
    batch_norm: bool = False
    """Batch norm: lstm (recurrent, with statistics for each time step), indrnn."""
    depth: IntFlag = None
    """Layers within a step: highway. Default: 10."""
    skip: IntFlag = None
    """Steps that a connection skips: skipping. Default: 2."""
    heads: IntFlag = None
    """Heads of attention: transformer. Default: 4."""
    context: IntFlag = None
    """Positions that one attends to: transformer. Default: 128."""
    norm_stabiliser: FloatFlag = None
    """The weight of the norm stabiliser, a term of the loss: all rivals. Default: 0."""

    @property
    def given(self) -> dict[str, Any]:
        """The options that were given."""
        values = {option: getattr(self, option.name) for option in fields(self)}
        return {option.name: value for option, value in values.items() if value != option.default}
