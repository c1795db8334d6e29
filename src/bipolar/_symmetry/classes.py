"""Classes of unknown signs that have to be equal, closed under products of three.

All work is on whole tensors of unknowns, in time that grows with their number: a model may have one for each weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

#: The unknown whose sign is fixed to +1.
PLUS = 0


@dataclass
class Edges:
    """Pairs of equal unknowns, of shape (2, n), and the node that equates each."""

    pairs: Tensor
    nodes: Tensor

    @classmethod
    def joined(cls, parts: "Sequence[Edges]") -> "Edges":
        none = cls(torch.empty(2, 0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
        return cls(torch.cat([p.pairs for p in (none, *parts)], 1), torch.cat([p.nodes for p in (none, *parts)]))


@dataclass
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

    ``label`` and ``fixed`` go by unknowns. ``derived`` are the equalities that products brought about, ``implied`` the
    unknowns that they fixed, with the node of each. ``products`` are the products that still say something, each of
    three different classes.
    """

    label: Tensor
    fixed: Tensor
    edges: Edges
    products: Products
    derived: list[Edges] = field(default_factory=list)
    implied: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @classmethod
    def of(cls, count: int, edges: Edges, products: Products) -> "Classes":
        label = merged(torch.arange(count), edges.pairs)
        fixed = torch.zeros(count, dtype=torch.bool)
        fixed[PLUS] = True
        return cls(label, fixed, edges, products)

    def fix(self, unknowns: Tensor) -> None:
        """Requires +1, and follows what this means for products."""
        self.fixed[self.label[unknowns]] = True
        self._close()

    def is_fixed(self, unknowns: Tensor) -> Tensor:
        return self.fixed[self.label[unknowns]]

    def edges_in(self, label: int) -> Edges:
        """The equalities within a class."""
        everything = Edges.joined([self.edges, *self.derived])
        inside = self.label[everything.pairs[0]] == label
        return Edges(everything.pairs[:, inside], everything.nodes[inside])

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
            equal = [(small == PLUS) & (middle != large) & (middle != PLUS)]
            pairs = [unknowns[1:, equal[0]]]
            at = [nodes[equal[0]]]
            one = [(small == PLUS) & (middle == PLUS) & (large != PLUS), (small == middle) & (small != PLUS)]
            fixes = [unknowns[2, one[0]], unknowns[2, one[1]]]
            one.append((middle == large) & (small != PLUS) & (small != middle))
            fixes.append(unknowns[0, one[2]])
            open_ = (small != PLUS) & (small != middle) & (middle != large)
            for kept in ((0, 1), (0, 2), (1, 2)):
                shared, where = _same_third(labels[:, open_], unknowns[:, open_], kept)
                pairs.append(shared)
                at.append(nodes[open_][where])
            self.products = self.products.chosen(open_)
            new = Edges(torch.cat(pairs, 1), torch.cat(at))
            fresh = torch.cat(fixes)
            if not new.nodes.numel() and not fresh.numel():
                return
            if fresh.numel():
                self.implied.append((fresh, torch.cat([nodes[mask] for mask in one])))
                self.fixed[self.label[fresh]] = True
            if new.nodes.numel():
                self.derived.append(new)
                before = self.label
                self.label = merged(before, new.pairs)
                self.fixed[self.label[before[self.fixed.nonzero()[:, 0]]]] = True


def _same_third(labels: Tensor, unknowns: Tensor, kept: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Pairs of third factors, in different classes, of products whose other two classes are the same; and where."""
    third = 3 - sum(kept)
    first, inverse = _numbered(labels[kept[0]] * (int(labels.max()) + 1 if labels.numel() else 1) + labels[kept[1]])
    a, b = unknowns[third, first[inverse]], unknowns[third]
    differ = (labels[third, first[inverse]] != labels[third]).nonzero()[:, 0]
    return torch.stack([a[differ], b[differ]]), differ


def _numbered(keys: Tensor) -> tuple[Tensor, Tensor]:
    """For different keys the place of one of each; and for each key the number of its kind."""
    different, inverse = keys.unique(return_inverse=True)
    first = torch.empty(len(different), dtype=torch.int64)
    first[inverse] = torch.arange(len(keys))
    return first, inverse


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


def nearest(edges: Edges, start: int, targets: Tensor) -> tuple[int, int] | None:
    """The target that is nearest to an unknown by edges, and the node of the last edge; None without any.

    ``targets`` is true for unknowns that are one.
    """
    ids, places = torch.cat([edges.pairs.flatten(), torch.tensor([start])]).unique(return_inverse=True)
    if bool(targets[start]):
        return start, -1
    a, b = places[:-1].view(2, -1)
    a, b, nodes = torch.cat([a, b]), torch.cat([b, a]), edges.nodes.repeat(2)
    seen = torch.zeros(len(ids), dtype=torch.bool)
    seen[places[-1]] = True
    wanted = targets[ids]
    while True:
        reached = (seen[a] & ~seen[b]).nonzero()[:, 0]
        if not reached.numel():
            return None
        hits = reached[wanted[b[reached]]]
        if hits.numel():
            return int(ids[b[hits[0]]]), int(nodes[hits[0]])
        seen[b[reached]] = True
