"""Contests of networks: under one recipe, each at the best of several rates, after equal steps and at equal time.

Runs end at a learning rate that has not fallen, with a running average of the weights beside them. So a run is as good
at any moment as if it had been meant to end there, and one run shows its network after any number of steps and at any
time.
"""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from matplotlib.figure import Figure

from bipolar.lab.reproduce.comparisons import Order
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Outcome, Results
from bipolar.lab.reproduce.rules import BPC
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry, Table
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, MissingError, Verdict
from bipolar.lab.training.text import TextConfig, TextModel
from bipolar.lab.training.text.rival_options import RivalOptions
from bipolar.lab.training.update import Update

#: The learning rates of every network, and the one of the quick scale.
RATES, QUICK_RATES = (0.001, 0.004, 0.016), (0.004,)
#: The parameters of every network at the small scale and at the quick one.
PARAMS, QUICK_PARAMS = 0.3e6, 5e3
#: The recipe: Adam at a rate that rises and stays; the average forgets all but about a twentieth of the steps so far.
UPDATE = Update(recipe="fast", optimizer="adam", decay="constant", average=0.05)
#: The options that are noise.
RATES_OF_NOISE = ("zoneout", "zoneout_cell", "stochastic_depth", "candidate_dropout", "input_dropout")
#: Stands in place of an error of a network that is too slow to have one by the time.
LATE = "not validated by then"


@dataclass(frozen=True)
class Network:
    """A network of a contest.

    Args:
        model: it as published, or as we choose where nothing is published; its noise included
        rows: the rows of the paper's table that it stands for
        gates: whether it has gates, or attention
        noise: whether noise is its point, so that it stays at the smaller scales, where nothing overfits
    """

    model: TextModel
    rows: tuple[str, ...] = ()
    gates: bool = True
    noise: bool = False

    def at(self, params: float) -> TextModel:
        """The network with so many parameters."""
        sized = replace(self.model, params=params, hidden_size=TextModel().hidden_size)
        return sized if self.noise else without_noise(sized)


def without_noise(model: TextModel) -> TextModel:
    """A model without dropout of any kind, however long it trains."""
    rival: dict[str, Any] = {
        option.name: None if option.name in RATES_OF_NOISE else getattr(model.rival, option.name)
        for option in fields(RivalOptions)
    }
    return replace(model, dropout=0.0, recurrent_dropout=0.0, block_dropout=0.0, rival=RivalOptions(**rival))


