"""Table 1 at the paper's scale and at a small one."""

import torch

from bipolar.lab.paper import table1
from bipolar.models import CharRNN


def test_the_papers_scale_is_the_papers() -> None:
    runs = table1.runs("paper")
    c = runs["36: belu"]
    assert (c.data, c.recipe.lr, c.length.max_epochs, c.model.hidden_size, c.model.dropout) == (
        "ptb",
        2e-4,
        200,
        256,
        0.05,
    )
    assert (c.model.recurrent_dropout, c.model.block_dropout) == (0.025, 0.025)
    assert {name for name in runs if name.startswith("144")} == {"144: belu"}


def test_the_small_scale_has_what_claims_are_about_at_equal_numbers_of_parameters() -> None:
    small = table1.runs("small")
    assert {name.partition(": ")[0] for name in small} == {"36", "4", "144"}
    assert {name for name in small if name.startswith("144")} == {"144: belu"}
    assert small["144: belu"].recipe == small["36: belu"].recipe
    for config in small.values():
        with torch.device("meta"):
            model = CharRNN(50, config.model.hidden_size, config.model.num_layers)
        assert abs(model.num_parameters / 0.3e6 - 1) < 0.03
