"""The ``bipolar`` command."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

try:
    import tyro

    from bipolar.lab.data import catalogue, data_directory
    from bipolar.lab.errors import UsageError
    from bipolar.lab.paper import ITEMS
    from bipolar.lab.report import write_markdown, write_report, write_verdicts
    from bipolar.lab.reproduce.executors import in_processes, on_ray, one_after_another
    from bipolar.lab.reproduce.listing import listing, remaining
    from bipolar.lab.reproduce.reproduction import Reproduction, record_again
    from bipolar.lab.reproduce.scales import Scale
    from bipolar.lab.sampling import sample as sample_from
    from bipolar.lab.training.config import Config
    from bipolar.lab.training.images import ImageConfig, evaluate_images, train_images
    from bipolar.lab.training.processes import is_chief
    from bipolar.lab.training.runs import stored
    from bipolar.lab.training.text import TextConfig, evaluate_text, load_model, train_text
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing == "bipolar":
        raise
    sys.exit(f"The bipolar command needs {missing}: pip install 'bipolar[lab]'")

if TYPE_CHECKING:
    Item: TypeAlias = str
else:
    Item = tyro.extras.literal_type_from_choices(ITEMS)

#: Workers at the scale quick, unless asked for: more would only take memory, for some dozens of short runs.
MOST_WORKERS = 8

app = tyro.extras.SubcommandApp()


@app.command
def reproduce(
    items: Annotated[tuple[Item, ...], tyro.conf.Positional] = (),
    *,
    scale: Scale = "quick",
    out: Path | None = None,
    data_dir: Path | None = None,
    seeds: int | None = None,
    workers: int | None = None,
    ray: bool = False,
    ray_address: str | None = None,
    list: bool = False,
) -> None:
    """Reproduce tables and figures of the paper, and print where they are.

    Args:
        items: The items to reproduce. Default: all.
        scale: quick (data that is in the packages, narrow networks), small (real data) or paper (as published).
        out: The directory to write to. Runs that are finished there are not repeated. Default: runs/ and the scale.
        data_dir: Where the data is. Default: the environment variable BIPOLAR_DATA, else ./data.
        seeds: Train with so many seeds. Default: what each item says, mostly 3, and 1 at the scale quick.
        workers: Train in so many processes on this machine. Default: at the scale quick one for each core, else 1.
        ray: Train on a Ray cluster, a local one unless there is an address.
        ray_address: The address of a Ray cluster.
        list: Only list the items, with what they show, what they cost here, and what is done.
    """
    out = out or Path("runs") / scale
    for name, value in (("seeds", seeds), ("workers", workers)):
        if value is not None and value < 1:
            raise UsageError(f"--{name} {value}: expected at least 1")
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out}: expected a directory, there is a file")
    chosen = [ITEMS[name] for name in items or ITEMS]
    work = Reproduction(chosen, scale, out, data_dir, seeds)
    if list:
        print(listing(work))
        return
    if workers is None:
        workers = min(os.cpu_count() or 1, MOST_WORKERS) if scale == "quick" else 1
    executor = (
        on_ray(ray_address) if ray or ray_address else one_after_another if workers == 1 else in_processes(workers)
    )
    if scale == "paper":
        print(f"{remaining(work)} on this machine, validation and searches not counted", flush=True)
    try:
        paths = work.run(executor)
    except OSError as error:
        sys.exit(f"--out {out}: {error.strerror or error}")
    for path in (*paths, *reversed(write_report(out))):  # the page, which people open, comes last
        print(path)


@app.command
def report(
    runs: Annotated[Path, tyro.conf.Positional], *, markdown: Path | None = None, verdicts: Path | None = None
) -> None:
    """Rebuild the report, and the pictures, on what bipolar reproduce has left in a directory, and print where it is.

    Args:
        runs: The directory, as --out of bipolar reproduce.
        markdown: Write a Markdown file there, instead of a page, with links to the pictures in the directory.
        verdicts: Write the verdicts alone there, as JSON, instead of a page.
    """
    if not runs.is_dir():
        raise UsageError(f"{runs}: {'expected a directory, this is a file' if runs.exists() else 'no such directory'}")
    record_again([*ITEMS.values()], runs)
    made = [] if markdown is None else [write_markdown(runs, markdown)]
    made += [] if verdicts is None else [write_verdicts(runs, verdicts)]
    for path in made or write_report(runs):
        print(path)


@app.command
def train() -> None:
    """Train a model, or go on with a run that was stopped: bipolar train text --help, bipolar train images --help."""
    sys.exit("bipolar train: what? Say bipolar train text or bipolar train images, and --help for the options")


train_app = tyro.extras.SubcommandApp()


@train_app.command
def text(config: Annotated[TextConfig, tyro.conf.arg(name="")]) -> None:
    """Train a character-level language model, by the paper's recipe."""
    _train(train_text, config)


@train_app.command
def images(config: Annotated[ImageConfig, tyro.conf.arg(name="")]) -> None:
    """Train a residual network on images, by the paper's recipe."""
    _train(train_images, config)


def _train(run: Callable[[Config], dict[str, Any]], config: Config) -> None:
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


@app.command(name="eval")
def evaluate(run: Annotated[Path, tyro.conf.Positional], *, split: str = "test", data_dir: Path | None = None) -> None:
    """Evaluate the best checkpoint of a run, of images the last.

    Args:
        run: The directory of the run.
        split: train, valid or test; of images train or test.
        data_dir: Where the data is.
    """
    evaluation = {"text": evaluate_text, "images": evaluate_images}[stored(run)["task"]]
    for name, value in evaluation(run, split, data_dir).items():
        print(f"{name} {value:.4f}")


@app.command
def sample(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    prompt: str = "the ",
    length: int = 500,
    temperature: float = 0.8,
    seed: int = 1,
) -> None:
    """Let a trained model write, character by character.

    Args:
        run: The directory of the run.
        prompt: The text that it continues.
        length: How many characters it writes.
        temperature: 1 for the model's own probabilities, less for likelier characters, 0 for the likeliest.
        seed: The seed of the choice.
    """
    symbols = sample_from(load_model(run), prompt, length, temperature, seed)
    print(prompt, end="", flush=True)
    for symbol in symbols:
        print(symbol, end="", flush=True)
    print()


@app.command
def data(*, data_dir: Path | None = None) -> None:
    """List the data sets: where they are, their size, symbols, and whether they are intact.

    Args:
        data_dir: Where the data is. Default: the environment variable BIPOLAR_DATA, else ./data.
    """
    print(catalogue.table(data_directory(data_dir)))


def main(args: Sequence[str] | None = None) -> None:
    args = list(sys.argv[1:] if args is None else args)
    description = "The laboratory of bipolar activation functions."
    try:
        if args[:1] == ["train"] and len(args) > 1:
            train_app.cli(prog="bipolar train", description=description, args=args[1:])
        else:
            app.cli(prog="bipolar", description=description, args=args)
    except UsageError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
