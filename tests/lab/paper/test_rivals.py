"""The networks of Tables 2 and 4: every row is one of them, and a command trains it."""

import re
from pathlib import Path
from typing import get_args

import pytest
import tyro

from bipolar._tools.choices import RivalName
from bipolar.lab.paper import rivals2, rivals4
from bipolar.lab.reproduce.contest import PARAMS, RATES_OF_NOISE, Contest
from bipolar.lab.training.text import TextConfig
from tests.helpers.items import reproduce
from tests.helpers.paths import ROOT

CONTESTS = {"Table 2": rivals2.CONTEST, "Table 4": rivals4.CONTEST}
EACH = pytest.mark.parametrize("contest", CONTESTS.values(), ids=CONTESTS)


def commands(table: str) -> dict[str, list[str]]:
    """The arguments of each row's command, from docs/rivals.md."""
    text = (ROOT / "docs/rivals.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {table}.*?(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    found = re.findall(r"^\| (.*?) \|.*?\| `bipolar train text(.*?)` \|", section, re.MULTILINE)
    return {row: arguments.split() for row, arguments in found}


@EACH
def test_every_row_of_the_table_is_a_network(contest: Contest) -> None:
    rows = [row for network in contest.networks.values() for row in network.rows]
    assert sorted(rows) == sorted(contest.published)


def test_every_cell_of_the_laboratory_but_irnn_is_one_of_them() -> None:
    """Which has no row in either table."""
    cells = {network.model.cell for contest in CONTESTS.values() for network in contest.networks.values()}
    assert set(get_args(RivalName)) - cells == {"irnn"}


@EACH
def test_networks_have_equal_parameters_and_only_noise_in_their_names(contest: Contest) -> None:
    vocabulary = "".join(map(chr, range(ord("A"), ord("A") + 50)))
    runs = {name: config for name, config in contest.runs("small").items() if name.endswith(": 0.004")}
    assert len(runs) == len(contest.networks)
    for name, config in runs.items():
        network = config.build(vocabulary)
        assert network.num_parameters == pytest.approx(PARAMS, rel=0.07), name  # heads share the width of a transformer
        rates = [*vars(config.recipe.rates).values(), *(config.model.rival.given.get(n) for n in RATES_OF_NOISE)]
        assert any(rates) is bool(re.search("zoneout|dropout|stochastic", name)), name


@pytest.mark.parametrize("table", CONTESTS)
def test_docs_have_a_command_for_each_row(table: str) -> None:
    contest = CONTESTS[table]
    found = commands(table)
    assert set(found) == set(contest.published) | {n for n, network in contest.networks.items() if not network.rows}
    models = {row: network.model for name, network in contest.networks.items() for row in network.rows or (name,)}
    for row, arguments in found.items():
        config = tyro.cli(TextConfig, args=arguments)
        config.check()
        assert config.data == contest.paper.data
        expected, size = models[row], re.search(r" (\d+)x(\d+)", row)
        assert (config.model.cell, config.model.rival, config.model.params) == (
            expected.cell,
            expected.rival,
            expected.params,
        )
        assert config.recipe.rates == TextConfig(config.data, expected).recipe.rates
        if size:
            units = config.model.hidden_size * (config.model.rival.level_share or 1)
            assert (config.model.num_layers, units) == (int(size[1]), int(size[2]))
        else:
            assert (config.model.num_layers, config.model.hidden_size) == (expected.num_layers, expected.hidden_size)


@pytest.mark.long
def test_at_the_quick_scale(tmp_path: Path) -> None:
    for item in (rivals2.ITEM, rivals4.ITEM):
        found = reproduce(item, tmp_path)
        assert found["complete"]
        ends = [run["valid_bpc"] for network in found["results"].values() for run in network.values()]
        assert all(isinstance(end, float) for end in ends)
        assert (tmp_path / f"{item.name}.svg").exists()
