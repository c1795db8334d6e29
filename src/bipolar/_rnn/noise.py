"""The three kinds of dropout of a stack, drawn before the pass.

All random numbers of a training pass are drawn here, in one order: every backend sees the same noise, and a given
generator repeats a pass exactly. Dropped outputs are stored front by front: a front is a diagonal of the stack over
time, all cells with i + t = d for layer i and time t.
"""

from typing import NamedTuple

from torch import Tensor

from bipolar._rnn.drops import Dice, Drops, joined, scale_of


def layers_at(d: int, layers: int, steps: int) -> range:
    """The layers of the front d, which holds layer i at time d - i."""
    return range(max(0, d - steps + 1), min(layers, d + 1))


class Outputs(NamedTuple):
    """The dropped outputs of all layers at all time steps."""

    layers: int
    steps: int
    #: for each front those of its cells, (cells, batch, hidden_size)
    fronts: list[Drops]

    def at(self, layer: int, t: int) -> Drops:
        """Those of one cell, (batch, hidden_size)."""
        place = layer - layers_at(layer + t, self.layers, self.steps).start
        return self.fronts[layer + t].rows(place, place + 1)

    def layer(self, layer: int) -> Drops:
        """Those of one layer, (time, batch, hidden_size)."""
        return joined([self.at(layer, t) for t in range(self.steps)])

    def within(self, low: int, high: int) -> "Outputs":
        """Those of the layers from ``low`` up to ``high``."""
        fronts = []
        for d in range(high - low + self.steps - 1):
            here, whole = layers_at(d, high - low, self.steps), layers_at(d + low, self.layers, self.steps)
            fronts.append(self.fronts[d + low].rows(here.start + low - whole.start, here.stop + low - whole.start))
        return Outputs(high - low, self.steps, fronts)


class Noise(NamedTuple):
    """The noise of a pass; None where nothing is dropped."""

    output: Outputs | None
    #: the factor 1 / (1 - p) that belongs to ``output``
    scale: float
    #: rnnDrop: the dropped values of h(t-1), for the whole sequence, (num_layers, batch, hidden_size)
    recurrent: Drops | None
    #: the factor 1 / (1 - p) that belongs to ``recurrent``
    recurrent_scale: float
    #: whether a block is dropped at a time step, for the whole batch, (time, blocks)
    dropped: Tensor | None

    def recurrent_mask(self, layer: int, state: Tensor) -> Tensor | None:
        """The factors of h(t-1) in a layer, 0 or the scale, for states like this, (batch, hidden_size)."""
        if self.recurrent is None:
            return None
        factors = state.new_full(state.shape, self.recurrent_scale)  # contiguous, whatever the strides of the state
        return self.recurrent.rows(layer, layer + 1).zero_(factors)

    def within(self, low: int, high: int, every: int) -> "Noise":
        """The noise of the layers from ``low`` up to ``high``, whole blocks of ``every`` layers."""
        return Noise(
            None if self.output is None else self.output.within(low, high),
            self.scale,
            None if self.recurrent is None else self.recurrent.rows(low, high),
            self.recurrent_scale,
            None if self.dropped is None else self.dropped[:, low // every : -(-high // every)],
        )


SILENCE = Noise(None, 1.0, None, 1.0, None)


def dropped_out(input: Tensor, p: float, dice: Dice) -> Tensor:
    """The stack's input after dropout."""
    if not p:
        return input
    (drops,) = dice.drops(p, input.shape[:1], *input.shape[1:])
    return drops.zeroed(input).mul_(scale_of(p))


def draw_noise(
    input: Tensor,
    num_layers: int,
    hidden_size: int,
    blocks: int,
    dice: Dice,
    *,
    dropout: float,
    recurrent_dropout: float,
    block_dropout: float,
) -> Noise:
    """Noise for the layers of a stack, for an input of shape (time, batch, input_size)."""
    time, batch, _ = input.shape
    output = recurrent = dropped = None
    if dropout:
        cells = [len(layers_at(d, num_layers, time)) for d in range(num_layers + time - 1)]
        output = Outputs(num_layers, time, list(dice.drops(dropout, cells, batch, hidden_size)))
    if recurrent_dropout:
        (recurrent,) = dice.drops(recurrent_dropout, [num_layers], batch, hidden_size)
    if block_dropout and blocks:
        dropped = dice.mask(block_dropout, time, blocks)
    return Noise(output, scale_of(dropout), recurrent, scale_of(recurrent_dropout), dropped)
