"""The solver against trying all signs."""

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bipolar._symmetry.solver import PLUS, Constraints, Wish

UNKNOWNS = st.integers(PLUS, 5)


def possible(
    equal: list[tuple[int, int]], products: list[tuple[int, int, int]], plus: list[int], wanted: dict[int, set[int]]
) -> bool:
    """Whether some signs fulfil everything."""
    for signs in itertools.product((1, -1), repeat=6):
        if (
            signs[PLUS] == 1
            and all(signs[a] == signs[b] for a, b in equal)
            and all(signs[a] * signs[b] * signs[c] == 1 for a, b, c in products)
            and all(signs[u] == 1 for u in plus)
            and all({signs[u]} == asked for u, asked in wanted.items())
        ):
            return True
    return False


@settings(max_examples=300, deadline=None)
@given(
    equal=st.lists(st.tuples(UNKNOWNS, UNKNOWNS), max_size=6),
    products=st.lists(st.tuples(UNKNOWNS, UNKNOWNS, UNKNOWNS), max_size=6),
    plus=st.lists(UNKNOWNS, max_size=2),
    wishes=st.lists(st.tuples(st.integers(0, 2), st.dictionaries(UNKNOWNS, st.sampled_from((1, -1)))), max_size=4),
)
def test_it_finds_signs_where_there_are_some(
    equal: list[tuple[int, int]],
    products: list[tuple[int, int, int]],
    plus: list[int],
    wishes: list[tuple[int, dict[int, int]]],
) -> None:
    system = Constraints()
    system.fresh(5)
    for node, (a, b) in enumerate(equal):
        system.equate(torch.tensor(a), torch.tensor(b), node)
    for a, b, c in products:
        system.multiply(torch.tensor(a), torch.tensor(b), torch.tensor(c), 50)
    for u in plus:
        system.plus(torch.tensor(u), 100, "because")
    solution = system.solve(
        [
            Wish.of(unit, 200 + unit, torch.tensor(list(wish)), torch.tensor(list(wish.values())))
            for unit, wish in wishes
            if wish
        ]
    )
    found = solution.of(torch.arange(6)).tolist()
    assert found[PLUS] == 1
    assert all(found[a] == found[b] for a, b in equal)
    assert all(found[a] * found[b] * found[c] == 1 for a, b, c in products)
    assert all(found[u] == 1 for u in plus)
    for unit, wish in wishes:
        for u, sign in wish.items():
            assert found[u] == (1 if unit in solution.refused else sign)
    wanted: dict[int, set[int]] = {}
    for _, wish in wishes:
        for u, sign in wish.items():
            wanted.setdefault(u, set()).add(sign)
    assert possible(equal, products, plus, wanted) == (not solution.refused)
    for conflict in solution.refused.values():
        assert conflict.node in range(len(equal)) or conflict.node >= 50
        assert conflict.reason or conflict.unit is not None


def test_the_nearest_reason_is_given() -> None:
    system = Constraints()
    chain = system.fresh(10)
    system.equate(chain[:-1], chain[1:], node=1)
    system.plus(chain[9], 2, "far away")
    system.plus(chain[2], 3, "near")
    (conflict,) = system.solve([Wish.of("unit", 4, chain[0], torch.tensor(-1))]).refused.values()
    assert (conflict.reason, conflict.node, conflict.meeting) == ("near", 3, 1)
