"""Time to quality: the validation error of recurrent networks after equal time, at equal numbers of parameters.

The stack, LSTMs with one and with two layers, a GRU, and rivals of the laboratory, each without dropout by the fast
recipe, which needs to know its length: so each network takes as many steps as fit into the budget, by the time of a
step in its first runs, and the learning rate falls to zero at its end; the minutes that its steps then took stand
beside it. All rates are tried for a share of the budget, by runs that are whole in themselves, and the best of them has
all seeds; if one of these diverges, the next best has them instead. A budget is a row of runs of its own; those of
several budgets, and the tried ones, come together in one picture.

This is long: with its defaults, thirty times the budget, which it says first. A command that was stopped goes on where
it was, and one with other networks joins its results. Nothing else should run on the machine, but for a second command
with other networks, pinned to another core.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.common import markdown_table, record
from bipolar._tools.figures import save
from bipolar._tools.files import write_json
from bipolar.lab.provenance import provenance
from bipolar.lab.reproduce.contest import seconds_of_a_step, without_noise
from bipolar.lab.reproduce.outcomes import DNC
from bipolar.lab.reproduce.tables import Entry
from bipolar.lab.training.journal import duration, read_metrics
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.runs import stored
from bipolar.lab.training.text import TextConfig, TextModel, text_task, train_text
from bipolar.lab.training.update import Update

#: Steps that are timed, after some that are slower, and the fewest of a run.
TIMED, WARM_UP, FEWEST = 5, 2, 10
#: Runs that took more or less time than the budget by this share are marked.
UNEVEN = 0.15


CANDIDATES = {
    "stack, 36 layers": TextModel(36),
    "LSTM, 1 layer": TextModel(1, cell="lstm"),
    "LSTM, 2 layers": TextModel(2, cell="lstm"),
    "GRU, 1 layer": TextModel(1, cell="gru"),
    "IndRNN, 6 layers": TextModel(6, cell="indrnn"),
    "mLSTM, 1 layer": TextModel(1, cell="mlstm"),
    "minGRU, 3 layers": TextModel(3, cell="mingru"),
    "transformer, 4 layers": TextModel(4, cell="transformer"),
}
#: The directory of the recorded results, a file for each size and precision.
RESULTS = Path(__file__).parents[1] / "results"


class Contest:
    """The runs of one budget, in a directory, from which they go on.

    Args:
        arguments: those of the command
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.given = arguments
        self.budget = 60 * float(arguments.budget)
        self.out: Path = arguments.out / f"{arguments.params:g}-{arguments.precision}-{arguments.budget:g}min"

    def config(self, name: str, rate: float, seed: int, steps: int) -> TextConfig:
        given = self.given
        return TextConfig(
            given.data,
            without_noise(replace(CANDIDATES[name], params=given.params)),
            data_dir=given.data_dir,
            machine=Machine(precision=given.precision),
            update=Update(recipe="fast", optimizer="adam"),
            batch_size=given.batch_size,
            window=given.window,
            lr=rate,
            seed=seed,
            max_steps=steps,
            max_epochs=steps,
            patience=10**9,  # a network that is slow at first counts by where it ends
            out=self.out / _slug(f"{name}, {rate:g}, {steps} steps, seed {seed}"),
        )

    def steps(self, name: str, pace: float | None = None) -> int:
        """The steps of a network that take the budget, which stand once they are known.

        Args:
            name: the network
            pace: the seconds of a step. Default: as some first steps take, for the search
        """
        path = self.out / f"{_slug(name)}.json"
        plan = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        key = "steps of the search" if pace is None else "steps"
        if key not in plan:
            pace = measured(self.config(name, self.given.rates[0], 1, 10**6)) if pace is None else pace
            plan[key] = max(FEWEST, int(self.budget / pace))
            write_json(path, plan)
        return int(plan[key])

    def search(self, name: str) -> tuple[dict[float, float], float | None]:
        """The errors of all rates after a share of the budget, and the seconds of a step in these runs; none of one."""
        rates = self.given.rates
        if len(rates) == 1:
            return {}, None
        steps = max(FEWEST, round(self.given.search * self.steps(name)))
        tried = {rate: self.outcome(name, rate, 1, steps) for rate in rates}
        return {rate: error for rate, (error, _) in tried.items()}, min(pace for _, pace in tried.values())

    def outcome(self, name: str, rate: float, seed: int, steps: int) -> tuple[float, float]:
        """The validation error of a run and the seconds of its steps; an infinite error if it diverges.

        The run is trained, resumed, or there already.
        """
        config = self.config(name, rate, seed, steps)
        result = train_text(config, show=not self.given.quiet)
        if result["status"] == "stopped":
            raise KeyboardInterrupt
        pace = seconds_of_a_step(read_metrics(config.directory)) or math.nan
        return float(result["best_valid_bpc"]) if result["status"] == "finished" else math.inf, pace

    def run(self, name: str) -> dict[str, Any]:
        """All runs of a network, and its results: those of the best rate of the search at which no seed diverges.

        Where each rate has such a seed, those of the first with the fewest.
        """
        by_rate, pace = self.search(name)
        searched = None if pace is None else self.steps(name)
        steps = self.steps(name) if pace is None else self.steps(name, pace)
        found: dict[float, list[tuple[float, float]]] = {}
        for rate in sorted(by_rate, key=lambda rate: by_rate[rate]) or self.given.rates:
            found[rate] = [self.outcome(name, rate, seed, steps) for seed in range(1, self.given.seeds + 1)]
            if all(error < math.inf for error, _ in found[rate]):
                break
        rate = min(found, key=lambda rate: sum(error == math.inf for error, _ in found[rate]))
        config = self.config(name, rate, 1, steps)
        model = config.build(stored(config.directory)["vocabulary"])
        paces = [pace for error, pace in found[rate] if error < math.inf] or [pace for _, pace in found[rate]]
        return {
            "parameters": model.num_parameters,
            "width": model.decoder.in_features,
            "steps": steps,
            "minutes": min(paces) * steps / 60,  # of the run that the machine disturbed least
            "rate": rate,
            "by_rate": {f"{rate:g}": _number(error) for rate, error in by_rate.items()},
            "search": None if searched is None else self.given.search * searched / steps,
            "diverged": [f"{other:g}" for other in found if other != rate],
            "valid_bpc": [_number(error) for error, _ in found[rate]],
        }


