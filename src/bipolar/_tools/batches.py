"""Batches as users have them: out of a data loader, or together with their targets."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from bipolar._tools.calling import arguments_of
from bipolar._tools.nested import tensors_in

#: As many samples, or the first batch if it has more, are taken out of a loader.
SAMPLES = 64


def is_loader(value: Any) -> bool:
    """Whether a value is a data loader: torch's, or one that wraps it."""
    return hasattr(value, "dataset") and hasattr(value, "__iter__") and not isinstance(value, (Tensor, nn.Module))


def first_batches(loader: Any, model: nn.Module) -> Any:
    """The inputs of a loader's first batches, on the model's device: enough of them for :data:`SAMPLES` samples.

    A batch that is a tuple or a list has the targets at its end, unless the model needs them all as arguments. Batches
    of different shapes are not put together: then it is the first one. The random numbers that the loader draws are put
    back, so the next look into it begins as if this one had not been.
    """
    batches: list[Any] = []
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    generator = getattr(loader, "generator", None)
    state = None if generator is None else generator.get_state()
    with torch.random.fork_rng(devices=[]):
        for batch in loader:
            batches.append(_inputs(batch, model))
            if sum(_samples(found) for found in batches) >= SAMPLES:
                break
    if generator is not None:
        generator.set_state(state)
    if not batches:
        raise ValueError("batch: the data loader is empty")
    together = _together(batches)
    return tree_map(lambda value: value.to(device) if isinstance(value, Tensor) else value, together)


def check_fits(model: nn.Module, batch: Any) -> None:
    """Refuses a batch without a tensor or a sample, and one with more values than the model's forward takes."""
    args, keywords = arguments_of(batch)
    tensors = list(tensors_in((args, keywords)))
    if (args or keywords) and not tensors:
        raise TypeError(f"batch: expected a tensor, or a tuple or dict with tensors, got {type(batch).__name__}")
    if tensors and all(tensor.numel() == 0 for tensor in tensors):
        raise ValueError(f"batch: it is empty, of shape {tuple(tensors[0].shape)}")
    most = _positional(model)[1]
    if most is not None and len(args) > most:
        hint = (
            "; if it is (inputs, targets), pass the inputs alone"
            if len(args) == most + 1
            else "; join samples to one tensor with torch.stack"
        )
        raise TypeError(
            f"batch: a {type(batch).__name__} stands for the arguments of forward; that of {type(model).__name__} "
            f"takes {most}, but the batch has {len(args)}{hint}"
        )


def _inputs(batch: Any, model: nn.Module) -> Any:
    """A batch without its targets."""
    if not isinstance(batch, (tuple, list)) or hasattr(batch, "_fields"):
        return batch
    least = _positional(model)[0]
    return tuple(batch) if len(batch) <= least else tuple(batch[: max(least, 1)])


def _positional(model: nn.Module) -> tuple[int, int | None]:
    """The least and the largest number of positional arguments of a model's forward; None for any number."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):  # not a Python function
        return 1, None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in positional)
    return least, None if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(positional)


def _samples(batch: Any) -> int:
    """The number of samples, if the first dimension of every tensor counts them; else as many as are wanted."""
    sizes = {value.size(0) if isinstance(value, Tensor) and value.ndim else 0 for value in tree_flatten(batch)[0]}
    return sizes.pop() or SAMPLES if len(sizes) == 1 else SAMPLES


def _together(batches: list[Any]) -> Any:
    """Batches as one; the first alone where their shapes differ."""
    flat = [tree_flatten(batch) for batch in batches]
    alike = {(str(structure), *(value.shape[1:] for value in values)) for values, structure in flat}
    if len(batches) == 1 or len(alike) > 1:
        return batches[0]
    columns = zip(*(values for values, _ in flat), strict=True)
    return tree_unflatten([torch.cat(column) for column in columns], flat[0][1])
