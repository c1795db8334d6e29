"""The trained weights of a run: those of its checkpoints, or of the model that is left where there are none."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from bipolar.lab.errors import UsageError
from bipolar.lab.training.checkpoints import Checkpoints, best_of, weights_of
from bipolar.models._hub import WEIGHTS
from bipolar.models._load import OF_RUN, read_weights


def trained_weights(run: Path) -> dict[str, Tensor]:
    """The weights of a run's best validation so far, of images the last; half precision becomes single."""
    model = run / OF_RUN / WEIGHTS
    if Checkpoints(run / "checkpoints").any or not model.exists():
        return weights_of(best_of(run))
    try:
        weights = read_weights(model)
    except ValueError as error:
        raise UsageError(str(error).removeprefix("directory: ")) from None
    return {name: value.float() if value.is_floating_point() else value for name, value in weights.items()}


@contextmanager
def as_written(run: Path) -> Iterator[None]:
    """Turns the errors of a model that no configuration of ours makes, or of weights of another, into words."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError(f"{run}: its configuration and its weights are not those of one model ({first})") from None
