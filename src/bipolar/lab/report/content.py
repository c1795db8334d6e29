"""What a report says, before it is a page."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bipolar.figures import as_svg
from bipolar.lab.paper import ITEMS
from bipolar.lab.paper.comparison import Table
from bipolar.lab.paper.experiment import SCALES, Item
from bipolar.lab.paper.reproduction import read_record
from bipolar.lab.paper.verdicts import OURS, Claim, Evidence, Verdict, results_of
from bipolar.lab.training.journal import duration


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
    def configuration(self) -> str:
        """That of every run, or of the computation."""
        own = self.record["results"].get("configuration")
        if isinstance(own, Mapping):
            return ", ".join(_flat(own))
        configs = {name: run["config"] for name, run in (self.record.get("runs") or {}).items()}
        return "\n".join(f"{name}: {_short(config)}" for name, config in configs.items())

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


def _short(config: Mapping[str, Any]) -> str:
    """A configuration in one line: what is not None or a default of no interest."""
    model = config.get("model", {})
    parts = {k: v for k, v in {**config, **model}.items() if k not in ("model", "machine") and v is not None}
    return ", ".join(f"{k} {v}" for k, v in parts.items() if v is not False)


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
