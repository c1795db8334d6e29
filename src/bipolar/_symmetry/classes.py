"""Classes of unknown signs that have to be equal, closed under products of three.

All work is on whole tensors of unknowns, in time that grows with their number: a model may have one for each weight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

#: The unknown whose sign is fixed to +1.
PLUS = 0


@dataclass(frozen=True, eq=False)
class Edges:
    """Pairs of equal unknowns, of shape (2, n), and the node that equates each, or all of them."""

    pairs: Tensor
    nodes: Tensor

    def inside(self, label: Tensor, chosen: int) -> "Edges":
        """The pairs within a class."""
        inside = label[self.pairs[0]] == chosen
        return Edges(self.pairs[:, inside], self.nodes.expand(len(inside))[inside])


@dataclass(frozen=True, eq=False)
class Products:
    """Triples of unknowns whose product is +1, of shape (3, n), and the node of each."""

    triples: Tensor
    nodes: Tensor

    @classmethod
    def joined(cls, parts: "Sequence[Products]") -> "Products":
        none = cls(torch.empty(3, 0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
        return cls(torch.cat([p.triples for p in (none, *parts)], 1), torch.cat([p.nodes for p in (none, *parts)]))

    def chosen(self, mask: Tensor) -> "Products":
        return Products(self.triples[:, mask], self.nodes[mask])


@dataclass
class Classes:
    """The classes of equal unknowns, each named by its smallest, and the classes that have to be +1.

    ``label`` and ``fixed`` go by unknowns. ``edges`` grow by the equalities that products bring about; ``implied`` are
    the unknowns that products fix, with the node of each. ``products`` are those that still say something, each of
    three different classes.
    """

    label: Tensor
    fixed: Tensor
    edges: list[Edges]
    products: Products
    implied: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @classmethod
    def of(cls, count: int, edges: Sequence[Edges], products: Products) -> "Classes":
        label = torch.arange(count)
        if edges:
            label = merged(label, torch.cat([some.pairs for some in edges], 1))
        fixed = torch.zeros(count, dtype=torch.bool)
        fixed[PLUS] = True
        return cls(label, fixed, list(edges), products)

    def fix(self, unknowns: Tensor) -> None:
        """Requires +1, and follows what this means for products."""
        self.fixed[self.label[unknowns]] = True
        self._close()

    def edges_in(self, label: int) -> Edges:
        """The equalities within a class."""
        parts = [some.inside(self.label, label) for some in self.edges]
        none = torch.empty(0, dtype=torch.int64)
        return Edges(
            torch.cat([none.expand(2, 0), *(part.pairs for part in parts)], 1),
            torch.cat([none, *(part.nodes for part in parts)]),
        )

    def _close(self) -> None:
        """Draws conclusions from products until there is none left to draw.

        A factor of +1 makes the other two equal; two equal factors make the third +1; and products that share two
        factors share the third.
        """
        while self.products.nodes.numel():
            labels = self.label[self.products.triples]
            labels, order = labels.masked_fill(self.fixed[labels], PLUS).sort(0)
            unknowns, nodes = self.products.triples.gather(0, order), self.products.nodes
            small, middle, large = labels
            alone = (middle == PLUS) & (large != PLUS) | (small == middle) & (small != PLUS)
            first = (middle == large) & (small != PLUS) & (small != middle)
            implied = torch.cat([unknowns[2, alone], unknowns[0, first]])
            two = (small == PLUS) & (middle != PLUS) & (middle != large)
            three = (small != PLUS) & (small != middle) & (middle != large)
            found = [Edges(unknowns[1:, two], nodes[two])]
            self.products = Products(unknowns[:, three], nodes[three])
            found += [_same_third(labels[:, three], self.products, third) for third in range(3)]
            new = Edges(torch.cat([e.pairs for e in found], 1), torch.cat([e.nodes for e in found]))
            if not new.nodes.numel() and not implied.numel():
                return
            self.implied.append((implied, torch.cat([nodes[alone], nodes[first]])))
            self.fixed[self.label[implied]] = True
            self.edges.append(new)
            self.label = merged(self.label, new.pairs)
            self.fixed[self.label[self.fixed.nonzero()[:, 0]]] = True


def _same_third(labels: Tensor, products: Products, third: int) -> Edges:
    """Pairs of third factors, in different classes, of products whose other two classes are the same."""
    if not labels.numel():
        return Edges(labels[:2], products.nodes)
    one, other = (labels[place] for place in range(3) if place != third)
    different, kind = (one * (other.max() + 1) + other).unique(return_inverse=True)
    first = torch.empty(len(different), dtype=torch.int64)
    first[kind] = torch.arange(len(kind))
    first = first[kind]
    differ = labels[third, first] != labels[third]
    pairs = torch.stack([products.triples[third, first], products.triples[third]])
    return Edges(pairs[:, differ], products.nodes[differ])


def merged(label: Tensor, pairs: Tensor) -> Tensor:
    """Labels by unknown, each the smallest unknown of its class, after the classes of each pair become one.

    Each round hooks every class on the smallest one that it meets, and then every label on the end of its chain.
    """
    label = label.clone()
    a, b = label[pairs[0]], label[pairs[1]]
    while True:
        differ = a != b
        a, b = a[differ], b[differ]
        if not a.numel():
            return label
        label.scatter_reduce_(0, torch.maximum(a, b), torch.minimum(a, b), "amin")
        while not torch.equal(further := label[label], label):
            label = further
        a, b = label[a], label[b]


def nearest(edges: Edges, start: int, targets: Callable[[Tensor], Tensor]) -> tuple[int, int | None] | None:
    """The target that is nearest to an unknown by edges, and the node of the last edge; None without a target.

    ``targets`` tells which of some unknowns are targets.
    """
    ids, places = torch.cat([edges.pairs.flatten(), torch.tensor([start])]).unique(return_inverse=True)
    wanted = targets(ids)
    if bool(wanted[places[-1]]):
        return start, None
    a, b = places[:-1].view(2, -1)
    a, b, nodes = torch.cat([a, b]), torch.cat([b, a]), edges.nodes.repeat(2)
    seen = torch.zeros(len(ids), dtype=torch.bool)
    seen[places[-1]] = True
    while True:
        reached = (seen[a] & ~seen[b]).nonzero()[:, 0]
        if not reached.numel():
            return None
        hits = reached[wanted[b[reached]]]
        if hits.numel():
            return int(ids[b[hits[0]]]), int(nodes[hits[0]])
        seen[b[reached]] = True
