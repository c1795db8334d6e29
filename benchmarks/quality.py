"""Time to quality: the validation error of recurrent networks after equal time, at equal numbers of parameters.

The stack, LSTMs with one and with two layers, and a GRU, each by the fast recipe, which needs to know its length: so
each network takes as many steps as fit into the budget, by the time of a step that is measured once, and the learning
rate falls to zero at its end. The first seed tries all rates, the others take the best of them. A budget is a row of
runs of its own; those of several budgets come together in one picture.

This is long: twenty times the budget, by default over three hours, which it says first. A command that was stopped
goes on where it was. Nothing else should run on the machine.
"""

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.common import machine, markdown_table, record
from bipolar._tools.choices import CellName
from bipolar._tools.figures import save
from bipolar._tools.files import write_json
from bipolar.lab.provenance import provenance
from bipolar.lab.reproduce.outcomes import DNC
from bipolar.lab.reproduce.tables import Entry
from bipolar.lab.training.journal import duration
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.runs import stored
from bipolar.lab.training.text import TextConfig, TextModel, text_task, train_text
from bipolar.lab.training.update import Update

#: Steps that are timed, after some that are slower, and the fewest of a run.
TIMED, WARM_UP, FEWEST = 5, 2, 10


@dataclass(frozen=True)
class Candidate:
    """A network."""

    cell: CellName
    num_layers: int


CANDIDATES = {
    "stack, 36 layers": Candidate("stack", 36),
    "LSTM, 1 layer": Candidate("lstm", 1),
    "LSTM, 2 layers": Candidate("lstm", 2),
    "GRU, 1 layer": Candidate("gru", 1),
}


