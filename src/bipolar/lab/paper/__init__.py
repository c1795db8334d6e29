"""The tables and figures of the paper and the studies beside it, one file each, with their claims."""

from collections.abc import Sequence

from bipolar.lab.paper import (
    aliasing,
    batches,
    curve8,
    depths,
    divergence,
    dropout,
    figure1,
    figure2,
    figure3,
    figure4,
    figure5,
    figure6,
    first_epoch,
    longer,
    lsuv,
    normfree,
    plain,
    rates36,
    recipe36,
    rivals2,
    rivals4,
    shortcut,
    symmetry,
    table1,
    table2,
    table3,
    table4,
    table5,
)
from bipolar.lab.reproduce.item import Item

#: All items by name, in the order of the report.
ITEMS: dict[str, Item] = {
    item.name: item
    for item in (
        figure1.ITEM,
        figure2.ITEM,
        symmetry.ITEM,
        divergence.ITEM,
        figure4.ITEM,
        table1.ITEM,
        table2.ITEM,
        rivals2.ITEM,
        figure5.ITEM,
        lsuv.ITEM,
        figure6.ITEM,
        first_epoch.ITEM,
        rates36.ITEM,
        recipe36.ITEM,
        depths.ITEM,
        dropout.ITEM,
        aliasing.ITEM,
        table3.ITEM,
        table4.ITEM,
        curve8.ITEM,
        rivals4.ITEM,
        table5.ITEM,
        figure3.ITEM,
        shortcut.ITEM,
        normfree.ITEM,
        longer.ITEM,
        plain.ITEM,
        batches.ITEM,
    )
}


def chosen(names: Sequence[str]) -> list[Item]:
    """The items of these names with those beside them, each once; all items if there are no names."""
    wanted = set(names) | {str(ITEMS[name].beside) for name in names}
    return [item for name, item in ITEMS.items() if name in wanted or not names]
