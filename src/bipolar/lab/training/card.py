"""The card of a published run: what it is, its numbers, how it was made, and what it writes."""

import json
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from bipolar._tools.files import read_json
from bipolar.lab.training.config import RunConfig
from bipolar.lab.training.images import ImageConfig
from bipolar.lab.training.journal import duration
from bipolar.lab.training.runs import load_config, stored
from bipolar.lab.training.start import lineage
from bipolar.lab.training.text import TextConfig
from bipolar.lab.training.text.config import DropoutRates
from bipolar.models._load import OF_RUN, load
from bipolar.models._writer import Writer

#: The sample on a card.
PROMPT, LENGTH, TEMPERATURE, SEED = "the ", 400, 0.8, 1
#: Settings of the command and the machine, which do not change what a run computes.
OF_COMMAND = ("checkpoint_every", "log_every", "accelerator")


def card_of(directory: Path) -> str:
    """The card, in Markdown, from the files of a directory that ``bipolar export`` has written."""
    values = stored(directory)
    kind = TextConfig if values["task"] == "text" else ImageConfig
    config, model = load_config(kind, directory), load(directory)
    result = read_json(directory / "result.json")
    exported = result.pop("exported")
    parameters = sum(p.numel() for p in model.parameters())
    place = shlex.quote(directory.name if directory.is_absolute() else directory.as_posix())
    ways = [""]
    columns = {"by the run": result, f"by these weights ({exported['weights']})": exported}
    if "one_stream" in exported:
        columns["by these weights, in one stream"] = exported["one_stream"]
        ways.append(" --batch-size 1")
    if "dynamic" in exported:
        settings = exported["dynamic"]["settings"]
        rate, decay, segment = (settings[name] for name in ("lr", "decay", "segment"))
        columns[f"by dynamic evaluation, rate {rate}, decay {decay}"] = exported["dynamic"]
        ways.append(f" --dynamic {rate} --decay {decay} --segment {segment}")
    size = sum(path.stat().st_size for path in (directory / OF_RUN).iterdir()) / 1e6
    parts = [
        f"# {config.name}",
        f"`{type(model).__name__}` with {parameters:,} parameters, trained on `{config.data}`. All of this directory, "
        "this card too, was written by `bipolar export` from a run.",
        "## Numbers",
        _table({title: _numbers(values) for title, values in columns.items()}),
        f"The weights take {size:.1f} MB. This evaluates them, a line for each of their columns; `--data-dir` says "
        "where the data are:",
        _block("\n".join(f"bipolar eval {place} --data-dir data --split test{way}" for way in ways), "sh"),
        "## Recipe",
        *_recipe(values | {"step": result["step"], "seconds": result["seconds"]}, kind),
        "`config.json` has all settings, `metrics.jsonl` the course of the run.",
        "## Use",
        _block(f'import bipolar\n\nmodel = bipolar.load("{shlex.split(place)[0]}")', "python"),
    ]
    if isinstance(model, Writer):
        parts += ["## Sample", f"`{_command(place, model)}`:", _block(_sample(model))]
    return "\n\n".join(parts) + "\n"


def _numbers(values: dict[str, Any]) -> dict[str, str]:
    return {name: f"{v:.4f}" for name, v in values.items() if isinstance(v, float) and name not in ("seconds", "lr")}


def _table(columns: dict[str, dict[str, str]]) -> str:
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = [["", *columns], ["---", *("---" for _ in columns)]]
    rows += [[f"`{name}`", *(column.get(name, "") for column in columns.values())] for name in names]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _recipe(values: dict[str, Any], kind: type[RunConfig]) -> list[str]:
    """The command of a run, and before it those of the runs that it goes back to, each with its length.

    Of a run whose weights were exported in half precision, the next one starts from that export.
    """
    stages = [*lineage(values), values]
    directories = _apart([stage["config"]["start"] for stage in stages[1:]])
    parts = []
    for stage, start, out in zip(stages, [None, *directories], [*directories, None], strict=True):
        config = kind.from_json(stage["config"])
        if start is not None:
            config = kind.from_json(stage["config"] | {"start": start})
        halved = out is not None and _weights(stage) != "float32"
        run = f"{out}-run" if halved else out
        parts += [_block(training_command(config, run), "sh"), _made(stage)]
        if halved:
            parts += [
                f"The next one starts from these weights in {_weights(stage)}:",
                _block(shlex.join(["bipolar", "export", str(run), str(out), "--half"]), "sh"),
            ]
    if len(stages) > 1 and all("step" in stage and "seconds" in stage for stage in stages):
        steps, seconds = (sum(stage[name] for stage in stages) for name in ("step", "seconds"))
        parts.append(f"In {len(stages)} stages {steps:,} steps, {duration(seconds)}; each starts from the one before.")
    return parts


