"""The summary in Markdown: what was tried, how often, what failed and how to repeat it, what was found before."""

from collections.abc import Sequence
from pathlib import Path

from bipolar._tools.files import replacing
from bipolar.lab.provenance import provenance
from torture.trials import Piece, Tally

#: What torture has found so far, written by hand.
FOUND = Path(__file__).with_name("found.md")


def write_summary(path: Path, tallies: Sequence[Tally], seed: int, minutes: float, missing: Sequence[Piece]) -> None:
    """Writes the summary of the trials so far, whole or not at all."""
    with replacing(path) as part:
        part.write_text(summary(tallies, seed, minutes, missing), encoding="utf-8")


def summary(tallies: Sequence[Tally], seed: int, minutes: float, missing: Sequence[Piece] = ()) -> str:
    origin = provenance()
    failures = sum(len(tally.failures) for tally in tallies)
    tried = sum(tally.tried for tally in tallies)
    parts = [
        "# Torture",
        f"`make torture SEED={seed} MINUTES={minutes:g}` writes this file. {tried:,} trials, {failures or 'none'} "
        "failed.",
        f"Commit {origin['commit']}; {origin['machine']}.",
        _table(tallies, missing),
        *(_section(tally, seed) for tally in tallies),
        FOUND.read_text(encoding="utf-8").strip(),
    ]
    return "\n\n".join(parts) + "\n"


def _table(tallies: Sequence[Tally], missing: Sequence[Piece]) -> str:
    rows = [
        f"| {tally.piece.name} | {tally.tried:,} | {tally.piece.count:,} | {len(tally.failures)} | "
        f"{tally.seconds / 60:.1f} |"
        for tally in tallies
    ]
    rows += [f"| {piece.name} | not run | {piece.count:,} | | |" for piece in missing]
    return "\n".join(["| piece | tried | of | failed | minutes |", "| --- | ---: | ---: | ---: | ---: |", *rows])


def _section(tally: Tally, seed: int) -> str:
    lines = [f"## {tally.piece.name.capitalize()}", "", tally.piece.about, ""]
    lines += [f"- {count:,} × {outcome}" for outcome, count in sorted(tally.outcomes.items())]
    for kind, failures in tally.by_kind().items():
        first = failures[0]
        command = f"python -m torture {tally.piece.name} --seed {seed} --trial {first.number}"
        lines.append(f"- **{len(failures):,} × failed**: {_plain(kind)}. Again: `{command}`")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """A message without marks that Markdown or HTML would read."""
    return text.replace("|", "/").replace("`", "'").replace("<", "&lt;").replace("\n", " ")
