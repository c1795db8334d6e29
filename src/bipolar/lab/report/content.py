"""What a report says, before it is a page."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

from bipolar.lab.paper.claims import CLAIMS
from bipolar.lab.paper.comparison import Table
from bipolar.lab.paper.experiment import SCALES, Item, Results
from bipolar.lab.paper.reproduction import read_record
from bipolar.lab.paper.verdicts import Claim, Evidence, Verdict
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
    tables: Sequence[Table]
    #: the picture as SVG, if there is one
    svg: bytes | None

    @property
    def svg_address(self) -> str:
        """The picture as an address of its own: in an ``img`` nothing in it can run."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg or b"").decode()

    @property
    def facts(self) -> dict[str, str]:
        """Where it comes from."""
        seeds = self.record.get("by_seed") or {}
        facts = {
            "scale": str(self.record.get("scale")),
            "duration": duration(float(self.record.get("seconds") or 0.0)),
            "runs": str(len(self.record.get("runs") or {})),
            "seeds": str(max(len(seeds), 1)),
            "commit": str(self.record.get("commit")),
            "machine": str(self.record.get("machine")),
        }
        return facts if self.record.get("complete") else {"state": "not complete"} | facts

    @property
    def configuration(self) -> str:
        """What the runs have in common, and in what they differ."""
        configs = {name: run["config"] for name, run in (self.record.get("runs") or {}).items()}
        return "\n".join(f"{name}: {_short(config)}" for name, config in configs.items())

    @property
    def next_scale(self) -> str | None:
        """The command for the next scale."""
        place = SCALES.index(self.record["scale"])
        return f"bipolar reproduce {self.item.name} --scale {SCALES[place + 1]}" if place + 1 < len(SCALES) else None


def _short(config: Mapping[str, Any]) -> str:
    """A configuration in one line: what is not None or a default of no interest."""
    model = config.get("model", {})
    parts = {k: v for k, v in {**config, **model}.items() if k not in ("model", "machine") and v is not None}
    return ", ".join(f"{k} {v}" for k, v in parts.items() if v is not False)


def results_of(record: Mapping[str, Any]) -> list[Results]:
    """The results of each seed."""
    by_seed = record.get("by_seed")
    return list(by_seed.values()) if by_seed else [record["results"]]


def read_records(directory: Path, items: Mapping[str, Item]) -> dict[str, Mapping[str, Any]]:
    """The records of items in a directory."""
    return {name: record for name in items if (record := read_record(directory / f"{name}.json")) is not None}


def read_sections(directory: Path, items: Mapping[str, Item]) -> list[Section]:
    """A section for each item that has a record in a directory."""
    records = read_records(directory, items)
    evidence = Evidence(records)
    return [
        Section(
            item,
            records[name],
            [Decided(claim, claim.verdict(evidence)) for claim in CLAIMS if claim.items[0] == name],
            item.tables(results_of(records[name])) if item.tables else (),
            _svg(item, results_of(records[name])),
        )
        for name, item in items.items()
        if name in records
    ]


def verdicts(directory: Path, items: Mapping[str, Item]) -> list[Decided]:
    """The claims about some items, decided by the records in a directory."""
    evidence = Evidence(read_records(directory, items))
    return [Decided(claim, claim.verdict(evidence)) for claim in CLAIMS if set(claim.items) <= set(items)]


def _svg(item: Item, results: Sequence[Results]) -> bytes | None:
    if item.draw is None:
        return None
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": item.name}):  # the same bytes for the same picture
        item.draw(results).savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