def _apart(names: list[str]) -> list[str]:
    """Names of directories, told apart by a number where they are the same."""
    return [name if name not in names[:i] else f"{name}-{i + 1}" for i, name in enumerate(names)]


def _made(stage: dict[str, Any]) -> str:
    """The length and the place of a run, and what its command does not say."""
    length = f"{stage['step']:,} steps in {duration(stage['seconds'])}, " if "step" in stage else "Not to its end, "
    sentences = [f"{length}on {stage['machine']}; commit {stage['commit']}."]
    sentences += [
        f"At step {more['step']:,} it was made longer, to {more['total']:,} steps."
        for more in stage.get("extended", [])
    ]
    return " ".join(sentences)


def _weights(stage: dict[str, Any]) -> str:
    """The type of the weights that a run left to the next one."""
    return str(stage.get("exported", {}).get("weights", "float32"))


def training_command(config: RunConfig, out: str | None = None) -> str:
    """The command that trains by a configuration, into a directory if another run starts from there."""
    data = [f"--data {shlex.quote(config.data)}"] if config.data != type(config)().data else []
    flags = _flags(config.to_json(), _usual(config)) + ([] if out is None else [f"--out {shlex.quote(out)}"])
    return " \\\n    ".join([f"bipolar train {config.task}", *data, *flags])


def _usual(config: RunConfig) -> dict[str, Any]:
    """The settings of a command without flags, but those whose defaults depend on flags, as these make them."""
    given, usual = config.to_json(), type(config)(data=config.data).to_json()
    of_run = [name for name in ("lr", "validate_every", "halve_from") if name in given]
    of_model = [rate.name for rate in fields(DropoutRates)] if isinstance(config, TextConfig) else []
    unset: dict[str, Any] = dict.fromkeys(of_run)
    if isinstance(config, TextConfig):
        without_rates: dict[str, Any] = dict.fromkeys(of_model)
        unset["model"] = replace(config.model, **without_rates)
    by_recipe = replace(config, **unset).to_json()
    usual |= {name: by_recipe[name] for name in of_run}
    usual["model"] |= {name: by_recipe["model"][name] for name in of_model}
    return usual


def _flags(given: dict[str, Any], usual: dict[str, Any], group: str = "") -> list[str]:
    """Settings that are not the usual ones, as flags; groups within the model, and beside it, have no name there."""
    found = []
    for name, value in given.items():
        if isinstance(value, dict):
            found += _flags(value, usual.get(name, {}), "model." if name == "model" else group)
        elif value != usual.get(name) and name not in OF_COMMAND:
            found.append(_flag(f"{group}{name}", value))
    return found


def _flag(name: str, value: Any) -> str:
    name = name.replace("_", "-")
    if isinstance(value, bool):
        group, _, last = name.rpartition(".")
        return f"--{name}" if value else f"--{group}{'.' if group else ''}no-{last}"
    return f"--{name} {' '.join(map(str, value)) if isinstance(value, list) else shlex.quote(str(value))}"


def _block(text: str, language: str = "text") -> str:
    return f"```{language}\n{text}\n```"


def _prompt(model: Writer) -> str:
    """The prompt, or the first symbol that a model knows, if it does not know the prompt's."""
    known = str(model.vocabulary)
    return PROMPT if set(PROMPT) <= set(known) else known[0]


def _command(place: str, model: Writer) -> str:
    return (
        f"bipolar sample {place} --prompt {json.dumps(_prompt(model))} --length {LENGTH} "
        f"--temperature {TEMPERATURE} --seed {SEED}"
    )


def _sample(model: Writer) -> str:
    prompt, generator = _prompt(model), torch.Generator().manual_seed(SEED)
    return prompt + model.generate(prompt, LENGTH, temperature=TEMPERATURE, generator=generator)
