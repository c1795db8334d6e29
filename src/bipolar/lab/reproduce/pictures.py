"""Pictures of items, as files beside their records."""

from collections.abc import Sequence
from pathlib import Path

from bipolar._tools.figures import save_all
from bipolar.lab.reproduce.item import Item
from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.records import record_path


def picture_path(directory: Path, item: str, suffix: str = "svg") -> Path:
    return directory / f"{item}.{suffix}"


def draw(item: Item, results: Sequence[Results], directory: Path) -> None:
    """Draws an item from the results of each seed, as SVG and PNG, if it has a picture."""
    if item.draw is not None:
        save_all(item.draw(results), directory / item.name)


def current_picture(item: Item, results: Sequence[Results], directory: Path) -> Path | None:
    """The SVG file of an item, drawn here only if it is missing or older than the record."""
    if item.draw is None:
        return None
    picture, record = picture_path(directory, item.name), record_path(directory, item.name)
    if not picture.exists() or picture.stat().st_mtime_ns < record.stat().st_mtime_ns:
        draw(item, results, directory)
    return picture