@dataclass(frozen=True)
class Contest:
    """A contest, from its runs to the verdict; see :meth:`item`.

    Args:
        name: the name of the item
        place: the table of the paper, such as ``Table 2``
        networks: all networks by name
        ours: the name of the one whose place is asked for
        published: the errors of the rows of the paper's table
        small: the text of the small scale
        paper: the run of the paper's scale, but for network and rate
    """

    name: str
    place: str
    networks: Mapping[str, Network]
    ours: str
    published: Mapping[str, float]
    small: str
    paper: TextConfig

    def runs(self, scale: Scale) -> dict[str, TextConfig]:
        """Every network at every rate."""
        found = {}
        for name, network in self.networks.items():
            if scale == "quick":
                base = TextConfig("python-docs", network.at(QUICK_PARAMS), max_steps=4, batch_size=8, window=10)
                base = replace(base, look_every=2, log_every=2, max_valid_windows=1)
            elif scale == "small":
                base = TextConfig(self.small, network.at(PARAMS), max_steps=250)
                base = replace(base, look_every=50, max_valid_windows=15, patience=200)
            else:
                base = replace(self.paper, model=network.model, look_every=500, max_valid_windows=60)
            for rate in QUICK_RATES if scale == "quick" else RATES:
                found[f"{name}: {rate:g}"] = replace(base, update=UPDATE, lr=rate)
        return found

    def item(self, title: str, about: str) -> Training:
        """The item of the contest."""
        return Training(
            name=self.name,
            title=title,
            about=about,
            claims=self.claims(),
            published=self.published,
            runs=self.runs,
            collect=collect,
            draw=self.draw,
            caption=(
                "Validation error against the time of training, a line for each network at its best rate: the lower a "
                "line at a given time, the better its network for that time."
            ),
            tables=self.tables,
            shows=self.shows,
            candidate=network_of,
        )

    def tables(self, seeds: Sequence[Results]) -> list[Table]:
        """The networks, the best at equal time first; those that failed with a seed come last, the fewer first."""
        names = [name for name in self.networks if name in seeds[0]]
        at_time = {name: Entry(_values(seeds, name, error_at_equal_time)) for name in names}
        rows = {}
        for name in sorted(names, key=lambda n: (at_time[n].failed, at_time[n].mean or 0.0)):
            published = [self.published[row] for row in self.networks[name].rows]
            rows[name] = [
                at_time[name],
                Entry(_values(seeds, name, lambda results, n: value_of(results, n, "valid_bpc"))),
                Entry(
                    _values(seeds, name, lambda results, n: value_of(results, n, "test_bpc")),
                    published[0] if len(published) == 1 else ", ".join(map(str, published)) or None,
                ),
                Entry([best_rate(seeds[0], name) or "none"]),
                Entry([f"{speed:,.0f}" if (speed := _speed(seeds, name)) else ""]),
            ]
        columns = ["validation at equal time", "validation, equal steps", "test, equal steps", "rate", "characters/s"]
        times = [time for seed in seeds if (time := equal_time(seed)) is not None]
        when = f"; equal time: {sum(times) / len(times):,.1f} s" if times else ""
        return [Table(f"Error (BPC){when}", columns, rows, compared=False)]

    def shows(self, seeds: Sequence[Results]) -> str:
        """Three sentences: our network's place at equal time, after equal steps, and by its pace.

        A network that failed with one seed has no place: its error with the others is that of the lucky ones.
        """
        at_time = self._ranked(seeds, error_at_equal_time)
        after_steps = self._ranked(seeds, lambda results, n: value_of(results, n, "valid_bpc"))
        paces = {name: speed for name in self.networks if (speed := _speed(seeds, name))}
        if self.ours not in at_time or self.ours not in after_steps or self.ours not in paces:
            return f"{self.ours} has no error with every seed."
        fastest = max(paces, key=lambda name: paces[name])

        def place(entries: Mapping[str, Entry]) -> str:
            alone = [name for name in entries if not self.networks[name].gates]
            best = next(iter(entries))
            first = f"; the lowest error is that of {best}, {entries[best].text()}" if best != self.ours else ""
            return (
                f"{self.ours} is number {[*entries].index(self.ours) + 1} of {len(entries)} networks with an error of "
                "every seed, and "
                f"{alone.index(self.ours) + 1} of the {len(alone)} without gates, at a validation error of "
                f"{entries[self.ours].text()} BPC{first}"
            )

        return (
            f"At equal time {place(at_time)}. After equal steps {place(after_steps)}. It trains on "
            f"{paces[self.ours]:,.0f} characters a second; the fastest, {fastest}, on {paces[fastest]:,.0f}."
        )

    def _ranked(self, seeds: Sequence[Results], error: Callable[[Results, str], float | str]) -> dict[str, Entry]:
        """The errors of those networks that have one with every seed, the lowest first."""
        entries = {name: Entry(_values(seeds, name, error)) for name in self.networks}
        reached = {name: entry for name, entry in entries.items() if not entry.failed}
        return dict(sorted(reached.items(), key=lambda item: item[1].mean or 0.0))

    def draw(self, seeds: Sequence[Results]) -> Figure:
        """The validation error against the time of training, a line for each network: the mean over the seeds.

        The legend has the networks in the order in which they end.
        """
        figure = Figure(figsize=(9, 5.5), layout="constrained")
        axes = figure.subplots()
        curves = {name: curve for name in self.networks if (curve := _mean_curve(seeds, name))}
        for place, name in enumerate(sorted(curves, key=lambda name: curves[name][-1][1], reverse=True)):
            look: dict[str, Any] = {
                "color": f"C{place % 10}",
                "linestyle": ("-", "--", ":")[place // 10],
                "linewidth": 1.1,
            }
            if name == self.ours:
                look = {"color": "black", "linewidth": 2.5, "zorder": 3}
            gates = "" if self.networks[name].gates else " (no gates)"
            axes.plot(*zip(*curves[name], strict=True), label=f"{name}{gates}", **look)
        axes.axvline(min((curve[-1][0] for curve in curves.values()), default=0.0), color="grey", linewidth=0.8)
        axes.set(xlabel="seconds of training, validation not counted; grey: equal time", ylabel="validation BPC")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))
        return figure

    def claims(self) -> list[Claim]:
        """On the place of our network at equal time: among all, and among those without gates."""
        rule = (
            "at the time at which the fastest network has made all its steps, the validation error of no other network"
            f"{{}} is below that of {self.ours}; not decided if one is too close to tell; margin: {BPC}"
        )
        return [
            Claim(
                f"first of all, {self.place}",
                f"At equal parameters and equal time no network of {self.place}, nor one of today, is ahead of the "
                "deep stack.",
                where=OURS,
                items=(self.name,),
                rule=rule.format(""),
                decide=self._first_among(lambda network: True),
            ),
            Claim(
                f"first without gates, {self.place}",
                f"At equal parameters and equal time no other network without gates, of {self.place} or of today, is "
                "ahead of the deep stack.",
                where=OURS,
                items=(self.name,),
                rule=rule.format(" without gates"),
                decide=self._first_among(lambda network: not network.gates),
            ),
        ]

    def _first_among(self, counts: Callable[[Network], bool]) -> Callable[[Evidence], Verdict]:
        """A rule: no network that counts is ahead of ours. Its reason lists all of them by their place."""

        def decide(e: Evidence) -> Verdict:
            margin = BPC.at(e.scale(self.name))
            own = self._entry(e, self.ours)
            if not own.numbers:
                raise MissingError(f"no run of {self.name} with {self.ours} has an error at equal time")
            entries = {
                n: self._entry(e, n) for n, network in self.networks.items() if counts(network) and n != self.ours
            }
            orders = {name: e.compare(own, entry, margin) for name, entry in entries.items()}
            words: dict[Order, str] = {
                "above": "ahead of it",
                "equal": "level",
                "unclear": "too close to tell",
                "below": "behind",
            }
            places = {
                word: ", ".join(f"{name} {entries[name].text()}" for name, place in orders.items() if place == order)
                for order, word in words.items()
            }
            reason = f"validation BPC of {self.ours} {own.text()}" + "".join(
                f"; {word}: {names}" for word, names in places.items() if names
            )
            if "above" in orders.values():
                return Verdict("not reproduced", reason)
            return Verdict("not decided" if "unclear" in orders.values() else "reproduced", reason)

        return decide

    def _entry(self, e: Evidence, name: str) -> Entry:
        if name not in e.seeds(self.name)[0]:
            raise MissingError(f"{self.name} has no runs of {name}")
        entry = e.entry_of(self.name, name, lambda results: error_at_equal_time(results, name))
        return replace(entry, quantity="validation BPC at equal time")


