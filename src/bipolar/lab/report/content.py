"""The content of a report, the same for every format."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from bipolar.lab.errors import UsageError
from bipolar.lab.paper import ITEMS
from bipolar.lab.report.data_used import other_data
from bipolar.lab.report.recorded import Recorded, recorded
from bipolar.lab.report.remedy import with_remedy
from bipolar.lab.reproduce.item import Item
from bipolar.lab.reproduce.records import as_recorded, read_record, record_path, results_of
from bipolar.lab.reproduce.scales import ABOUT_SCALES, SCALES, Scale
from bipolar.lab.reproduce.tables import Table
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, Status, Verdict
from bipolar.lab.training.images.config import options_of_others
from bipolar.lab.training.journal import duration

PAPER = "Shifting Mean Activation Towards Zero with Bipolar Activation Functions"
ADDRESS = "https://arxiv.org/abs/1709.04054"
#: Paragraphs for readers who do not know the paper; each format puts a link in place of ``{paper}``.
INTRODUCTION = (
    "Eidnes & Nøkland, {paper}, 2018, flip an activation function on every second unit of a layer: f(x) on one, -f(-x) "
    "on the next. The mean of the layer's output then moves to zero by itself. With it they train recurrent networks "
    "of up to 144 layers without gates, and residual networks without batch norm, where, they report, the plain "
    "activations diverge or need far lower learning rates.",
    "Three things to know when reading on. As long as everything between its activations commutes with signs, a "
    "bipolar network is a plain one with some weights' signs flipped, and trains as that does; what bipolarity then "
    "changes is what the initialisation (LSUV) measures, not what the network can learn. In the code released with the "
    "paper a skip connection is added in place, which changes the gradient of ELU and not that of BELU; that is a "
    "reading of public code and a simulation, not a proof of what happened. And a verdict below the paper's scale is "
    "one about smaller networks and shorter runs.",
)
#: The title of the verdicts that come with the package.
RECORDED = "recorded at the scale small"
STATUSES: tuple[Status, ...] = ("reproduced", "not reproduced", "not decided")
#: Parts of a run's configuration without a place in a section: the model is shown part by part, the rest does not
#: change results or stands elsewhere.
NOT_SHOWN = ("model", "machine", "seed", "split", "checkpoint_every", "log_every")


@dataclass(frozen=True)
class Decided:
    """A claim with its verdict."""

    claim: Claim
    verdict: Verdict
    #: the verdict of the records that come with the package, in a report on other runs
    recorded: Recorded | None = None


@dataclass(frozen=True)
class Section:
    """The part of a report about one item."""

    item: Item
    record: Mapping[str, Any]
    claims: Sequence[Decided]

    @cached_property
    def tables(self) -> Sequence[Table]:
        """The tables of the item; without a difference to published numbers where the data are others."""
        made = self.item.tables(results_of(self.record)) if self.item.tables else ()
        return [replace(table, compared=False) for table in made] if self.other_data else made

    @property
    def shows(self) -> str:
        """What the results show, in sentences."""
        return self.item.shows(results_of(self.record)) if self.item.shows else ""

    @cached_property
    def other_data(self) -> str:
        """The data of the runs, if they are not the paper's."""
        return other_data(self.item, self.record)

    @property
    def title(self) -> str:
        """The title of the item, with the data of the runs if they are not the paper's."""
        return f"{self.item.title}, here on {self.other_data}" if self.other_data else self.item.title

    @property
    def facts(self) -> dict[str, str]:
        """The origin of the results: scale, duration, commit, machine and configuration."""
        seeds, runs = self.record.get("by_seed") or {}, self.record.get("runs") or {}

        def origin(key: str) -> str:  # of the runs; the record itself may have been written later
            return ", ".join(sorted({str(run.get(key)) for run in (runs or {"": self.record}).values()}))

        facts = {
            "scale": str(self.record.get("scale")),
            "duration": duration(float(self.record.get("seconds") or 0.0)),
            **({"runs": str(len(runs)), "seeds": str(max(len(seeds), 1))} if runs else {}),
            "commit": origin("commit"),
            "machine": origin("machine"),
            **_configuration([run["config"] for run in runs.values()] or [self.record.get("configuration") or {}]),
        }
        return facts if self.record.get("complete") else {"state": "not complete"} | facts

    @property
    def published(self) -> str:
        """The published values, unless a table shows them."""
        if not self.item.published or any(table.has_published for table in self.tables):
            return ""
        return "; ".join(_flat(self.item.published))

    @property
    def in_words(self) -> str:
        """The picture in words, for readers who cannot see it."""
        return ". ".join([self.title, *(d.verdict.reason for d in self.claims)])

    @property
    def next_scale(self) -> str | None:
        """The command for the next scale, if the item is one that the command knows."""
        place = SCALES.index(self.record["scale"])
        if self.item.name not in ITEMS:
            return None
        return f"bipolar reproduce {self.item.name} --scale {SCALES[place + 1]}" if place + 1 < len(SCALES) else None


