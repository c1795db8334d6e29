"""Solver for signs: unknowns of +1 or -1, equations between them, and wishes that may be refused.

Every channel of every tensor in a network has a sign, an unknown s: in the network with flipped weights it holds s x
where the original holds x. The weight of a layer takes up the signs on its two sides, so it asks for nothing. An
addition requires its two inputs to have equal signs; the sign of a product is the product of its factors' signs; a max
pooling, or the network's output, requires +1; an activation that is to change between bipolar and plain wishes for the
signs of its pattern.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from bipolar._symmetry.classes import PLUS, Classes, Edges, Products, merged, nearest
from bipolar._symmetry.products import Unsolvable, signs_with_products

__all__ = ["PLUS", "Conflict", "Constraints", "SolvedSigns", "Wish"]

OUTSIDE = "its input comes from outside the model, with fixed signs"


@dataclass(frozen=True, eq=False)
class Wish:
    """The signs that a unit, by its key, asks for; they may be refused."""

    unit: Hashable
    node: int
    unknowns: Tensor
    signs: Tensor

    def refused(self) -> "Wish":
        """The signs of a unit that stays as it is: +1."""
        return replace(self, signs=torch.ones_like(self.signs))

    @classmethod
    def of(cls, unit: Hashable, node: int, unknowns: Tensor, signs: Tensor) -> "Wish":
        unknowns, signs = torch.broadcast_tensors(unknowns, signs.long())
        pairs = (2 * unknowns.flatten() + (signs.flatten() > 0)).unique()
        return cls(unit, node, pairs // 2, pairs % 2 * 2 - 1)


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
    _equal: list[Edges] = field(default_factory=list)
    _products: list[Products] = field(default_factory=list)
    _plus: list[tuple[int, str, Tensor]] = field(default_factory=list)
    _known: Tensor = field(default_factory=lambda: torch.ones(1, dtype=torch.bool))

    def fresh(self, *shape: int) -> Tensor:
        """New unknowns."""
        count = 1
        for size in shape:
            count *= size
        start, self.unknowns = self.unknowns, self.unknowns + count
        if len(self._known) < self.unknowns:
            self._known = torch.cat([self._known, torch.zeros(self.unknowns, dtype=torch.bool)])
        return torch.arange(start, start + count).view(shape)

    def equate(self, a: Tensor, b: Tensor, node: int) -> None:
        a, b = (side.flatten() for side in torch.broadcast_tensors(a, b))
        pairs = torch.stack([a, b])[:, a != b]
        fixed = (pairs == PLUS).any(0)
        self.plus(pairs[:, fixed], node, "it meets a value that comes from outside the model, with a fixed sign")
        pairs = pairs[:, ~fixed]
        if pairs.numel():
            self._equal.append(Edges(pairs, torch.tensor([node])))

    def multiply(self, a: Tensor, b: Tensor, product: Tensor, node: int) -> None:
        """Requires the signs of a product to be the products of its factors' signs."""
        triples = torch.stack([side.flatten() for side in torch.broadcast_tensors(a, b, product)])
        self._products.append(Products(triples, torch.full((triples.size(1),), node)))

    def uniform(self, unknowns: Tensor, dims: Iterable[int], node: int) -> Tensor:
        """Equates unknowns along some dimensions, and returns those that remain, with size 1 there."""
        first = unknowns
        for dim in dims:
            first = first.narrow(dim, 0, 1)
        self.equate(unknowns, first, node)
        return first

    def plus(self, unknowns: Tensor, node: int, reason: str) -> None:
        """Requires +1."""
        unknowns = unknowns.flatten()
        unknowns = unknowns[unknowns != PLUS]
        if unknowns.numel():
            self._plus.append((node, reason, unknowns))
            self._known[unknowns] = True

    def is_plus(self, unknowns: Tensor) -> bool:
        """Whether +1 is required of all of them."""
        return bool(self._known[unknowns].all())

    def forced(self, wishes: list[Wish], left_out: set[int]) -> "ForcedSigns | None":
        """The signs that wishes force upon other unknowns by the equations of all nodes but some.

        Where these equations contradict the wishes, too, upon no others; None where the wishes contradict each other.
        """
        label = torch.arange(self.unknowns)
        edges = [some.pairs for some in self._equal if int(some.nodes[0]) not in left_out]
        plus = [unknowns for node, _, unknowns in self._plus if node not in left_out]
        tied = ForcedSigns.by(wishes, merged(label, torch.cat(edges, 1)) if edges else label, plus)
        return tied or ForcedSigns.by(wishes, label, [])

    def solve(self, wishes: list[Wish]) -> "SolvedSigns":
        """Grants the wishes of as many units as agree with the constraints and with each other.

        A unit with a wish against another unit's, or against a +1, is refused all its wishes: its unknowns are +1.
        """
        classes = Classes.of(self.unknowns, self._equal, Products.joined(self._products))
        classes.fix(self._known[: self.unknowns].nonzero()[:, 0])
        search = _Search(self._plus, wishes, classes)
        while True:
            losers = search.losers()
            if losers:
                search.refuse({unit: search.conflict(unit, torn) for unit, torn in losers.items()})
                continue
            signs, known = search.wished()
            try:
                signs = signs_with_products(classes.products, classes.label, signs, known)
            except Unsolvable as error:
                conflict = Conflict(error.node, "the signs of its factors do not go together")
                search.refuse(dict.fromkeys(search.units_that_flip(error.labels), conflict))
                continue
            return SolvedSigns(classes.label, signs, search.refused)