def network_of(run: str) -> str:
    """The network of a run, by its name."""
    return run.rpartition(": ")[0]


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """By network and rate: the errors at the end, the validation error by step, and the pace."""
    found: dict[str, dict[str, Any]] = {}
    for name, outcome in outcomes.items():
        network, _, rate = name.rpartition(": ")
        config, pace = outcome.config, seconds_of_a_step(outcome.metrics)
        looks = [(row["step"], min(errors)) for row in outcome.metrics if (errors := _errors(row))]
        found.setdefault(network, {})[rate] = {
            "valid_bpc": outcome.result["best_valid_bpc"]
            if outcome.converged
            else f"{DNC}: {outcome.result['reason']}",
            "test_bpc": outcome.result["test_bpc"] if outcome.converged else DNC,
            "looks": looks,
            "seconds_of_a_step": pace,
            "characters_per_second": None if pace is None else config["batch_size"] * config["window"] / pace,
        }
    return found


def _errors(row: Mapping[str, Any]) -> list[float]:
    """The validation errors of a line of metrics: of the weights, and of their average."""
    return [row[key] for key in ("valid_bpc", "averaged_valid_bpc") if isinstance(row.get(key), float)]


def seconds_of_a_step(metrics: Sequence[Mapping[str, Any]]) -> float | None:
    """The seconds of a training step: the median over the lines of the loss, each since the line before it.

    So neither validation nor a moment in which the machine was busy counts.
    """
    paces, step, seconds = [], 0, 0.0
    for row in metrics:
        if "train_bpc" in row and row["step"] > step:
            paces.append((row["seconds"] - seconds) / (row["step"] - step))
        step, seconds = row["step"], row["seconds"]
    return statistics.median(paces) if paces else None


