"""Solver for signs: unknowns of +1 or -1, equations between them, and wishes that may be refused.

Every channel of every tensor in a network has a sign, an unknown s: in the network with flipped weights it holds s x
where the original holds x. The weight of a layer takes up the signs on its two sides, so it asks for nothing. An
addition requires its two inputs to have equal signs; a max pooling, or the network's output, requires +1; an activation
that is to change between bipolar and plain wishes for the signs of its pattern.
"""

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import Tensor

#: The unknown whose sign is fixed to +1.
PLUS = 0


@dataclass(frozen=True)
class Wish:
    """The signs that a unit, by its key, asks for; they may be refused."""

    unit: Hashable
    node: int
    signs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, unit: Hashable, node: int, unknowns: Tensor, signs: Tensor) -> "Wish":
        pairs = torch.stack(torch.broadcast_tensors(unknowns, signs.long())).view(2, -1).unique(dim=1)
        return cls(unit, node, tuple((unknown, sign) for unknown, sign in pairs.t().tolist()))


@dataclass(frozen=True)
class Conflict:
    """The node that asks for another sign than a unit wishes for, and the node at which the two meet.

    ``unit`` is the other unit if the node belongs to one; ``reason`` is the node's reason if not.
    """

    node: int
    reason: str
    unit: Hashable | None = None
    meeting: int | None = None


@dataclass
class Constraints:
    """The equations. An unknown is a number; tensors of unknowns broadcast."""

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
        self.plus(pairs[:, fixed], node, "it meets a value that comes from outside the model, with a fixed sign")
        if not fixed.all():
            self._equal.append((node, pairs[:, ~fixed]))

    def uniform(self, unknowns: Tensor, dims: Iterable[int], node: int) -> Tensor:
        """Equates unknowns along some dimensions, and returns those that remain, with size 1 there."""
        first = unknowns
        for dim in dims:
            first = first.narrow(dim, 0, 1)
        self.equate(unknowns, first, node)
        return first

    def plus(self, unknowns: Tensor, node: int, reason: str) -> None:
        """Requires +1."""
        unknowns = unknowns.unique()
        unknowns = unknowns[unknowns != PLUS]
        if unknowns.numel():
            self._plus.append((node, reason, unknowns))
            self._known.update(unknowns.tolist())

    def is_plus(self, unknowns: Tensor) -> bool:
        """Whether +1 is required of all of them."""
        return self._known.issuperset(unknowns.unique().tolist())

    def solve(self, wishes: list[Wish]) -> "SolvedSigns":
        """Grants the wishes of as many units as agree with the constraints and with each other.

        A unit with a wish against another unit's, or against a +1, is refused all its wishes: its unknowns are +1.
        """
        classes = _Classes(self.unknowns, [pairs for _, pairs in self._equal])
        refused: dict[Hashable, Conflict] = {}
        while True:
            askers = self._askers(wishes, classes, refused)
            torn = {root for root, signs in askers.items() if len(signs) == 2}
            if not torn:
                return SolvedSigns(classes, {root: next(iter(signs)) for root, signs in askers.items()}, refused)
            losers: dict[Hashable, int] = {}
            for root in torn:
                losers |= dict.fromkeys(_losers(askers[root]), root)
            refused |= {unit: self._conflict(unit, wishes, classes, root, refused) for unit, root in losers.items()}

    def _askers(
        self, wishes: list[Wish], classes: "_Classes", refused: Mapping[Hashable, Conflict]
    ) -> dict[int, "_Askers"]:
        """The units that ask for either sign of each class of equal unknowns; None stands for a constraint."""
        found: dict[int, _Askers] = defaultdict(lambda: defaultdict(set))
        found[classes.of(PLUS)][1].add(None)
        for _, _, unknowns in self._plus:
            for unknown in unknowns.tolist():
                found[classes.of(unknown)][1].add(None)
        for wish in wishes:
            for unknown, sign in wish.signs:
                if wish.unit in refused:
                    found[classes.of(unknown)][1].add(None)
                else:
                    found[classes.of(unknown)][sign].add(wish.unit)
        return found

    # Why a wish is refused

    def _conflict(
        self,
        unit: Hashable,
        wishes: list[Wish],
        classes: "_Classes",
        torn: int,
        refused: Mapping[Hashable, Conflict],
    ) -> Conflict:
        """The conflict of a unit with the nearest node that asks for the opposite, by the equations between."""
        mine = [
            (sign, unknown, wish.node)
            for wish in wishes
            if wish.unit == unit
            for unknown, sign in wish.signs
            if classes.of(unknown) == torn
        ]
        sign, start, own = min(mine)  # of its flipped channels, if there are any
        opponents = self._opponents(sign, own, wishes, refused)
        for unknown, meeting in self._from_near_to_far(start, own):
            if unknown in opponents:
                return replace(opponents[unknown], meeting=meeting)
        raise AssertionError(f"{unit}: nothing contradicts its signs")

    def _opponents(
        self, sign: int, own: int, wishes: list[Wish], refused: Mapping[Hashable, Conflict]
    ) -> dict[int, Conflict]:
        """The unknowns for which something asks for the opposite of a sign, each with the conflict."""
        found: dict[int, Conflict] = {}
        for wish in wishes:
            reason = refused[wish.unit].reason if wish.unit in refused else ""
            opposite = Conflict(wish.node, reason, wish.unit)
            found |= {u: opposite for u, other in wish.signs if (1 if wish.unit in refused else other) != sign}
        if sign == -1:
            found[PLUS] = Conflict(own, "its input comes from outside the model, with fixed signs")
            for node, reason, unknowns in reversed(self._plus):  # the first constraint is written last, and stays
                found |= {u: Conflict(node, reason) for u in unknowns.tolist()}
        return found

    def _from_near_to_far(self, start: int, node: int) -> Iterator[tuple[int, int]]:
        """The unknowns that equal the first, in the order of their distance, each with the node that ties it on."""
        neighbours: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for tie, pairs in self._equal:
            for a, b in pairs.t().tolist():
                neighbours[a].append((b, tie))
                neighbours[b].append((a, tie))
        seen, queue = {start}, deque([(start, node)])
        while queue:
            unknown, tie = queue.popleft()
            yield unknown, tie
            for other, next_tie in neighbours[unknown]:
                if other not in seen:
                    seen.add(other)
                    queue.append((other, next_tie))


#: The units that ask for each sign.
_Askers: TypeAlias = dict[int, set[Hashable | None]]


def _losers(askers: _Askers) -> set[Hashable]:
    """The units that cannot have their sign; where a constraint asks for +1, those that wish the same may stay."""
    fixed = None in askers[1]
    return {unit for sign, units in askers.items() for unit in units if unit is not None and not (fixed and sign == 1)}


@dataclass(frozen=True)
class SolvedSigns:
    """A sign for every unknown, and the units whose wishes were refused, each with its conflict."""

    _classes: "_Classes"
    _signs: dict[int, int]
    refused: dict[Hashable, Conflict]

    def of(self, unknowns: Tensor) -> Tensor:
        """The signs of unknowns, in a tensor of the same shape; +1 where nothing asks for either."""
        different, places = unknowns.unique(return_inverse=True)
        signs = [self._signs.get(self._classes.of(unknown), 1) for unknown in different.tolist()]
        return torch.tensor(signs, dtype=torch.float64)[places].view(unknowns.shape)


class _Classes:
    """Classes of equal unknowns, by union-find."""

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
