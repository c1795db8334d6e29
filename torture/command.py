"""The command: pieces one after another, progress, a summary; or one trial once more."""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.helpers.paths import ROOT
from torture.pieces import PIECES
from torture.summary import write_summary
from torture.trials import Piece, Tally, repeat, run

#: Seconds between two lines of progress.
QUIET = 20.0


def main(arguments: Sequence[str] | None = None) -> None:
    given = _parsed(arguments)
    chosen = [PIECES[name] for name in given.pieces or PIECES]
    if given.trial is not None:
        _once_more(chosen, given.seed, given.trial)
        return
    tallies: list[Tally] = []
    ends = time.monotonic() + 60 * given.minutes
    for place, piece in enumerate(chosen):
        share = piece.share / sum(other.share for other in chosen[place:])  # time that one leaves is for the others
        count = piece.count if given.trials is None else given.trials
        progress = _Progress(count)
        tallies.append(run(piece, given.seed, range(count), share * (ends - time.monotonic()), progress))
        progress.say(tallies[-1])
        write_summary(given.out, tallies, given.seed, given.minutes, chosen[place + 1 :])
    print(given.out)
    sys.exit(1 if any(tally.failures for tally in tallies) else 0)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m torture", description=__doc__)
    parser.add_argument("pieces", nargs="*", metavar="PIECE", help=f"{', '.join(PIECES)}; all by default")
    parser.add_argument("--seed", type=int, default=1, help="the seed of all trials; 1 by default")
    parser.add_argument("--minutes", type=float, default=60.0, help="the time for all pieces together; 60 by default")
    parser.add_argument("--trials", type=int, help="so many of each piece, instead of the whole number")
    parser.add_argument("--trial", type=int, help="repeat this trial of the one piece, in this process")
    parser.add_argument(
        "--out", type=Path, help="the summary to write; results/torture.md by default, if all pieces run in full"
    )
    given = parser.parse_args(arguments)
    if given.out is None:
        whole = not given.pieces and given.trials is None
        given.out = ROOT / ("results/torture.md" if whole else "build/torture.md")
    unknown = [name for name in given.pieces if name not in PIECES]
    if unknown:
        parser.error(f"{unknown[0]}: expected one of {', '.join(PIECES)}")
    if given.trial is not None and len(given.pieces) != 1:
        parser.error("--trial: name the one piece that it is a trial of")
    return given


def _once_more(chosen: Sequence[Piece], seed: int, number: int) -> None:
    with tempfile.TemporaryDirectory(prefix="torture-") as scratch:
        directory = Path(scratch) / "trial"
        directory.mkdir()
        print(repeat(chosen[0], seed, number, directory))


class _Progress:
    """Lines of progress, not too many."""

    def __init__(self, count: int) -> None:
        self.count, self.shown = count, time.monotonic()

    def __call__(self, tally: Tally) -> None:
        if time.monotonic() - self.shown > QUIET:
            self.shown = time.monotonic()
            self.say(tally)

    def say(self, tally: Tally) -> None:
        failed = f", {len(tally.failures)} failed" if tally.failures else ""
        print(f"{tally.piece.name}: {tally.tried} of {self.count} trials{failed}, {tally.seconds:.0f} s", flush=True)