@dataclass(frozen=True)
class Report:
    """Sections for the items that have records, and all claims about the items, the paper's first."""

    directory: Path
    sections: Sequence[Section]
    decided: Sequence[Decided]

    @property
    def scales(self) -> list[Scale]:
        found = {section.record["scale"] for section in self.sections}
        return [scale for scale in SCALES if scale in found]

    @property
    def about_scales(self) -> list[str]:
        about = [f"The scale {scale}: {ABOUT_SCALES[scale]}." for scale in self.scales]
        if self.has_recorded:
            about.append(
                f"Last in each line stands the verdict of earlier runs, which comes with the package, at the scale "
                f"small: {ABOUT_SCALES['small']}."
            )
        return about

    @property
    def has_recorded(self) -> bool:
        return any(d.recorded for d in self.decided)

    def count(self, which: Literal["here", "recorded"]) -> dict[str, int]:
        """The number of verdicts of each status, here or as recorded."""
        recorded = [d.recorded.verdict for d in self.decided if d.recorded]
        found = [d.verdict.status for d in self.decided] if which == "here" else recorded
        return {status: found.count(status) for status in STATUSES}

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The number of verdicts of each status, for each group of claims: here, and as recorded."""
        groups = {
            "the paper's claims": [d for d in self.decided if d.claim.where != OURS],
            "our own": [d for d in self.decided if d.claim.where == OURS],
        }
        found = {
            f"At the scale {', '.join(self.scales)}, {name}": [d.verdict.status for d in group]
            for name, group in groups.items()
            if group
        }
        if self.has_recorded:
            found |= {
                f"{RECORDED.capitalize()}, {name}": [d.recorded.verdict for d in group if d.recorded]
                for name, group in groups.items()
                if group
            }
        return {name: {status: verdicts.count(status) for status in STATUSES} for name, verdicts in found.items()}


def read(directory: Path, items: Iterable[Item], *, beside_recorded: bool = False) -> Report:
    """The report on the records in a directory.

    Args:
        directory: the directory
        items: the items to report on
        beside_recorded: whether to show the verdicts that come with the package beside those of any scale, unless they
            are the same. Those of a quick run always have them
    """
    known = {item.name: item for item in items}
    records = {name: record for name in known if (record := read_record(directory, name)) is not None}
    if not records:
        raise UsageError(f"{directory}: there is no result of bipolar reproduce here")
    evidence = Evidence(records)
    quick = all(record["scale"] == "quick" for record in records.values())
    decided = []
    for claim in (claim for item in known.values() for claim in item.claims):
        with as_recorded(*(record_path(directory, name) for name in claim.items)):
            verdict = claim.verdict(evidence)
        decided.append(Decided(claim, verdict if quick else with_remedy(claim, verdict, evidence)))
    if quick or (beside_recorded and any(_differs(d) for d in decided)):
        decided = [replace(d, recorded=recorded().get(d.claim.name)) for d in decided]
    decided.sort(key=lambda d: d.claim.where == OURS)
    sections = [
        Section(known[name], record, [d for d in decided if d.claim.items[0] == name])
        for name, record in records.items()
    ]
    return Report(directory, sections, decided)


def _differs(decided: Decided) -> bool:
    """Whether a claim has another verdict, or reason, than the one that comes with the package."""
    known = recorded().get(decided.claim.name)
    return known is None or (known.verdict, known.reason) != (decided.verdict.status, decided.verdict.reason)


def _flat(values: Mapping[str, Any], *path: str) -> list[str]:
    """Nested values, one text for each."""
    found = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(value, *path, name)
        else:
            label = ", ".join(p for p in (*path, name) if p != "claim")
            found.append(f"{label}: {value}" if label else str(value))
    return found


def _of_its_network(model: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a model without those that its network does not have."""
    others = options_of_others(model["network"]) if "network" in model else set[str]()
    return {name: value for name, value in model.items() if name not in others}


def _configuration(configs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The settings that all runs share, and the values of those in which they differ."""
    flat = [{**config, **_of_its_network(config.get("model", {}))} for config in configs]
    keys = [key for key in dict.fromkeys(k for c in flat for k in c) if key not in NOT_SHOWN]
    values = {key: list(dict.fromkeys(str(c.get(key)) for c in flat)) for key in keys}
    settings = {key: " / ".join(found) for key, found in values.items() if found not in (["None"], ["False"])}

    def listed(several: bool) -> str:
        chosen = [key for key in settings if (len(values[key]) > 1) is several]
        return ", ".join(f"{key.replace('_', ' ')} {settings[key]}" for key in chosen)

    found = {"configuration": listed(several=False), "by run": listed(several=True)}
    return {name: text for name, text in found.items() if text}
