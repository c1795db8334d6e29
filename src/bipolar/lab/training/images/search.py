"""The paper's search for a learning rate."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from bipolar._tools.files import read_json, write_json
from bipolar.lab.errors import UsageError
from bipolar.lab.provenance import provenance
from bipolar.lab.training.config import described
from bipolar.lab.training.guard import is_slow
from bipolar.lab.training.images.config import ImageConfig
from bipolar.lab.training.images.task import image_task
from bipolar.lab.training.loop import train
from bipolar.lab.training.processes import is_chief
from bipolar.lab.training.runs import length_of, prepared, stored
from bipolar.models._load import OF_RUN

#: How often a search halves the rate before it gives up.
HALVINGS = 12


def search(config: ImageConfig, show: bool) -> dict[str, Any]:
    """Starts again with half the rate whenever training diverges. Each attempt is a run of its own in the directory.

    An attempt that is slow ends the search: a lower rate would not make it faster.
    """
    out = config.directory
    if (out / "config.json").exists():
        if length_of(stored(out)) != length_of(described(config)):
            raise UsageError(f"{out}: a search; its runs become longer one by one, with --resume {out / 'lr-...'}")
    elif is_chief():
        image_task(config)  # both may refuse the configuration, before anything is written
        config.machine.fabric()
        write_json(out / "config.json", {**described(config), **provenance()})
    attempts: list[dict[str, Any]] = []
    result: dict[str, Any] = {}
    for halvings in range(HALVINGS + 1):
        rate = config.peak / 2**halvings
        attempt = dataclasses.replace(config, lr=rate, search=False, out=out / f"lr-{rate:g}")
        path = attempt.directory / "result.json"
        if path.exists():
            result = read_json(path)
        else:
            task = image_task(attempt)
            # a run that is shorter than the patience is judged at its end
            patience = min(config.patience, config.length.total(task.steps_per_epoch))
            result = train(prepared(dataclasses.replace(attempt, patience=patience)), task, show=show, **task.about)
        if result["status"] == "stopped":
            return result
        attempts.append({"lr": rate, **{k: result[k] for k in ("status", "reason", "step", "seconds") if k in result}})
        if result["status"] == "finished" or is_slow(result["reason"]):
            break
    seconds = round(sum(attempt.get("seconds", 0.0) for attempt in attempts), 1)
    result |= {"lr": rate, "run": f"lr-{rate:g}", "attempts": attempts, "seconds": seconds}
    if is_chief():
        if (out / result["run"] / OF_RUN).exists():
            shutil.copytree(out / result["run"] / OF_RUN, out / OF_RUN, dirs_exist_ok=True)
        write_json(out / "result.json", result)
    return result


def found_in(run: Path) -> Path:
    """The directory of the last attempt, if ``run`` is a search that has ended; else ``run`` itself."""
    path = run / "result.json"
    try:
        name = str(read_json(path).get("run", "")) if path.exists() else ""
    except (ValueError, AttributeError) as error:
        raise UsageError(f"{path}: not as it was written ({error})") from None
    if name != Path(name).name:
        raise UsageError(f"{path}: expected the name of a directory in {run}, got {name!r}")
    return run / name