class Contest:
    """The runs of one budget, in a directory, from which they go on.

    Args:
        arguments: those of the command
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.given = arguments
        self.budget = 60 * float(arguments.budget)
        self.out: Path = arguments.out / f"{arguments.params:g}-{arguments.precision}-{arguments.budget:g}min"

    def config(self, name: str, rate: float, seed: int) -> TextConfig:
        candidate, given = CANDIDATES[name], self.given
        model = TextModel(candidate.num_layers, cell=candidate.cell, params=given.params)
        return TextConfig(
            given.data,
            model,
            data_dir=given.data_dir,
            machine=Machine(precision=given.precision),
            update=Update(recipe="fast", optimizer="adam"),
            batch_size=given.batch_size,
            window=given.window,
            lr=rate,
            seed=seed,
            patience=10**9,  # a network that is slow at first counts by where it ends
            out=self.out / f"{name}, {rate:g}, seed {seed}".replace(", ", "-").replace(" ", "-"),
        )

    def plan(self) -> dict[str, dict[str, Any]]:
        """For each network the seconds of a step, as measured when the contest began, and its steps."""
        path = self.out / "plan.json"
        if not path.exists():
            seconds = {name: seconds_of_a_step(self.config(name, self.given.rates[0], 1)) for name in CANDIDATES}
            found = {name: {"step": s, "steps": max(FEWEST, int(self.budget / s))} for name, s in seconds.items()}
            write_json(path, found)
        plan: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return plan

    def error(self, name: str, rate: float, seed: int, steps: int) -> float:
        """The validation error of a run, which is trained, resumed, or there already; infinite if it diverges."""
        config = dataclasses.replace(self.config(name, rate, seed), max_steps=steps, max_epochs=steps)
        result = train_text(config, show=not self.given.quiet)
        if result["status"] == "stopped":
            raise KeyboardInterrupt
        return float(result["best_valid_bpc"]) if result["status"] == "finished" else float("inf")

    def run(self) -> dict[str, dict[str, Any]]:
        """All runs; the results by network."""
        found = {}
        for name, planned in self.plan().items():
            steps = planned["steps"]
            first = {rate: self.error(name, rate, 1, steps) for rate in self.given.rates}
            rate = min(first, key=lambda rate: first[rate])
            errors = [first[rate], *(self.error(name, rate, seed, steps) for seed in range(2, self.given.seeds + 1))]
            config = self.config(name, rate, 1)
            model = config.build(stored(config.directory)["vocabulary"])
            found[name] = {
                "parameters": model.num_parameters,
                "width": model.decoder.in_features,
                "steps": steps,
                "seconds_of_a_step": planned["step"],
                "rate": rate,
                "by_rate": {f"{r:g}": _number(error) for r, error in first.items()},
                "valid_bpc": [_number(error) for error in errors],
            }
        return found


def _number(error: float) -> float | str:
    return error if error < float("inf") else DNC


def seconds_of_a_step(config: TextConfig) -> float:
    """The median seconds of a training step."""
    task = text_task(config)
    task.setup(config.machine.fabric())
    task.start_epoch(0)
    task.model.train()
    seconds = []
    for index in range(WARM_UP + TIMED):
        start = time.perf_counter()
        loss, _ = task.loss(index % task.steps_per_epoch)
        task.fabric.backward(loss)
        task.optimizer.step()
        task.optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[WARM_UP:])


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    rows = [
        [
            f"{float(minutes):g} min",
            name,
            f"{row['parameters']:,}",
            f"{row['width']}",
            f"{row['steps']:,}",
            f"{row['rate']:g}",
            Entry(row["valid_bpc"]).text(),
        ]
        for minutes, networks in sorted(results.items(), key=lambda item: float(item[0]))
        for name, row in networks.items()
    ]
    return markdown_table(["budget", "network", "parameters", "width", "steps", "rate", "validation BPC"], rows)


def draw(results: dict[str, dict[str, dict[str, Any]]]) -> Figure:
    """Validation error against the budget, a line for each network."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for name in CANDIDATES:
        entries = {float(minutes): Entry(row[name]["valid_bpc"]) for minutes, row in sorted(results.items())}
        reached = {minutes: entry for minutes, entry in sorted(entries.items()) if entry.mean is not None}
        means = [float(entry.mean or 0.0) for entry in reached.values()]
        spreads = [entry.spread or 0.0 for entry in reached.values()]
        axes.errorbar(list(reached), means, spreads, marker="o", capsize=2, label=name)
    axes.set_xscale("log")
    axes.set(xlabel="minutes of training", ylabel="validation BPC")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=10, help="minutes of training of a run (default: 10)")
    parser.add_argument("--params", type=float, default=1e6, help="parameters of each network (default: 1e6)")
    parser.add_argument("--rates", type=float, nargs="+", default=[2e-3, 4e-3, 8e-3], help="rates that seed 1 tries")
    parser.add_argument("--seeds", type=int, default=3, help="seeds at the best rate (default: 3)")
    parser.add_argument("--data", default="ptb", help="the text (default: ptb)")
    parser.add_argument("--data-dir", type=Path, help="where the data is (default: as for bipolar train)")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--window", type=int, default=50)
    parser.add_argument(
        "--precision", choices=("32-true", "bf16-mixed"), default="32-true", help="of all networks (default: 32-true)"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/quality"), help="where the runs are, and go on from")
    parser.add_argument("--quiet", action="store_true", help="show no progress of single runs")
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md too")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    given = parsed(arguments)
    runs = len(CANDIDATES) * (len(given.rates) + given.seeds - 1)
    length = duration(runs * 60 * given.budget)
    print(f"This is long: {runs} runs of {given.budget:g} min, {length} in all, less what {given.out} has", flush=True)
    path = given.out / f"{given.params:g}-{given.precision}.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"results": {}}
    results = before["results"] | {f"{given.budget:g}": Contest(given).run()}
    write_json(
        path,
        {"params": given.params, "precision": given.precision, "data": given.data, **provenance(), "results": results},
    )
    save(draw(results), path.with_suffix(".svg"))
    text = (
        f"{machine()}; {given.data}, batch {given.batch_size}, {given.window} steps, {given.precision}; the best of "
        f"{len(given.rates)} rates, {given.seeds} seeds.\n\n{table(results)}"
    )
    print(f"{text}\n\n{path.with_suffix('.svg')}")
    if given.record:
        record("quality", text)


if __name__ == "__main__":
    main()
