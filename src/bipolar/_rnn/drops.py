"""Values that fall to dropout: drawn by the gaps between them where they are few, else one by one."""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from bipolar._rnn.handwritten import is_eager

#: Probabilities are rounded to this many levels, so that one random word decides about four values of a mask.
LEVELS = 2**16
#: Up to this probability the gaps between dropped values are drawn. Above, a number for every value costs less. From
#: 1/8 on a mask takes less memory than the places, but time decides: at 0.15 and 36 x 64 masks take a third more.
RARE = 0.2


class Drops(NamedTuple):
    """The dropped values of a tensor, row by row along its first dimension."""

    #: the number of values in a row
    size: int
    #: the places of the dropped values in the flattened tensor, ascending; or a mask, true where one is dropped
    fallen: Tensor
    #: the number of places before each row, and all, counted from any number on; None for a mask
    bounds: Sequence[int] | None

    def rows(self, low: int, high: int) -> "Drops":
        """Those of the rows from ``low`` up to ``high``."""
        if self.bounds is None:
            return self._replace(fallen=self.fallen[low:high])
        if low == 0 and high == len(self.bounds) - 1:
            return self
        bounds, first = self.bounds[low : high + 1], self.bounds[0]
        places = self.fallen[bounds[0] - first : bounds[-1] - first]
        return Drops(self.size, places - low * self.size if low else places, bounds)

    def picked(self, kept: Tensor, size: int) -> "Drops":
        """Those of the rows ``kept``, ascending, where a row has so many values."""
        if self.bounds is None:
            return Drops(size, self.fallen.view(-1, size)[kept], None)
        rows = self.fallen // size
        at = torch.searchsorted(kept, rows).clamp_(max=len(kept) - 1)
        here = kept[at] == rows
        fallen = (self.fallen + (at - rows) * size)[here]
        edges = torch.arange(len(kept) + 1, device=fallen.device) * size
        return Drops(size, fallen, torch.searchsorted(fallen, edges).tolist())

    def zero_(self, tensor: Tensor) -> Tensor:
        """Zeros where a value is dropped, in place; the tensor is contiguous."""
        if self.bounds is None:
            return tensor.masked_fill_(self.fallen.view_as(tensor), 0)
        tensor.view(-1).index_fill_(0, self.fallen, 0)
        return tensor

    def held(self, tensor: Tensor) -> "Held":
        """Gives dropped values back at the end, whatever happens to them until then; the tensor is contiguous."""
        return Held(self, tensor, absent=False)

    def absent(self, tensor: Tensor) -> "Held":
        """Zeros where a value is dropped, in place, and the values again at the end; the tensor is contiguous."""
        return Held(self, tensor, absent=True)

    def zeroed(self, tensor: Tensor) -> Tensor:
        """A copy with zeros where a value is dropped."""
        if self.bounds is None:
            return tensor.masked_fill(self.fallen.view_as(tensor), 0)
        return tensor.reshape(-1).index_fill(0, self.fallen, 0).view_as(tensor)


class Held:
    """Sets dropped values aside, and puts them back: for few, a fraction of the time that a pass over all values takes.

    A class, because a context of this kind is entered for every front, and a generator's takes three times as long.
    """

    def __init__(self, drops: Drops, tensor: Tensor, absent: bool) -> None:
        self.drops, self.absent = drops, absent
        self.values = tensor.data.view(-1)  # not seen by autograd: the tensor ends as it was

    def __enter__(self) -> None:
        values, drops = self.values, self.drops
        self.before = values.clone() if drops.bounds is None else values.index_select(0, drops.fallen)
        if self.absent:
            drops.zero_(values)

    def __exit__(self, *error: object) -> None:
        values, drops = self.values, self.drops
        if drops.bounds is None:
            torch.where(drops.fallen.view(-1), self.before, values, out=values)
        else:
            values.index_copy_(0, drops.fallen, self.before)


