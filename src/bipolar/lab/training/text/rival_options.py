"""The options of the rivals, as the command line takes them, in families of cells: known without torch."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeAlias

import tyro

from bipolar.lab.training.flags import FloatFlag, IntFlag


def _of_model(name: str) -> Any:
    """The flag of an option: ``--model.NAME``, whatever the family under which the help lists it."""
    return tyro.conf.arg(name=f"model.{name}", prefix_name=False, help_behavior_hint="")


@dataclass(frozen=True)
class OfHeldStates:
    """The cells whose state may stay as it was for a step, at random."""

    zoneout: Annotated[FloatFlag, _of_model("zoneout")] = None
    """The rate of zoneout of hidden units. Default: 0."""
    zoneout_cell: Annotated[FloatFlag, _of_model("zoneout_cell")] = None
    """The rate of zoneout of the cell, of lstm alone. Default: 0."""
    stochastic_depth: Annotated[FloatFlag, _of_model("stochastic_depth")] = None
    """The rate at which the whole state stays. Default: 0."""


@dataclass(frozen=True)
class OfLSTMs:
    """The LSTM and others; each option names the cells that have it."""

    candidate_dropout: Annotated[FloatFlag, _of_model("candidate_dropout")] = None
    """Recurrent dropout without memory loss, on the candidate alone: lstm, gru, hyper_lstm, delta_rnn. Default: 0."""
    layer_norm: Annotated[bool, _of_model("layer_norm")] = False
    """Layer norm: lstm, hyper_lstm, hm_lstm."""
    weight_norm: Annotated[bool, _of_model("weight_norm")] = False
    """Weight norm: lstm."""
    batch_norm: Annotated[bool, _of_model("batch_norm")] = False
    """Batch norm: lstm (recurrent, with statistics for each time step), indrnn."""


@dataclass(frozen=True)
class OfHyperLSTM:
    """The HyperLSTM."""

    embedding_size: Annotated[IntFlag, _of_model("embedding_size")] = None
    """The width of what the small network says to the large one. Default: 4."""


@dataclass(frozen=True)
class OfHMLSTM:
    """The HM-LSTM."""

    level_share: Annotated[FloatFlag, _of_model("level_share")] = None
    """The width of its levels, as a share of --model.hidden-size, the width of its output embedding. Default: 1."""
    constant_slope: Annotated[bool, _of_model("constant_slope")] = False
    """The detectors of boundaries keep their slope, which else becomes steeper from epoch to epoch."""


@dataclass(frozen=True)
class OfHighway:
    """The recurrent highway network."""

    depth: Annotated[IntFlag, _of_model("depth")] = None
    """Layers within a step. Default: 10."""
    input_dropout: Annotated[FloatFlag, _of_model("input_dropout")] = None
    """Dropout of characters, with one mask a sequence. Default: 0."""


@dataclass(frozen=True)
class OfSkipping:
    """The Skipping-RNN."""

    skip: Annotated[IntFlag, _of_model("skip")] = None
    """Steps that a connection skips. Default: 2."""


@dataclass(frozen=True)
class OfTransformer:
    """The transformer."""

    heads: Annotated[IntFlag, _of_model("heads")] = None
    """Heads of attention. Default: 4."""
    context: Annotated[IntFlag, _of_model("context")] = None
    """Positions that one attends to. Default: 128."""


@dataclass(frozen=True)
class OfAllRivals:
    """All cells but the stack and the transformer."""

    norm_stabiliser: Annotated[FloatFlag, _of_model("norm_stabiliser")] = None
    """The weight of the norm stabiliser, a term of the loss. Default: 0."""


@dataclass(frozen=True)
class RivalOptions(OfAllRivals, OfTransformer, OfSkipping, OfHighway, OfHMLSTM, OfHyperLSTM, OfLSTMs, OfHeldStates):
    """Options of the rivals, each of some cells alone; their defaults are the published values."""

    @property
    def given(self) -> dict[str, Any]:
        """The options that were given."""
        values = {option: getattr(self, option.name) for option in fields(self)}
        return {option.name: value for option, value in values.items() if value != option.default}


def _box(title: str) -> Any:
    """A family's box in the help."""
    return tyro.conf.arg(name=title, prefix_name=False)


def of_families(
    held: Annotated[OfHeldStates, _box("rnn, relu, irnn, gru and lstm")],
    lstms: Annotated[OfLSTMs, _box("lstm and its kin")],
    hyper: Annotated[OfHyperLSTM, _box("hyper_lstm")],
    hm_lstm: Annotated[OfHMLSTM, _box("hm_lstm")],
    highway: Annotated[OfHighway, _box("highway")],
    skipping: Annotated[OfSkipping, _box("skipping")],
    transformer: Annotated[OfTransformer, _box("transformer")],
    rivals: Annotated[OfAllRivals, _box("rival")],
) -> RivalOptions:
    """The options, from those of each family: the help lists them so."""
    families = (held, lstms, hyper, hm_lstm, highway, skipping, transformer, rivals)
    return RivalOptions(**{name: value for family in families for name, value in vars(family).items()})


#: The options as flags, without a prefix of their own.
RivalFlags: TypeAlias = Annotated[RivalOptions, tyro.conf.arg(name="", constructor=of_families)]
