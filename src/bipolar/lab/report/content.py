"""What a report says, before it is a page."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bipolar._tools.figures import as_svg
from bipolar.lab.paper import ITEMS
from bipolar.lab.reproduce.comparison import Table
from bipolar.lab.reproduce.item import SCALES, Item
from bipolar.lab.reproduce.reproduction import read_record
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, Verdict, results_of
from bipolar.lab.training.journal import duration

#: Of a run's configuration: the first is taken apart, the others say nothing about the result or stand elsewhere.
NOT_SHOWN = ("model", "machine", "seed", "split", "checkpoint_every", "log_every")


@dataclass(frozen=True)
class Decided:
    """A claim with its verdict."""

    claim: Claim
    verdict: Verdict


@dataclass(frozen=True)
class Section:
    """All about one item."""

    item: Item
    record: Mapping[str, Any]
    claims: Sequence[Decided]

    @property
    def tables(self) -> Sequence[Table]:
        return self.item.tables(results_of(self.record)) if self.item.tables else ()

    @property
    def picture(self) -> str | None:
        """The picture as an address of its own, if there is one: in an ``img`` nothing in it can run."""
        if self.item.draw is None:
            return None
        svg = as_svg(self.item.draw(results_of(self.record)), self.item.name)
        return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()

    @property
    def facts(self) -> dict[str, str]:
        """Where it comes from."""
        seeds, runs = self.record.get("by_seed") or {}, self.record.get("runs") or {}

        def origin(key: str) -> str:  # of the runs, not of the moment at which they were read
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
        """What the paper says, where no table says it."""
        if not self.item.published or any(table.has_published for table in self.tables):
            return ""
        return "; ".join(_flat(self.item.published))

    @property
    def seen(self) -> str:
        """What the picture shows, for those who do not see it."""
        return ". ".join([self.item.title, *(d.verdict.reason for d in self.claims)])

    @property
    def next_scale(self) -> str | None:
        """The command for the next scale, if the command knows the item."""
        place = SCALES.index(self.record["scale"])
        if self.item.name not in ITEMS:
            return None
        return f"bipolar reproduce {self.item.name} --scale {SCALES[place + 1]}" if place + 1 < len(SCALES) else None


def _flat(values: Mapping[str, Any], *path: str) -> list[str]:
    """Nested values, a line for each."""
    found = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(value, *path, name)
        else:
            label = ", ".join(p for p in (*path, name) if p != "claim")
            found.append(f"{label}: {value}" if label else str(value))
    return found


def _configuration(configs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What all runs have in common, and the values of what they have not."""
    flat = [{**config, **config.get("model", {})} for config in configs]
    keys = [key for key in dict.fromkeys(k for c in flat for k in c) if key not in NOT_SHOWN]
    values = {key: list(dict.fromkeys(str(c.get(key)) for c in flat)) for key in keys}
    settings = {key: " / ".join(found) for key, found in values.items() if found not in (["None"], ["False"])}

    def listed(several: bool) -> str:
        chosen = [key for key in settings if (len(values[key]) > 1) is several]
        return ", ".join(f"{key.replace('_', ' ')} {settings[key]}" for key in chosen)

    found = {"configuration": listed(several=False), "by run": listed(several=True)}
    return {name: text for name, text in found.items() if text}


def read(directory: Path, items: Mapping[str, Item]) -> tuple[list[Section], list[Decided]]:
    """A section for each item that has a record in a directory; and the claims about the items, decided by them."""
    records = {name: record for name in items if (record := read_record(directory / f"{name}.json")) is not None}
    evidence = Evidence(records)
    decided = [Decided(claim, claim.verdict(evidence)) for item in items.values() for claim in item.claims]
    decided.sort(key=lambda d: d.claim.where == OURS)  # the paper's first
    sections = [
        Section(items[name], record, [d for d in decided if d.claim.items[0] == name])
        for name, record in records.items()
    ]
    return sections, decided