def best_rate(results: Results, network: str) -> str | None:
    """The rate of lowest validation error at the end, of those that a seed has; None if none has converged."""
    errors = {rate: run["valid_bpc"] for rate, run in results.get(network, {}).items()}
    reached = {rate: error for rate, error in errors.items() if isinstance(error, float)}
    return min(reached, key=lambda rate: reached[rate], default=None)


def value_of(results: Results, network: str, key: str) -> float | str:
    """A value of a network's run at its best rate. Without one: not converged, and not repeated with other seeds."""
    rate = best_rate(results, network)
    value: float | str = DNC if rate is None else results[network][rate][key]
    return value


def equal_time(results: Results) -> float | None:
    """The seconds in which the fastest network has made all its steps; None if no network has."""
    runs = [results[network][rate] for network in results if (rate := best_rate(results, network))]
    return min((run["looks"][-1][0] * run["seconds_of_a_step"] for run in runs), default=None)


def error_at_equal_time(results: Results, network: str) -> float | str:
    """The validation error of a network at the time of :func:`equal_time`, on the line between two looks."""
    rate, time = best_rate(results, network), equal_time(results)
    if rate is None or time is None:
        return DNC
    run = results[network][rate]
    step = time / run["seconds_of_a_step"]
    looks = run["looks"]
    if step < looks[0][0]:
        return LATE
    for (before, high), (after, low) in itertools.pairwise(looks):
        if step < after:
            return float(high + (low - high) * (step - before) / (after - before))
    return float(looks[-1][1])


def _values(seeds: Sequence[Results], network: str, value: Callable[[Results, str], float | str]) -> list[float | str]:
    return [value(results, network) for results in seeds if network in results]


def _speed(seeds: Sequence[Results], network: str) -> float | None:
    """The characters a second at the best rate, by the fastest seed: the machine may have been busy in another."""
    speeds = _values(seeds, network, lambda results, n: value_of(results, n, "characters_per_second"))
    return max((speed for speed in speeds if isinstance(speed, float)), default=None)


def _mean_curve(seeds: Sequence[Results], network: str) -> list[tuple[float, float]]:
    """Seconds and validation error at each look, as means over the seeds that converge."""
    runs = [seed[network][rate] for seed in seeds if network in seed and (rate := best_rate(seed, network))]
    if not runs:
        return []
    pace = statistics.fmean(run["seconds_of_a_step"] for run in runs)
    return [
        (pace * looks[0][0], statistics.fmean(error for _, error in looks))
        for looks in zip(*(run["looks"] for run in runs), strict=False)
    ]
