"""The ``bipolar`` command.

Each command imports what it needs when it runs, so that help and errors come at once.
"""

import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias


def _without(error: ModuleNotFoundError) -> NoReturn:
    """Names the extra that a missing package belongs to."""
    missing = (error.name or "").partition(".")[0]
    if missing == "bipolar":
        raise error
    sys.exit(f"The bipolar command needs {missing}: pip install 'bipolar[lab]'" if missing else str(error))


try:
    import tyro

    from bipolar import __version__
    from bipolar.lab.errors import UsageError
    from bipolar.lab.reproduce.scales import Scale
    from bipolar.lab.training.config import Config
    from bipolar.lab.training.flags import FloatFlag, IntFlag, PathFlag, TextFlag
    from bipolar.lab.training.images.config import ImageConfig
    from bipolar.lab.training.runs import prepared, stored
    from bipolar.lab.training.text.config import TextConfig
except ModuleNotFoundError as error:
    _without(error)


def item_names() -> list[str]:
    """The names of all items: one file each, and those that others have added since."""
    files = (Path(__file__).parent / "paper").glob("[!_]*.py")
    added = sys.modules.get("bipolar.lab.paper")
    return sorted({path.stem for path in files} | set(added.ITEMS if added else ()))


if TYPE_CHECKING:
    Item: TypeAlias = str
else:
    Item = tyro.extras.literal_type_from_choices(item_names())

#: Workers at the scale quick, unless asked for: more would only take memory, for some dozens of short runs.
MOST_WORKERS = 8
#: The longest pause of bipolar watch, in seconds.
LONGEST = 3600.0
#: The exit code of a run that did not converge.
DIVERGED = 3

app = tyro.extras.SubcommandApp()


@app.command
def reproduce(
    items: Annotated[tuple[Item, ...], tyro.conf.arg(help_behavior_hint=""), tyro.conf.Positional] = (),
    *,
    scale: Scale = "quick",
    out: PathFlag = None,
    data_dir: PathFlag = None,
    seeds: IntFlag = None,
    workers: IntFlag = None,
    ray: bool = False,
    ray_address: TextFlag = None,
    list: bool = False,
) -> None:
    """Reproduce tables and figures of the paper, and print where they are.

    Args:
        items: The items to reproduce. table2 and table4 bring rivals2 and rivals4, which train the networks that they
            quote. Default: all.
        scale: quick (data that is in the packages, narrow networks), small (real data) or paper (as published).
        out: The directory to write to. Runs that it has are not repeated, nor those of a record whose runs are all
            configured as today. Default: runs/ and the scale.
        data_dir: Where the data is. Default: the environment variable BIPOLAR_DATA, else ./data.
        seeds: Train with so many seeds. Default: what each item says, mostly 3, and 1 at the scale quick.
        workers: Train in so many processes on this machine. Default: at the scale quick one for each core, else 1.
        ray: Train on a Ray cluster, a local one unless there is an address.
        ray_address: The address of a Ray cluster. Default: a local one.
        list: Only list the items, with what they show, what they cost here, and what is done.
    """
    out = out or Path("runs") / scale
    for name, value in (("seeds", seeds), ("workers", workers)):
        if value is not None and value < 1:
            raise UsageError(f"--{name} {value}: expected at least 1")
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out}: expected a directory, there is a file")

    from bipolar.lab.paper import chosen
    from bipolar.lab.report import write_report
    from bipolar.lab.reproduce.executors import in_processes, on_ray, one_after_another
    from bipolar.lab.reproduce.listing import listing, remaining
    from bipolar.lab.reproduce.reproduction import Reproduction

    work = Reproduction(chosen(items), scale, out, data_dir, seeds)
    if list:
        print(listing(work))
        return
    if workers is None:
        workers = min(os.cpu_count() or 1, MOST_WORKERS) if scale == "quick" else 1
    executor = (
        on_ray(ray_address) if ray or ray_address else one_after_another if workers == 1 else in_processes(workers)
    )
    if scale != "quick":
        print(f"{remaining(work)} on this machine, validation and searches not counted", flush=True)
    try:
        paths = work.run(executor)
    except OSError as error:
        sys.exit(f"--out {out}: {error.strerror or error}")
    for path in (*paths, *reversed(write_report(out))):  # the page, which people open, comes last
        print(path)


