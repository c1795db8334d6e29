"""The ``bipolar`` command."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

try:
    import tyro

    from bipolar.lab.paper import ITEMS
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing == "bipolar":
        raise
    sys.exit(f"The bipolar command needs {missing}: pip install 'bipolar[lab]'")

if TYPE_CHECKING:
    Item: TypeAlias = str
else:
    Item = tyro.extras.literal_type_from_choices(ITEMS)

app = tyro.extras.SubcommandApp()


@app.command
def reproduce(
    items: Annotated[tuple[Item, ...], tyro.conf.Positional] = (),
    *,
    out: Path = Path("runs"),
) -> None:
    """Reproduce figures and tables of the paper, and print where they are.

    Args:
        items: What to reproduce. Default: everything.
        out: The directory to write to.
    """
    for name in items or ITEMS:
        try:
            paths = ITEMS[name](out)
        except OSError as error:
            sys.exit(f"--out {out}: cannot write there: {error.strerror or error}")
        for path in paths:
            print(path)


def main(args: Sequence[str] | None = None) -> None:
    app.cli(prog="bipolar", description="The laboratory of bipolar activation functions.", args=args)