@dataclass
class _Search:
    """Wishes that are granted or refused, round by round."""

    plus: list[tuple[int, str, Tensor]]
    wishes: list[Wish]
    classes: Classes
    refused: dict[Hashable, Conflict] = field(default_factory=dict)

    def granted(self) -> list[Wish]:
        return [wish for wish in self.wishes if wish.unit not in self.refused]

    def refuse(self, conflicts: dict[Hashable, Conflict]) -> None:
        self.refused |= conflicts
        lost = [wish.unknowns for wish in self.wishes if wish.unit in conflicts]
        self.classes.fix(torch.cat(lost))

    def wished(self) -> tuple[Tensor, Tensor]:
        """The signs of classes, +1 where nothing asks for another; and whether something asks at all."""
        signs = torch.ones(len(self.classes.label), dtype=torch.int8)
        known = self.classes.fixed.clone()
        for wish in self.granted():
            labels = self.classes.label[wish.unknowns]
            signs[labels] = wish.signs.to(torch.int8)
            known[labels] = True
        return signs, known

    def losers(self) -> dict[Hashable, int]:
        """The units that cannot have their signs, each with a class that something else wants to have another sign.

        Where a constraint asks for +1, units that wish the same may stay.
        """
        asked = {sign: torch.zeros(len(self.classes.label), dtype=torch.bool) for sign in (1, -1)}
        asked[1] |= self.classes.fixed
        for wish in self.granted():
            labels = self.classes.label[wish.unknowns]
            for sign, mask in asked.items():
                mask[labels[wish.signs == sign]] = True
        torn = asked[1] & asked[-1]
        found: dict[Hashable, int] = {}
        for wish in self.granted():
            labels = self.classes.label[wish.unknowns]
            lost = torn[labels] & ~(self.classes.fixed[labels] & (wish.signs == 1))
            if bool(lost.any()):
                found.setdefault(wish.unit, int(labels[lost].min()))
        return found

    def units_that_flip(self, labels: Tensor) -> list[Hashable]:
        """The units that wish for -1 in one of some classes."""
        return list(
            dict.fromkeys(
                wish.unit
                for wish in self.granted()
                if bool(torch.isin(self.classes.label[wish.unknowns[wish.signs == -1]], labels).any())
            )
        )

    def conflict(self, unit: Hashable, torn: int) -> Conflict:
        """The conflict of a unit with the nearest node that asks for the opposite, by the equations between."""
        mine = [
            (int(sign), int(unknown), wish.node)
            for wish in self.wishes
            if wish.unit == unit
            for where in (self.classes.label[wish.unknowns] == torn,)
            for sign, unknown in zip(wish.signs[where], wish.unknowns[where], strict=True)
        ]
        sign, start, own = min(mine)  # of its flipped channels, if there are any
        by_unknown: dict[int, Conflict] = {}

        def against(unknowns: Tensor) -> Tensor:
            """Whether something asks for the opposite of the sign, for each of some unknowns."""
            by_unknown.update(self._opponents(unknowns, sign, own))
            return torch.tensor([unknown in by_unknown for unknown in unknowns.tolist()])

        found = nearest(self.classes.edges_in(torn), start, against)
        if found is None:
            raise AssertionError(f"{unit}: nothing contradicts its signs")
        unknown, meeting = found
        return replace(by_unknown[unknown], meeting=own if meeting is None else meeting)

    def _opponents(self, unknowns: Tensor, sign: int, own: int) -> dict[int, Conflict]:
        """For some unknowns, in ascending order, the conflict with what asks for the opposite of a sign."""
        found: dict[int, Conflict] = {}
        for wish in self.wishes:
            refused = self.refused.get(wish.unit)
            signs = wish.signs if refused is None else torch.ones_like(wish.signs)
            conflict = Conflict(wish.node, "" if refused is None else refused.reason, wish.unit)
            found |= dict.fromkeys(_shared(unknowns, wish.unknowns[signs != sign]), conflict)
        if sign == -1:
            for implied, nodes in self.classes.implied:
                for node in nodes.unique().tolist():
                    conflict = Conflict(node, "it multiplies two signals with the same signs")
                    found |= dict.fromkeys(_shared(unknowns, implied[nodes == node]), conflict)
            first = self._first_plus[unknowns]
            for place in first[first >= 0].unique().tolist():
                node, reason, _ = self.plus[place]
                found |= dict.fromkeys(unknowns[first == place].tolist(), Conflict(node, reason))
            found[PLUS] = Conflict(own, OUTSIDE)
        return found

    @cached_property
    def _first_plus(self) -> Tensor:
        """For each unknown the place of the first constraint that requires +1; -1 without any."""
        first = torch.full((len(self.classes.label),), -1)
        for place in reversed(range(len(self.plus))):
            first[self.plus[place][2]] = place
        return first