def joined(parts: Sequence[Drops]) -> Drops:
    """Those of several tensors with rows of one size, one after the other."""
    if parts[0].bounds is None:
        return parts[0]._replace(fallen=torch.cat([part.fallen for part in parts]))
    rows = accumulate((len(part.bounds or ()) - 1 for part in parts), initial=0)
    places = [part.fallen + row * part.size for row, part in zip(rows, parts, strict=False)]
    counts = [after - before for part in parts for before, after in pairwise(part.bounds or ())]
    return Drops(parts[0].size, torch.cat(places), list(accumulate(counts, initial=0)))


class Dice:
    """Draws noise on the device of the generator and moves it to the device of the stack's input."""

    def __init__(self, generator: torch.Generator | None, device: torch.device) -> None:
        self.generator = generator
        self.source = device if generator is None else generator.device
        self.device = device

    def drops(self, p: float, rows: Sequence[int], *shape: int) -> Iterator[Drops]:
        """For tensors of so many rows each, of this shape: every value falls with probability p."""
        # The number of places varies, for which a graph, a transform or another device would have to wait.
        waiting = torch.compiler.is_compiling() or not is_eager()
        if p <= RARE and self.source.type == self.device.type == "cpu" and not waiting:
            return self._by_gaps(p, rows, math.prod(shape))
        return (Drops(math.prod(shape), self.mask(p, count, *shape), None) for count in rows)

    def mask(self, p: float, *shape: int) -> Tensor:
        """True with probability p, for every value of a tensor."""
        if torch.compiler.is_compiling() or not is_eager():  # a graph or a transform takes no draw in place
            numbers = torch.rand(shape, generator=self.generator, device=self.source)
            return (numbers < _levels(p) / LEVELS).to(self.device)
        count = math.prod(shape)
        words = torch.empty(-(-count // 4), dtype=torch.int64, device=self.source)
        words.random_(-(2**63), None, generator=self.generator)
        lanes = words.view(torch.int16)[:count].view(shape)
        return (lanes < _levels(p) - LEVELS // 2).to(self.device)

    def _by_gaps(self, p: float, rows: Sequence[int], size: int) -> Iterator[Drops]:
        places = self.places(p, sum(rows) * size)
        edges = torch.arange(sum(rows) + 1) * size
        bounds = torch.searchsorted(places, edges).tolist()
        for first, last in pairwise(accumulate(rows, initial=0)):
            start, stop = bounds[first], bounds[last]
            yield Drops(size, places[start:stop].sub_(first * size), bounds[first : last + 1])

    def places(self, p: float, count: int) -> Tensor:
        r"""The places, ascending, of the values among ``count`` that fall with probability p.

        The gap from one to the next is geometric, :math:`P(g > k) = (1 - p)^k`: with u uniform in [0, 1),
        :math:`g = 1 + \lfloor \log(1 - u) / \log(1 - p) \rfloor`. So a few random numbers for a hundred values do.
        """
        p = _levels(p) / LEVELS
        parts, last = [torch.empty(0, dtype=torch.int64)], -1
        while p and last < count:
            left = (count - last) * p
            gaps = torch.rand(math.ceil(left + 4 * math.sqrt(left)) + 1, dtype=torch.float32, generator=self.generator)
            gaps = gaps.neg_().log1p_().mul_(1 / math.log1p(-p)).to(torch.int64).add_(1)
            parts.append(gaps.cumsum_(0).add_(last))
            last = int(parts[-1][-1])
        places = parts[-1] if len(parts) == 2 else torch.cat(parts)  # one draw mostly suffices
        return places[: int(torch.searchsorted(places, count))]


def scale_of(p: float) -> float:
    """1 / (1 - p), for p as it is drawn."""
    return LEVELS / (LEVELS - _levels(p))


def _levels(p: float) -> int:
    return min(round(p * LEVELS), LEVELS - 1)
