"""Trained models, from directories of runs and of ``save_pretrained``."""

import inspect
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from torch import Tensor, nn

from bipolar._tools.files import read_json
from bipolar.models._char_rnn import CharRNN
from bipolar.models._conv_net import ConvNet
from bipolar.models._hub import CONFIG, WEIGHTS
from bipolar.models._oriented_response_net import OrientedResponseNet
from bipolar.models._wide_resnet import WideResNet

Model = TypeVar("Model", bound=nn.Module)

#: The classes that :func:`load` knows; the laboratory adds its own.
KINDS: list[type[nn.Module]] = [CharRNN, ConvNet, WideResNet, OrientedResponseNet]
#: The directory of a run that holds the files of its model.
OF_RUN = "model"


@overload
def load(directory: str | PathLike[str]) -> Any: ...
@overload
def load(directory: str | PathLike[str], kind: type[Model]) -> Model: ...
def load(directory: str | PathLike[str], kind: type[nn.Module] = nn.Module) -> Any:
    """The trained model in a directory, in evaluation mode, on the CPU.

    Args:
        directory: the directory of a run of ``bipolar train``, or one that ``save_pretrained`` wrote. A run has the
            model of its best validation so far; one on images, or without a validation yet, its last
        kind: the class that the model has to have, such as ``bipolar.models.CharRNN``, which also tells a type checker
            what comes back. Default: any of :mod:`bipolar.models`

    Examples::

        >>> directory = getfixture("tmp_path")
        >>> bipolar.models.CharRNN("abc ", hidden_size=8, num_layers=2).save_pretrained(directory)
        >>> model = bipolar.load(directory, bipolar.models.CharRNN)
        >>> len(model.generate("a", length=5))
        5
    """
    if not isinstance(directory, str | PathLike):
        raise TypeError(f"directory: expected a path, got {directory!r}")
    path = _of_model(Path(directory))
    try:
        config = read_json(path / CONFIG)
        found = _kind_of(set(config))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"directory: {path / CONFIG} does not describe a model ({error})") from None
    if not issubclass(found, kind):
        raise ValueError(f"directory: {path} has a {found.__name__}, not a {kind.__name__}")
    weights = read_weights(path / WEIGHTS)
    try:
        check_sizes(config, weights)
        with torch.random.fork_rng(devices=[]):
            model = found(**config)
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"directory: {path / CONFIG} does not describe a model ({error})") from None
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"directory: {path / WEIGHTS} has not the weights of {path / CONFIG} ({error})") from None
    return model.eval()


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, which cannot hold code; a ``ValueError`` for anything else."""
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ModuleNotFoundError:
        raise ModuleNotFoundError("load needs safetensors: pip install 'bipolar[hub]'") from None
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"directory: {path} is not a file of weights ({error})") from None


def check_sizes(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Refuses a configuration with a number that its weights cannot fill: it would take all memory, or all time."""
    values = sum(weight.numel() for weight in weights.values())
    for name, number in config.items():
        if isinstance(number, int) and number > values:
            raise ValueError(f"{name}: {number}, but there are only {values} weights")


def _of_model(directory: Path) -> Path:
    """The directory of the files themselves."""
    for path in (directory / OF_RUN, directory):  # a run has a config.json of its own
        if (path / CONFIG).is_file() and (path / WEIGHTS).is_file():
            return path
    if not directory.is_dir():
        raise FileNotFoundError(f"directory: expected one with a model in it, got {directory}, which is not there")
    raise FileNotFoundError(
        f"directory: {directory} has no model: neither {CONFIG} with {WEIGHTS}, nor the two in {OF_RUN}/. A run writes "
        "them when it is validated, is stopped or ends; bipolar eval writes them for a run that lacks them"
    )


def _kind_of(arguments: set[str]) -> type[nn.Module]:
    """The class whose arguments a configuration has; an earlier version may have had fewer of them."""
    known = {kind: inspect.signature(kind).parameters.keys() for kind in KINDS}
    fitting = [kind for kind in KINDS if arguments and arguments <= known[kind]]
    if not fitting:
        raise ValueError(f"no model has the arguments {', '.join(sorted(arguments)) or '(none)'}")
    return min(fitting, key=lambda kind: len(known[kind]))
