"""What there is to reproduce: what it shows, what it costs here, and what is done."""

from bipolar._tools.table import text_table
from bipolar.lab.reproduce.cost import calibration
from bipolar.lab.reproduce.item import SCALES, Item, Scale, Training
from bipolar.lab.reproduce.reproduction import Reproduction, read_record
from bipolar.lab.training.journal import duration


def listing(work: Reproduction) -> str:
    """A table of the items, with their costs at every scale."""
    rows = []
    for item in work.items:
        costs = [_cost(item, scale, work) for scale in SCALES]
        done = work.done(item) and read_record(work.out / f"{item.name}.json") is not None
        rows.append((item.name, item.title, *costs, "done" if done else ""))
    note = "Times are for this machine, validation and searches not counted; runs that items share count in each."
    claims = [f"  {item.name}: {claim.text}" for item in work.items for claim in item.claims]
    table = text_table(["item", "what", *SCALES, f"in {work.out}"], rows)
    return "\n".join([table, note, "", "What is claimed about them:", *claims])


def _cost(item: Item, scale: Scale, work: Reproduction) -> str:
    if not isinstance(item, Training):
        return "< 1 min"
    seeds = item.seeds[scale] if work.seeds is None else work.seeds
    return duration(seeds * sum(calibration().seconds(c, work.data_dir) for c in item.runs(scale).values()))


def remaining(work: Reproduction) -> str:
    """How much is left to do."""
    left = {trial.directory: trial for trial in (*work.first_trials(), *work.other_trials()) if not trial.done}
    seconds = sum(calibration().seconds(trial.config, work.data_dir) for trial in left.values())
    return f"{len(left)} runs to go: about {duration(seconds)}"
