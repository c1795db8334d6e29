"""Table 5: CIFAR-10 test error of residual networks without batch norm, and the learning rate that the search found.

At the small scale the first 10,000 images are trained on and the first 2,000 tested, for few epochs. Of the oriented
networks there are only those with ReLU and BReLU, with 4 orientations, and with a quarter of the batch: in as few
steps as the others have, they only find their way to a uniform guess, at whatever rate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from bipolar.lab.reproduce.comparison import Cell, Table, over
from bipolar.lab.reproduce.item import DNC, Outcome, Results, Scale, Training
from bipolar.lab.training.images import ImageConfig, ImageModel

ACTIVATIONS = ("relu", "brelu", "elu", "belu")
PUBLISHED = {
    "orn": {"relu": 9.20, "brelu": 4.91, "elu": 9.03, "belu": 5.35},
    "wrn": {"relu": 9.78, "brelu": 6.03, "elu": 7.69, "belu": 6.12},
}


def base(scale: Scale, network: Literal["wrn", "orn"]) -> ImageConfig:
    """The recipe at a scale: everything but the activation."""
    if scale == "paper":
        return ImageConfig(data="cifar10", model=ImageModel(network), search=True)
    if scale == "small":
        config = ImageConfig(
            data="cifar10",
            model=ImageModel(network, 28, 1),
            search=True,
            max_epochs=3,
            train_images=10_000,
            test_images=2_000,
            patience=160,
            checkpoint_every=50,
        )
        if network == "wrn":
            return config
        return replace(config, model=replace(config.model, orientations=4), batch_size=32, patience=400)
    return ImageConfig(
        data="digits",
        model=ImageModel(network, 16, 1, orientations=4),
        search=True,
        max_epochs=6,
        batch_size=32,
        patience=130,
    )


def runs(scale: Scale) -> dict[str, ImageConfig]:
    found = {}
    for network in ("wrn", "orn"):
        for activation in ACTIVATIONS[:2] if (scale, network) == ("small", "orn") else ACTIVATIONS:
            config = base(scale, network)
            found[f"{network}: {activation}"] = replace(config, model=replace(config.model, activation=activation))
    return found


def summary(outcome: Outcome) -> dict[str, Any]:
    """The error in per cent, or that the run did not converge; the rate, and what was tried before it."""
    result = outcome.result
    return {
        "test_error": result["test_error"] if outcome.converged else f"{DNC}: {result['reason']}",
        "lr": result.get("lr", outcome.config["lr"]),
        "last_train_loss": outcome.last("train_loss"),
        "attempts": result.get("attempts", []),
    }


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {}
    for name, outcome in outcomes.items():
        network, _, activation = name.partition(": ")
        table.setdefault(network, {})[activation] = summary(outcome)
    return table


def tables(seeds: Sequence[Results]) -> list[Table]:
    errors = {n: [Cell(over(seeds, n, a, "test_error"), PUBLISHED[n][a]) for a in ACTIVATIONS] for n in PUBLISHED}
    rates = {n: [Cell(over(seeds, n, a, "lr")) for a in ACTIVATIONS] for n in PUBLISHED}
    return [
        Table("Test error (%)", ACTIVATIONS, errors, digits=2),
        Table("Learning rate that the search found", ACTIVATIONS, rates, digits=4),
    ]


ITEM = Training(
    name="table5",
    title="Table 5: CIFAR-10 test error (%) without batch norm",
    about=(
        "Wide ResNets (wrn) and Oriented Response Networks (orn) without batch norm, started by LSUV. The learning "
        "rate is searched for: from 0.08, halved whenever training diverges."
    ),
    published=PUBLISHED,
    runs=runs,
    collect=collect,
    tables=tables,
)
