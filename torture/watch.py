"""A watch on a call: its inputs and the state of the process stay as they were, and an error is a clear one."""

import logging
import os
import random
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import bipolar

#: The types of errors that the documentation names; of ours any message is clear.
OURS = (bipolar.LSUVError, bipolar.FoldingError, bipolar.ExportError)
DOCUMENTED = (TypeError, ValueError, IndexError, FileNotFoundError, *OURS)
#: A clear message begins with the argument that is wrong.
NAMES_AN_ARGUMENT = re.compile(r"[a-z_]\w*(, [a-z_]\w*)*: ")


class UnclearError(Exception):
    """An error that does not say which argument is wrong, or of a type that nobody documents."""


class Refusal:
    """A clear error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __str__(self) -> str:
        return f"refused, {type(self.error).__name__}"


def asked(
    action: Callable[[], Any], untouched: Sequence[Any] = (), excuse: Callable[[], object] | None = None, **draws: bool
) -> Any:
    """The answer to a call, or its refusal; raises if the call changes what it must not, or fails without clarity.

    Args:
        action: the call
        untouched: the tensors and modules that it must not change, whether it succeeds or fails
        excuse: a call of torch alone; where it raises an error of the same type, that is torch's error, and clear
        **draws: ``draws=True`` for a call that may take random numbers of torch's global generator
    """
    before, state = [snapshot(value) for value in untouched], process_state(**draws)
    answer: Any
    try:
        answer = action()
    except Exception as error:
        if not is_clear(error) and not _raises_alike(error, excuse):
            raise UnclearError(f"{type(error).__name__}: {error}") from error
        answer = Refusal(error)
    for value, old in zip(untouched, before, strict=True):
        changed = different(old, snapshot(value))
        if changed:
            raise AssertionError(f"{type(value).__name__}: the call changes its {changed}")
    changed = different(state, process_state(**draws))
    if changed:
        raise AssertionError(f"the call changes the global {changed}")
    return answer


def is_clear(error: Exception) -> bool:
    if isinstance(error, OURS):
        return True
    return isinstance(error, DOCUMENTED) and NAMES_AN_ARGUMENT.match(str(error)) is not None


def _raises_alike(error: Exception, excuse: Callable[[], object] | None) -> bool:
    if excuse is None:
        return False
    try:
        excuse()
    except Exception as other:
        return type(other) is type(error)
    return False


def process_state(draws: bool = False) -> dict[str, Any]:
    """Everything global that a library could change by mistake."""
    return {
        "random numbers of torch": b"" if draws else torch.get_rng_state().numpy().tobytes(),
        "random numbers of Python": random.getstate(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "gradient mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": torch.is_autocast_enabled("cpu"),
        "number of threads": torch.get_num_threads(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        # torch and its packages change these when they are first imported
        "filters of warnings": [one for one in warnings.filters if one[2].__module__ == "builtins"],
        "level of logging": logging.getLogger().level,
        "directory": os.getcwd(),  # noqa: PTH109
        "environment": {name: value for name, value in os.environ.items() if not name.startswith("TORCH")},
    }


def snapshot(value: Any) -> dict[str, Any]:
    """A tensor or a module, as it is now."""
    if isinstance(value, Tensor):
        return {"values": _values(value), "shape": value.shape, "stride": value.stride(), "version": _version(value)}
    if not isinstance(value, nn.Module):
        return {"value": value}
    found: dict[str, Any] = {"modules": [(name, id(module)) for name, module in value.named_modules()]}
    for name, module in value.named_modules():
        plain = {key: kept for key, kept in vars(module).items() if isinstance(kept, (bool, int, float, str))}
        found[f"attributes of {name!r}"] = (sorted(vars(module)), plain, type(module), len(module._forward_hooks))
    for name, tensor in (*value.named_parameters(), *value.named_buffers()):
        gradient = None if tensor.grad is None else _values(tensor.grad)
        found[f"tensor {name!r}"] = (id(tensor), tensor.requires_grad, gradient, _values(tensor))
    return found


def different(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The first entry that differs; empty if all are the same."""
    return next((key for key in {**before, **after} if before.get(key) != after.get(key)), "")


def _values(tensor: Tensor) -> tuple[torch.dtype, bytes]:
    """The bits of a tensor: NaN is equal to itself here, and 0 differs from -0."""
    if tensor.is_meta or _is_huge(tensor):
        return tensor.dtype, b""
    return tensor.dtype, tensor.detach().clone(memory_format=torch.contiguous_format).flatten().view(
        torch.uint8
    ).numpy().tobytes()


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _is_huge(tensor: Tensor) -> bool:
    return tensor.numel() > 1 << 24


@contextmanager
def float64() -> Iterator[None]:
    """Double precision by default."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


#: By how much a result may differ from its slow twin, as a share of its size.
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 2e-5, torch.float64: 1e-11}


def assert_close(
    found: Tensor, expected: Tensor, what: str, tolerance: float | None = None, or_else: Tensor | None = None
) -> None:
    """Equal shape, dtype and, near enough, values, each to ``expected`` or ``or_else``; NaN is equal to NaN."""
    assert found.dtype == expected.dtype, f"{what}: {found.dtype}, not {expected.dtype}"
    assert found.shape == expected.shape, f"{what}: {tuple(found.shape)}, not {tuple(expected.shape)}"
    if found.is_meta:
        return
    close = are_close(found, expected, tolerance)
    if or_else is not None:
        close |= are_close(found, or_else, tolerance)
    if not close.all():
        gap = (found - expected)[~close].abs()
        raise AssertionError(f"{what}: differs from its slow twin by {float(gap.nan_to_num(torch.inf).max()):.3g}")


def are_close(found: Tensor, expected: Tensor, tolerance: float | None = None) -> Tensor:
    """For each value whether it is near enough; NaN is equal to NaN."""
    near = TOLERANCE[found.dtype] if tolerance is None else tolerance
    return torch.isclose(found, expected, rtol=near, atol=near, equal_nan=True)