@app.command
def report(
    runs: Annotated[Path, tyro.conf.Positional], *, markdown: PathFlag = None, verdicts: PathFlag = None
) -> None:
    """Rebuild the report, and the pictures, on what bipolar reproduce has left in a directory, and print where it is.

    Args:
        runs: The directory, as --out of bipolar reproduce.
        markdown: Write a Markdown file there, instead of a page, with links to the pictures in the directory.
        verdicts: Write the verdicts alone there, as JSON, instead of a page.
    """
    if not runs.is_dir():
        raise UsageError(f"{runs}: {'expected a directory, this is a file' if runs.exists() else 'no such directory'}")

    from bipolar.lab.paper import ITEMS
    from bipolar.lab.report import write_markdown, write_report, write_verdicts
    from bipolar.lab.reproduce.reproduction import record_again

    record_again([*ITEMS.values()], runs)
    made = [] if markdown is None else [write_markdown(runs, markdown)]
    made += [] if verdicts is None else [write_verdicts(runs, verdicts)]
    for path in made or write_report(runs):
        print(path)


@app.command
def train() -> None:
    """Train a model, or go on with a run that was stopped: bipolar train text --help, bipolar train images --help."""


train_app = tyro.extras.SubcommandApp()


@train_app.command
def text(config: Annotated[TextConfig, tyro.conf.arg(name="")]) -> None:
    """Train a character-level language model, by the paper's recipe or a fast one. A run that does not converge exits
    with 3."""
    prepared(config)  # refuses what it can before anything takes time

    from bipolar.lab.training.text import train_text

    _train(train_text, config)


@train_app.command
def images(config: Annotated[ImageConfig, tyro.conf.arg(name="")]) -> None:
    """Train a network on images, by the paper's recipe or a fast one. A run that does not converge exits with 3."""
    prepared(config)  # refuses what it can before anything takes time

    from bipolar.lab.training.images import train_images

    _train(train_images, config)


def _train(run: Callable[[Config], dict[str, Any]], config: Config) -> None:
    from bipolar.lab.training.processes import is_chief

    out = config.resume or config.directory
    try:
        result = run(config)
    except OSError as error:
        sys.exit(f"{error.filename or out}: {error.strerror or error}. What was saved before is still there")
    if not is_chief():
        return
    if result["status"] == "stopped":
        print(f"--resume {out} goes on from here")
        return
    print(
        ", ".join(
            f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value}"
            for name, value in result.items()
            if not isinstance(value, list)
        )
    )
    print(f"The run is in {out}")
    if result["status"] != "finished":
        sys.exit(DIVERGED)


@app.command
def watch(runs: Annotated[Path, tyro.conf.Positional], *, once: bool = False, every: float = 1.0) -> None:
    """Watch training runs: steps, time left, the curve of the loss, learning rate and last validation. Ctrl-C ends it.

    Args:
        runs: The directory of a run, or of several, such as --out of bipolar reproduce.
        once: Print the state and end, as without a terminal.
        every: The seconds between two looks.
    """
    if not runs.is_dir():
        raise UsageError(f"{runs}: {'expected a directory, this is a file' if runs.exists() else 'no such directory'}")
    if not 0 < every <= LONGEST:
        raise UsageError(f"--every {every}: expected seconds, above 0 and {LONGEST:g} at most")

    from bipolar.lab.watch.places import runs_in

    if not runs_in(runs):
        raise UsageError(f"{runs}: there is no run of bipolar train here, nor in a directory below; --out says where")

    from bipolar.lab.watch.view import show

    show(runs, once=once, every=every)


@app.command(name="eval")
def evaluate(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    split: str = "test",
    data_dir: PathFlag = None,
    batch_size: IntFlag = None,
    dynamic: FloatFlag = None,
    decay: FloatFlag = None,
    segment: IntFlag = None,
    max_characters: IntFlag = None,
) -> None:
    """Evaluate the best checkpoint of a run, of images the last.

    Args:
        run: The directory of the run.
        split: train, valid or test; of images train or test.
        data_dir: Where the data is. Default: where it was, else the environment variable BIPOLAR_DATA, else ./data.
        batch_size: Read the whole text in so many streams, 1 as the field does. Default: as in training, in whole
            windows.
        dynamic: Dynamic evaluation, which goes on learning from the text after it has predicted it, in one stream, at
            this rate; choose it, from about 1e-5, and the decay on the validation part. Default: none.
        decay: The share of the way by which dynamic evaluation returns to the trained weights after every segment.
            Default: 0.02.
        segment: The characters after which dynamic evaluation learns. Default: 50.
        max_characters: Read only so many characters, the first, in one stream or by dynamic evaluation, whose rate can
            be chosen so in a part of the time. Default: all.
    """
    task = stored(run)["task"]
    settings = _dynamic_settings(dynamic, decay, segment)
    if task == "images" and not (batch_size is None and settings is None and max_characters is None):
        raise UsageError(
            "--batch-size, --dynamic, --max-characters: for runs on text; images do not depend on one another"
        )

    from bipolar.lab.training.images import evaluate_images
    from bipolar.lab.training.text import Dynamic, evaluate_text

    if task == "images":
        metrics = evaluate_images(run, split, data_dir)
    else:
        metrics = evaluate_text(
            run,
            split,
            data_dir,
            batch_size=batch_size,
            dynamic=None if settings is None else Dynamic(**settings),
            max_characters=max_characters,
            show=True,
        )
    for name, value in metrics.items():
        print(f"{name} {value:.4f}")


