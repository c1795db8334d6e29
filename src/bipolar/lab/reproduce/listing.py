"""The list of items: titles, estimated times, progress, and claims."""

from bipolar._tools.table import text_table
from bipolar.lab.reproduce.cost import speed
from bipolar.lab.reproduce.item import Item, Training
from bipolar.lab.reproduce.records import read_record
from bipolar.lab.reproduce.reproduction import Reproduction
from bipolar.lab.reproduce.scales import SCALES, Scale
from bipolar.lab.training.journal import duration


def listing(work: Reproduction) -> str:
    """A table of the items, with their times at every scale."""
    rows = []
    for item in work.items:
        times = [_time(item, scale, work) for scale in SCALES]
        done = work.done(item) and read_record(work.out, item.name) is not None
        rows.append((item.name, item.title, *times, "done" if done else ""))
    note = "Times are for this machine, validation and searches not counted; runs that items share count in each."
    claims = [f"  {item.name}: {claim.text}" for item in work.items for claim in item.claims]
    table = text_table(["item", "what", *SCALES, f"in {work.out}"], rows)
    return "\n".join([table, note, "", "What is claimed about them:", *claims])


def _time(item: Item, scale: Scale, work: Reproduction) -> str:
    if not isinstance(item, Training):
        return "< 1 min"
    return duration(sum(speed().seconds(config, work.data_dir) for config in item.expected_runs(scale, work.seeds)))


def remaining(work: Reproduction) -> str:
    """The number of runs that are left, with those that wait for the first seed, and about how long they take."""
    trials = (*work.first_trials(), *work.other_trials(), *work.later_trials())
    left = {trial.directory: trial for trial in trials if not trial.done}
    seconds = sum(speed().seconds(trial.config, work.data_dir) for trial in left.values())
    return f"{len(left)} runs to go: about {duration(seconds)}"