def _slug(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "-")


def _number(error: float) -> float | str:
    return error if error < math.inf else DNC


def measured(config: TextConfig) -> float:
    """The median seconds of some first steps of a run."""
    task = text_task(config)
    task.setup(config.machine.fabric())
    task.start_epoch(0)
    task.model.train()
    seconds = []
    for index in range(WARM_UP + TIMED):
        start = time.perf_counter()
        loss, _ = task.loss(index % task.steps_per_epoch)
        task.fabric.backward(loss)
        if task.schedule is not None:
            task.schedule.before(index, 10**6)
        task.optimizer.step()
        task.optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[WARM_UP:])


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The networks of each budget, the best first."""
    rows = [
        [
            f"{float(minutes):g} min",
            name,
            f"{row['parameters']:,}",
            f"{row['width']}",
            f"{row['steps']:,}",
            f"{row['minutes']:.1f}" + (" (not equal)" if abs(row["minutes"] / float(minutes) - 1) > UNEVEN else ""),
            f"{row['rate']:g}{_search(row)}",
            Entry(row["valid_bpc"]).text(),
        ]
        for minutes, networks in sorted(results.items(), key=lambda item: float(item[0]))
        for name, row in sorted(networks.items(), key=lambda item: Entry(item[1]["valid_bpc"]).mean or math.inf)
    ]
    header = ["budget", "network", "parameters", "width", "steps", "minutes", "rate", "validation BPC"]
    return markdown_table(header, rows)


def _search(row: dict[str, Any]) -> str:
    """The search behind a rate, in words."""
    if not row["by_rate"]:
        return ""
    rates = [float(rate) for rate in row["by_rate"]]
    edge = {min(rates): ", the lowest", max(rates): ", the highest"}.get(row["rate"], "")
    diverged = f"; diverged: {', '.join(row['diverged'])}" if row["diverged"] else ""
    return f" of {len(rates)}{edge}, by {row['search']:.0%}{diverged}"


def reached(row: dict[str, Any]) -> list[tuple[float, Entry]]:
    """The minutes and the errors of a network: of the best rate in the search, with one seed, and of all seeds."""
    tried = [error for error in row["by_rate"].values() if isinstance(error, float)]
    short = [(row["search"] * row["minutes"], Entry([min(tried)]))] if tried else []
    return [*short, (row["minutes"], Entry(row["valid_bpc"]))]


def draw(results: dict[str, dict[str, dict[str, Any]]]) -> Figure:
    """Validation error against the time that the steps took, a line for each network."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for name in CANDIDATES:
        points = [point for row in results.values() if name in row for point in reached(row[name])]
        points = sorted((point for point in points if point[1].mean is not None), key=lambda point: point[0])
        if not points:
            continue
        minutes, entries = zip(*points, strict=True)
        means = [float(entry.mean or 0.0) for entry in entries]
        axes.errorbar(minutes, means, [entry.spread or 0.0 for entry in entries], marker="o", capsize=2, label=name)
    axes.set_xscale("log")
    axes.set(xlabel="minutes of training; without a bar: one seed", ylabel="validation BPC")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=10, help="minutes of training of a run (default: 10)")
    parser.add_argument("--params", type=float, default=1e6, help="parameters of each network (default: 1e6)")
    parser.add_argument("--networks", nargs="+", choices=CANDIDATES, default=list(CANDIDATES), help="default: all")
    parser.add_argument(
        "--rates",
        type=float,
        nargs="+",
        default=[2e-3, 4e-3, 8e-3],
        help="rates to try (default: 2e-3 4e-3 8e-3, for a million parameters and minutes; larger networks and hours "
        "take lower ones, such as 5e-4 1e-3 2e-3)",
    )
    parser.add_argument(
        "--search", type=float, default=0.25, help="the share of the budget that a rate is tried for (default: 0.25)"
    )
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


