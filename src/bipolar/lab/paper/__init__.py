"""The tables and figures of the paper, and the studies beside it, by name."""

from dataclasses import replace

from bipolar.lab.paper import (
    aliasing,
    dropout,
    figure1,
    figure2,
    figure3,
    figure4,
    figure5,
    figure6,
    shortcut,
    symmetry,
    table1,
    table2,
    table5,
    text8,
)
from bipolar.lab.paper.claims import CLAIMS
from bipolar.lab.reproduce.item import Item

ITEMS: dict[str, Item] = {
    item.name: replace(item, claims=[claim for claim in CLAIMS if claim.items[0] == item.name])
    for item in (
        figure1.ITEM,
        figure2.ITEM,
        symmetry.ITEM,
        figure4.ITEM,
        table1.ITEM,
        table2.ITEM,
        figure5.ITEM,
        figure6.ITEM,
        dropout.ITEM,
        aliasing.ITEM,
        text8.TABLE3,
        text8.TABLE4,
        table5.ITEM,
        figure3.ITEM,
        shortcut.ITEM,
    )
}
