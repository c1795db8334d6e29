"""The protocol of recurrent layers: a step from input and state to output and state, and noise drawn beforehand."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from bipolar.lab.cells.norm_stabiliser import norm_stabiliser

#: The parts of a state, each of shape (batch, width).
State: TypeAlias = tuple[Tensor, ...]


@dataclass(frozen=True)
class Dice:
    """The random numbers of a pass: drawn on the device of the generator, used on that of the input."""

    generator: torch.Generator | None
    like: Tensor

    def kept(self, rate: float, *shape: int) -> Tensor:
        """A mask: 1 with probability ``1 - rate``, else 0."""
        source = self.like.device if self.generator is None else self.generator.device
        uniform = torch.rand(shape, generator=self.generator, device=source)
        return (uniform >= rate).to(self.like)

    def dropped_out(self, rate: float, *shape: int) -> Tensor:
        """A mask of dropout: 0 with probability ``rate``, else ``1 / (1 - rate)``."""
        return self.kept(rate, *shape) / (1 - rate)


class Drawn(NamedTuple):
    """The noise of a pass: tensors that hold for a whole sequence, and tensors with one row for each step."""

    once: tuple[Tensor, ...] = ()
    each: tuple[Tensor, ...] = ()


class Cell(nn.Module, ABC):
    r"""A recurrent layer.

    .. math:: r_t, s_t = \text{step}(\text{prepare}(x)_t, s_{t-1}), \qquad y = \text{finish}(r)

    A subclass gives :attr:`sizes` and :meth:`step`, and as much of the rest as it needs. In evaluation :meth:`draw`
    returns what stands for the noise, such as its mean, or nothing.

    Args:
        input_size: the width of the input
        hidden_size: the width of the output

    Shape:
        - input: (time, batch, input_size)
        - state: (1, batch, sum of ``sizes``), as from the call before; None for the beginning
        - output: (time, batch, hidden_size)
    """

    #: the widths of the parts of the state
    sizes: tuple[int, ...]
    #: the weight of the norm stabiliser on the hidden units, and the term of the loss from the last pass in training
    stabiliser = 0.0
    penalty: Tensor | None = None

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size

    def begin(self, batch: int, like: Tensor) -> State:
        """The state before the first step: zeros."""
        return tuple(like.new_zeros(batch, size) for size in self.sizes)

    def prepare(self, x: Tensor) -> Tensor:
        """What can be computed for all time steps at once, such as the products of the input: (time, batch, ...)."""
        return x

    def draw(self, steps: int, batch: int, dice: Dice) -> Drawn:
        """The noise of a pass of so many steps; ``self.training`` says whether there is any."""
        return Drawn()

    def dropped(self, dice: Dice, rate: float, *shape: int) -> tuple[Tensor, ...]:
        """A mask of dropout; none in evaluation, or at a rate of 0."""
        return (dice.dropped_out(rate, *shape),) if self.training and rate else ()

    @abstractmethod
    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        """The output and the next state, from a row of :meth:`prepare`, and the noise of :meth:`draw` for it."""

    def finish(self, outputs: Tensor) -> Tensor:
        """What is left to compute for all time steps at once, such as an output layer outside of the recurrence."""
        return outputs

    def forward(
        self, x: Tensor, state: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        steps, batch = x.shape[:2]
        parts = self.begin(batch, x) if state is None else tuple(state[0].split(self.sizes, dim=-1))
        once, each = self.draw(steps, batch, Dice(generator, x))
        rows = zip(*(tensor.unbind(0) for tensor in each), strict=True) if each else (() for _ in range(steps))
        outputs = []
        for row, noise in zip(self.prepare(x).unbind(0), rows, strict=True):
            output, parts = self.step(row, parts, once, noise)
            outputs.append(output)
        raw = self.stabilised(torch.stack(outputs))
        return self.finish(raw), torch.cat(parts, dim=-1).unsqueeze(0)

    def stabilised(self, hidden: Tensor) -> Tensor:
        """The hidden units of all time steps as they are, with their penalty noted."""
        self.penalty = norm_stabiliser(hidden, self.stabiliser) if self.training and self.stabiliser else None
        return hidden


def between(start: Tensor, end: Tensor, share: Tensor) -> Tensor:
    """``start + share * (end - start)``; :func:`torch.lerp` takes no tensors of several precisions, as autocast has."""
    return torch.addcmul(start, share, end - start)


def uniform_(parameters: Sequence[Tensor], width: int) -> None:
    """The start of torch's own cells: uniform within one over the square root of the width."""
    bound = width**-0.5
    for parameter in parameters:
        nn.init.uniform_(parameter, -bound, bound)