def _dynamic_settings(lr: float | None, decay: float | None, segment: int | None) -> dict[str, Any] | None:
    """The flags of dynamic evaluation that are given, by the names of its settings, or None without it."""
    for name, value, least in (("dynamic", lr, 0), ("decay", decay, 0), ("segment", segment, 1)):
        if value is not None and not least <= value < math.inf:
            raise UsageError(f"--{name} {value}: expected {least} or more")
        if value is not None and lr is None:
            raise UsageError(f"--{name} {value}: a setting of dynamic evaluation; add --dynamic")
    given = {"lr": lr, "decay": decay, "segment": segment}
    return None if lr is None else {name: value for name, value in given.items() if value is not None}


@app.command
def sample(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    prompt: str = "the ",
    length: int = 500,
    temperature: float = 0.8,
    top_k: IntFlag = None,
    seed: int = 1,
) -> None:
    """Let a trained model write, character by character.

    Args:
        run: The directory of the run.
        prompt: The text that it continues.
        length: How many characters it writes.
        temperature: 1 for the model's own probabilities, less for likelier characters, 0 for the likeliest.
        top_k: Draw from so many of the likeliest characters only. Default: from all.
        seed: The seed of the choice.
    """
    if not 0 <= seed < 2**63:
        raise UsageError(f"--seed {seed}: expected 0 to 2**63 - 1")
    stored(run)

    import torch

    from bipolar.lab.training.text import load_model

    generator = torch.Generator().manual_seed(seed)
    try:
        symbols = load_model(run).stream(prompt, length, temperature=temperature, top_k=top_k, generator=generator)
    except ValueError as error:
        argument, _, problem = str(error).partition(": ")
        raise UsageError(f"--{argument.replace('_', '-')}: {problem}") from None
    print(prompt, end="", flush=True)
    for symbol in symbols:
        print(symbol, end="", flush=True)
    print()


@app.command
def export(
    run: Annotated[Path, tyro.conf.Positional],
    directory: Annotated[Path, tyro.conf.Positional],
    *,
    half: bool = False,
    one_stream: bool = False,
    dynamic: FloatFlag = None,
    decay: FloatFlag = None,
    segment: IntFlag = None,
    data_dir: PathFlag = None,
) -> None:
    """Write what a run has found into a directory to keep or to share: configuration, metrics, result, weights, and a
    card. bipolar eval, bipolar sample and bipolar.load read it.

    Args:
        run: The directory of the run.
        directory: The directory to write.
        half: Write the weights in half precision.
        one_stream: Evaluate a text model on the whole of each part in one stream, too, as the field does. This takes
            minutes.
        dynamic: Evaluate a text model by dynamic evaluation, too, at this rate. This takes the longest.
        decay: As of bipolar eval.
        segment: As of bipolar eval.
        data_dir: Where the data is, on which the written weights are evaluated. Default: where it was, else the
            environment variable BIPOLAR_DATA, else ./data.
    """
    stored(run)
    settings = _dynamic_settings(dynamic, decay, segment)

    from bipolar.lab.training.publication import publish
    from bipolar.lab.training.text import Dynamic

    learning = None if settings is None else Dynamic(**settings)
    print(publish(run, directory, half=half, one_stream=one_stream, dynamic=learning, data_dir=data_dir))


@app.command
def data(*, data_dir: PathFlag = None) -> None:
    """List the data sets: where they are, their size, symbols, and whether they are intact.

    Args:
        data_dir: Where the data is. Default: the environment variable BIPOLAR_DATA, else ./data.
    """
    from bipolar.lab.data import catalogue, data_directory

    print(catalogue.table(data_directory(data_dir)))


def main(args: Sequence[str] | None = None) -> None:
    args = list(sys.argv[1:] if args is None else args)
    description = "The laboratory of bipolar activation functions. bipolar --version prints the version."
    if args == ["--version"]:
        print(f"bipolar {__version__}")
        return
    if args in ([], ["train"]):
        args = [*args, "--help"]
    try:
        if args[0] == "train":
            train_app.cli(prog="bipolar train", description=train.__doc__, args=args[1:])
        else:
            app.cli(prog="bipolar", description=description, args=args)
    except UsageError as error:
        sys.exit(str(error))
    except ModuleNotFoundError as error:
        _without(error)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full disk, a directory without permission
        sys.exit(f"{error.filename or 'bipolar'}: {error.strerror or error}")
