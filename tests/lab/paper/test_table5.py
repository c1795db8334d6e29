"""Table 5 at the paper's scale and at the quick one."""

from bipolar.lab.paper import figure3, shortcut, table5
from bipolar.lab.reproduce.scales import SCALES


def test_the_papers_scale_is_the_papers_for_images_too() -> None:
    runs = table5.runs("paper")
    assert len(runs) == 2 * len(table5.COLUMNS)
    c = runs["orn: belu"]
    assert (c.data, c.peak, c.length.max_epochs, c.batch_size, c.search) == ("cifar10", 0.08, 200, 128, True)
    assert (c.model.network, c.model.depth, c.model.widen_factor, c.model.dropout) == ("orn", 28, 10, 0.3)
    assert (c.model.norm, c.model.shortcut, c.momentum, c.weight_decay) == (None, "clean", 0.9, 5e-4)


def test_batch_norm_and_the_two_readings_of_the_shortcut_have_runs() -> None:
    for scale in SCALES:
        runs = table5.runs(scale)
        for network in ("wrn", "orn"):
            norm = runs[f"{network}: batch norm"]
            assert (norm.model.norm, norm.model.activation, norm.lr, norm.search) == (
                "batch",
                "relu",
                0.4 if scale == "small" else 0.1,
                False,
            )
        assert runs["wrn: relu, rectified"] in shortcut.runs(scale).values()  # run once for both
        assert set(figure3.runs(scale)) <= set(table5.ACTIVATIONS)


def test_rates_are_searched_for_at_the_papers_scale_alone() -> None:
    for scale in SCALES:
        searched = {name for name, config in table5.runs(scale).items() if config.search}
        assert searched == ({name for name in table5.runs(scale) if "norm" not in name} if scale == "paper" else set())


def test_small_networks_take_all_images_and_one_rate() -> None:
    runs = table5.runs("small")
    assert len(runs) == 2 * len(table5.COLUMNS)
    for name, config in runs.items():
        assert (config.data, config.train_images, config.test_images, config.update.recipe) == (
            "cifar10",
            None,
            None,
            "fast",
        )
        assert config.peak == (0.4 if "norm" in name else 0.05)
        assert config.pin
