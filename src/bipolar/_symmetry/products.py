"""Signs of classes that products tie together: linear equations over a field of two elements."""

import torch
from torch import Tensor

from bipolar._symmetry.classes import Products, merged


class Unsolvable(Exception):  # noqa: N818 - not an error, but an answer
    """No signs fulfil some products: the node of one of them, and the classes that it is tied to by others."""

    def __init__(self, node: int, labels: Tensor) -> None:
        super().__init__(node)
        self.node, self.labels = node, labels


def signs_with_products(products: Products, label: Tensor, signs: Tensor, known: Tensor) -> Tensor:
    """Signs of all classes, with those that are known, so that each product of three is +1.

    A product with one class of unknown sign gives it its sign. A product with a class that occurs in no other can wait:
    this class takes whatever sign is needed in the end. Elimination solves the rest. Signs that nothing needs are +1.
    """
    signs, known = signs.clone(), known.clone()
    every = triples = label[products.triples]
    nodes = products.nodes
    waiting: list[tuple[Tensor, Tensor]] = []
    while triples.size(1):
        unknown = ~known[triples]
        count, product = unknown.sum(0), signs[triples].prod(0)  # unknown signs are +1 up to now
        violated = (count == 0) & (product == -1)
        if bool(violated.any()):
            raise _unsolvable(every, nodes, triples, int(violated.nonzero()[0, 0]))
        where, columns = (unknown & (count == 1)).nonzero(as_tuple=True)
        last = triples[where, columns]
        signs[last] = product[columns].to(signs)  # of two products that ask for different signs, one is violated next
        known[last] = True
        lone = unknown & (torch.bincount(triples.flatten(), minlength=len(label))[triples] == 1) & (count > 1)
        peeled = lone.any(0)
        waiting.append((triples[:, peeled], triples.gather(0, lone.long().argmax(0, keepdim=True))[0, peeled]))
        if not len(last) and not bool(peeled.any()):
            _eliminate(every, triples, nodes, signs, known)
            break
        kept = (count > 0) & ~peeled
        triples, nodes = triples[:, kept], nodes[kept]
    for some, pivots in reversed(waiting):
        signs[pivots] = 1
        signs[pivots] = signs[some].prod(0).to(signs)
    return signs


def _eliminate(every: Tensor, triples: Tensor, nodes: Tensor, signs: Tensor, known: Tensor) -> None:
    """Sets the signs of the unknown classes in some products, by Gaussian elimination on sparse rows."""
    pivots: dict[int, tuple[set[int], int]] = {}
    for column, classes in enumerate(triples.t().tolist()):
        row, product = {c for c in classes if not known[c]}, 1
        for c in classes:
            product *= int(signs[c])
        while shared := next((c for c in row if c in pivots), None):
            other, factor = pivots[shared]
            row, product = row ^ other, product * factor
        if row:
            pivots[min(row)] = row, product
        elif product == -1:
            raise _unsolvable(every, nodes, triples, column)
    for pivot, (row, product) in reversed(pivots.items()):
        for c in row - {pivot}:
            product *= int(signs[c])
        signs[pivot] = product


def _unsolvable(every: Tensor, nodes: Tensor, triples: Tensor, column: int) -> Unsolvable:
    """The answer for one product, with the classes that all products together tie to its own."""
    group = merged(torch.arange(int(every.max()) + 1), torch.cat([every[:2], every[1:]], 1))
    return Unsolvable(int(nodes[column]), (group == group[triples[0, column]]).nonzero()[:, 0])
