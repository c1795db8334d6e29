"""The search for dropout rates at the small scale."""

from bipolar.lab.paper import dropout, table1
from bipolar.lab.reproduce.cost import steps_of


def test_the_small_scale_trains_the_networks_of_table_1_on_little_text() -> None:
    runs = dropout.runs("small")
    assert len(runs) == len(dropout.DEPTHS) * len(dropout.RATES["small"])
    for config in runs.values():
        config.check()
        assert config.model.hidden_size == table1.base("small", config.model.num_layers).model.hidden_size
        assert config.lr == 0.5 / config.model.hidden_size
        assert steps_of(config) > config.patience, "a run that learns nothing is noticed"
