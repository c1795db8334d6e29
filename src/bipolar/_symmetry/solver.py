"""Signs as unknowns: which of them have to be equal, which have to be +1, and what that leaves.

Every channel of every tensor in a network has a sign, an unknown s: in the network with flipped weights it holds s x
where the original holds x. A layer's weight takes up the signs on its two sides, so it asks for nothing. An addition
asks for the signs of its two inputs to be equal; a max pooling, or the network's output, for +1; and an activation that
is to change between bipolar and plain for those of its pattern. What is solved here are these equations.
"""

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

#: The unknown that is known: +1.
PLUS = 0


@dataclass(frozen=True)
class Wish:
    """That a unit, by its key, would have these unknowns be these signs."""

    unit: Hashable
    node: int
    signs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, unit: Hashable, node: int, unknowns: Tensor, signs: Tensor) -> "Wish":
        pairs = torch.stack(torch.broadcast_tensors(unknowns, signs.long())).view(2, -1).unique(dim=1)
        return cls(unit, node, tuple((unknown, sign) for unknown, sign in pairs.t().tolist()))


@dataclass(frozen=True)
class Conflict:
    """Why a unit cannot have its wish: the node that has another, and where the two meet.

    ``unit`` is the other's unit, if it is one, and ``reason`` its reason if not.
    """

    node: int
    reason: str
    unit: Hashable | None = None
    meeting: int | None = None


@dataclass
class Constraints:
    """The equations; unknowns are numbers, in tensors of any shape that broadcast."""

    unknowns: int = 1
    _equal: list[tuple[int, Tensor]] = field(default_factory=list)
    _plus: list[tuple[int, str, Tensor]] = field(default_factory=list)
    _known: set[int] = field(default_factory=lambda: {PLUS})

    def fresh(self, *shape: int) -> Tensor:
        """New unknowns."""
        count = 1
        for size in shape:
            count *= size
        start, self.unknowns = self.unknowns, self.unknowns + count
        return torch.arange(start, start + count).view(shape)

    def equate(self, a: Tensor, b: Tensor, node: int) -> None:
        pairs = torch.stack(torch.broadcast_tensors(a, b)).view(2, -1)
        pairs = pairs[:, pairs[0] != pairs[1]].unique(dim=1)
        fixed = (pairs == PLUS).any(0)
        self.plus(pairs[:, fixed], node, "it meets what comes from outside the model and stays as it is")
        if not fixed.all():
            self._equal.append((node, pairs[:, ~fixed]))

    def uniform(self, unknowns: Tensor, dims: Iterable[int], node: int) -> Tensor:
        """Makes them equal along some dimensions, which are 1 in what is returned."""
        first = unknowns
        for dim in dims:
            first = first.narrow(dim, 0, 1)
        self.equate(unknowns, first, node)
        return first

    def plus(self, unknowns: Tensor, node: int, reason: str) -> None:
        """Asks for +1."""
        unknowns = unknowns.unique()
        unknowns = unknowns[unknowns != PLUS]
        if unknowns.numel():
            self._plus.append((node, reason, unknowns))
            self._known.update(unknowns.tolist())

    def is_plus(self, unknowns: Tensor) -> bool:
        """Whether all of them have been asked to be +1."""
        return self._known.issuperset(unknowns.unique().tolist())

    def solve(self, wishes: list[Wish]) -> "Solution":
        """Fulfils the wishes of as many units as go together with everything else, and with each other.

        A unit with a wish that meets another of its kind, or a +1, gets none of its wishes: its unknowns are +1.
        """
        classes = _Classes(self.unknowns, [pairs for _, pairs in self._equal])
        refused: dict[Hashable, Conflict] = {}
        while True:
            wanted: dict[int, dict[int, set[Hashable | None]]] = defaultdict(lambda: defaultdict(set))
            wanted[classes.of(PLUS)][1].add(None)
            for _, _, unknowns in self._plus:
                for unknown in unknowns.tolist():
                    wanted[classes.of(unknown)][1].add(None)
            for wish in wishes:
                for unknown, sign in wish.signs:
                    if wish.unit in refused:
                        wanted[classes.of(unknown)][1].add(None)
                    else:
                        wanted[classes.of(unknown)][sign].add(wish.unit)
            torn = {root for root, signs in wanted.items() if len(signs) == 2}
            if not torn:
                return Solution(classes, {root: next(iter(signs)) for root, signs in wanted.items()}, refused)
            losers: dict[Hashable, int] = {}
            for root in torn:
                fixed = None in wanted[root][1]  # then those who wish the same as what has to be may stay
                for sign, units in wanted[root].items():
                    losers |= {unit: root for unit in units if unit is not None and not (fixed and sign == 1)}
            refused |= {unit: self._why(unit, wishes, classes, root, refused) for unit, root in losers.items()}

    def _why(
        self,
        unit: Hashable,
        wishes: list[Wish],
        classes: "_Classes",
        torn: int,
        refused: Mapping[Hashable, Conflict],
    ) -> Conflict:
        """The nearest of those who ask for the opposite, by the number of equations between."""
        mine = [
            (sign, unknown, wish.node)
            for wish in wishes
            if wish.unit == unit
            for unknown, sign in wish.signs
            if classes.of(unknown) == torn
        ]
        sign, start, own = min(mine)  # of its flipped channels, if there are any
        against: dict[int, Conflict] = {}
        for wish in wishes:
            reason = refused[wish.unit].reason if wish.unit in refused else ""
            opposite = Conflict(wish.node, reason, wish.unit)
            against |= {u: opposite for u, other in wish.signs if (1 if wish.unit in refused else other) != sign}
        if sign == -1:
            against[PLUS] = Conflict(own, "what it is given comes from outside the model, as it is")
            for node, reason, unknowns in reversed(self._plus):  # the first to ask is the last to be put down
                against |= {u: Conflict(node, reason) for u in unknowns.tolist()}
        neighbours: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for node, pairs in self._equal:
            for a, b in pairs.t().tolist():
                neighbours[a].append((b, node))
                neighbours[b].append((a, node))
        seen, queue = {start}, deque([(start, own)])
        while queue:
            unknown, meeting = queue.popleft()
            if unknown in against:
                return replace(against[unknown], meeting=meeting)
            for other, node in neighbours[unknown]:
                if other not in seen:
                    seen.add(other)
                    queue.append((other, node))
        raise AssertionError(f"{unit}: nothing contradicts its signs")


@dataclass(frozen=True)
class Solution:
    """A sign for every unknown; and the units whose wishes were refused, with the reason."""

    _classes: "_Classes"
    _signs: dict[int, int]
    refused: dict[Hashable, Conflict]

    def of(self, unknowns: Tensor) -> Tensor:
        """Their signs, in a tensor of the same shape; +1 where nothing asks for either."""
        different, places = unknowns.unique(return_inverse=True)
        signs = [self._signs.get(self._classes.of(unknown), 1) for unknown in different.tolist()]
        return torch.tensor(signs, dtype=torch.float64)[places].view(unknowns.shape)


class _Classes:
    """Union-find: which unknowns are equal."""

    def __init__(self, count: int, pairs: Iterable[Tensor]) -> None:
        self._parent = list(range(count))
        for some in pairs:
            for a, b in some.t().tolist():
                a, b = self.of(a), self.of(b)
                self._parent[max(a, b)] = min(a, b)

    def of(self, unknown: int) -> int:
        parent = self._parent
        while parent[unknown] != unknown:
            parent[unknown] = parent[parent[unknown]]
            unknown = parent[unknown]
        return unknown