def _shared(unknowns: Tensor, others: Tensor) -> list[int]:
    shared: list[int] = unknowns[torch.isin(unknowns, others)].tolist()
    return shared


@dataclass(frozen=True)
class ForcedSigns:
    """The signs that wishes force upon unknowns, by class: 0 where both are possible."""

    label: Tensor
    signs: Tensor

    @classmethod
    def by(cls, wishes: list[Wish], label: Tensor, plus: list[Tensor]) -> "ForcedSigns | None":
        """The signs of classes, by wishes first, then by constraints; None where wishes contradict each other."""
        signs = torch.zeros(len(label), dtype=torch.int8)
        for unknowns in plus:
            signs[label[unknowns]] = 1
        for wish in wishes:
            signs[label[wish.unknowns]] = wish.signs.to(torch.int8)
        signs[label[PLUS]] = 1
        granted = all(bool((signs[label[wish.unknowns]] == wish.signs).all()) for wish in wishes)
        return cls(label, signs) if granted else None

    def of(self, unknowns: Tensor, chosen: dict[int, int]) -> Tensor:
        """The signs of unknowns, with those that are open chosen by class."""
        signs = self.signs.clone()
        for label, sign in chosen.items():
            signs[label] = sign
        return signs[self.label[unknowns]]

    def open(self, unknowns: Tensor) -> set[int]:
        """The classes of some unknowns whose signs are open."""
        labels = self.label[unknowns].unique()
        return set(labels[self.signs[labels] == 0].tolist())


@dataclass(frozen=True)
class SolvedSigns:
    """A sign for every unknown, and the units whose wishes were refused, each with its conflict."""

    _label: Tensor
    _signs: Tensor
    refused: dict[Hashable, Conflict]

    def of(self, unknowns: Tensor) -> Tensor:
        """The signs of unknowns, in a tensor of the same shape; +1 where nothing asks for either."""
        return self._signs[self._label[unknowns]].to(torch.float64)
