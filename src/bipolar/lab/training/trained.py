"""The trained weights of a run: those of its checkpoints, or of the model that is left where there are none."""

from pathlib import Path

from torch import Tensor

from bipolar.lab.training.checkpoints import best_of, weights_of
from bipolar.models._hub import WEIGHTS
from bipolar.models._load import OF_RUN


def trained_weights(run: Path) -> dict[str, Tensor]:
    """The weights of a run's best validation so far, of images the last; half precision becomes single."""
    model = run / OF_RUN / WEIGHTS
    if any((run / "checkpoints").glob("*.pt")) or not model.exists():
        return weights_of(best_of(run))
    from safetensors.torch import load_file

    weights: dict[str, Tensor] = load_file(model)
    return {name: value.float() if value.is_floating_point() else value for name, value in weights.items()}