def described(found: dict[str, Any]) -> str:
    """The results of a size and precision, for people."""
    head = (
        f"{found['params']:,.0f} parameters; {found['machine']}; {found['data']}, batch {found['batch_size']}, "
        f"{found['window']} steps, {found['precision']}; of the rates that were tried the best, all seeds."
    )
    return f"{head}\n\n{table(found['results'])}"


def main(arguments: Sequence[str] | None = None) -> None:
    given = parsed(arguments)
    tried = given.search * len(given.rates) if len(given.rates) > 1 else 0.0
    length = duration(len(given.networks) * (tried + given.seeds) * 60 * given.budget)
    print(f"This is long: {len(given.networks)} networks, {length} in all, less what {given.out} has", flush=True)
    name = f"{given.params:g}-{given.precision}"
    path, contest, budget = given.out / f"{name}.json", Contest(given), f"{given.budget:g}"
    settings = {key: vars(given)[key] for key in ("params", "precision", "data", "batch_size", "window")}
    for network in given.networks:
        row = contest.run(network)
        results = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else {}
        results[budget] = results.get(budget, {}) | {network: row}
        found = {**settings, **provenance(), "results": results}
        write_json(path, found)
        save(draw(results), path.with_suffix(".svg"))
    print(f"{described(found)}\n\n{path.with_suffix('.svg')}")
    if given.record:
        write_json(RESULTS / f"quality-{name}.json", found)
        save(draw(results), RESULTS / f"quality-{name}.svg")
        recorded = [json.loads(each.read_text(encoding="utf-8")) for each in sorted(RESULTS.glob("quality-*.json"))]
        pictures = [
            f"![Validation error by time of training](../results/quality-{each['params']:g}-{each['precision']}.svg)"
            f"\n\n{described(each)}"
            for each in recorded
        ]
        record("quality", "\n\n".join(pictures))


if __name__ == "__main__":
    main()
