"""Export to ONNX of the folded model, with plain activations alone, checked against onnxruntime."""

import contextlib
import inspect
import logging
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bipolar._rewrite.fold import fold
from bipolar._rewrite.outputs import difference
from bipolar._tools.calling import arguments_of, unwrapped
from bipolar._tools.files import replacing
from bipolar._tools.nested import tensors_in, tensors_in_objects
from bipolar._tools.restoring import restored


class ExportError(RuntimeError):
    """A model cannot be exported, or computes something else in onnxruntime."""


def export_onnx(
    model: nn.Module,
    example: Any,
    path: str | Path,
    *,
    tolerance: float = 1e-4,
    dynamic: Collection[int] | Mapping[str, Collection[int]] | None = None,
    **options: Any,
) -> Path:
    """Folds a model, exports it to an ONNX file, and makes sure that onnxruntime computes the same.

    Where the symmetry holds (:func:`~bipolar.symmetry`), the graph has plain Relu or Elu nodes and no sign operations.
    Needs ``pip install 'bipolar[onnx]'``.

    Args:
        model: any module; it is exported as it runs in evaluation mode
        example: an input, as for :func:`~bipolar.lsuv_`. A model of the transformers library that keeps a cache needs
            ``use_cache=False`` in it
        path: the file to write; it appears, or is replaced, only if the check has passed
        tolerance: by how much the outputs may differ, as a share of the largest. Default: 1e-4
        dynamic: the dimensions of the inputs that may have another size in later calls: ``(0, 1)`` of every tensor, the
            batch and the length of sequences, or ``{"input_ids": (0, 1)}`` of arguments by name. Default: the first of
            every tensor, where the model allows it
        **options: for :func:`torch.onnx.export`, such as ``opset_version``

    Returns:
        the path

    Examples::

        >>> model = nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(), nn.Linear(8, 2))
        >>> bipolar.export_onnx(model, torch.randn(3, 4), "model.onnx")  # doctest: +SKIP
        PosixPath('model.onnx')
    """
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"export_onnx needs {error.name}: pip install 'bipolar[onnx]'") from None
    path = Path(path)
    folded = fold(unwrapped(model), example)
    args, kwargs = arguments_of(example)
    given = inspect.signature(folded.forward).bind(*args, **kwargs).arguments
    with restored(folded), torch.no_grad():
        folded.eval()
        output = folded(*args, **kwargs)
        _refuse_caches(output)
        expected = list(tensors_in_objects(output))
        defaults = {"dynamo": True, "verbose": False, "dynamic_shapes": _dynamic_shapes(given, dynamic)}
        program = _exported(folded, args, kwargs, defaults | options)
    with replacing(path) as temporary:
        program.save(temporary)
        session = onnxruntime.InferenceSession(str(temporary), providers=["CPUExecutionProvider"])
        names = [node.name for node in session.get_inputs()]
        by_name = given if set(names) <= set(given) else dict(zip(names, tensors_in(example), strict=False))
        outputs = session.run(None, {name: by_name[name].detach().cpu().numpy() for name in names})
        found = difference(expected, [torch.from_numpy(output) for output in outputs], tolerance)
        if found:
            raise ExportError(
                f"{path}: onnxruntime does not compute what torch does, {found} (tolerance={tolerance:g}); "
                "nothing was written"
            )
    return path


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Silences the warnings of a logger."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _refuse_caches(output: Any) -> None:
    """Refuses keys and values that a model of the transformers library gives out for the next call."""
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, (tuple, list)) else ()
    for value in values:
        if "Cache" in type(value).__name__:
            raise ExportError(
                f"model: it gives out a {type(value).__name__}, which torch cannot export: add use_cache=False to the "
                "example, as in {'input_ids': ..., 'use_cache': False}"
            )


def _exported(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
    try:
        with _quiet("torch.onnx._internal.exporter._registration"):  # it warns that torchvision is missing
            return torch.onnx.export(model, args, kwargs=kwargs, **options)
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = (str(cause).strip() or type(cause).__name__).splitlines()[0].split(". ")[0]
        fixed = any(word in reason for word in ("onstraint", "pecializ", "ranges"))
        hint = "; dynamic names a dimension whose size the model fixes" if fixed else ""
        raise ExportError(f"model: torch cannot export {type(model).__name__}: {reason}{hint}") from error


def _dynamic_shapes(given: Mapping[str, Any], dynamic: Any) -> dict[str, Any]:
    """The dimensions that may vary: those that are asked for, or the first where the exporter finds that it can."""
    if dynamic is not None and (isinstance(dynamic, str) or not isinstance(dynamic, Collection)):
        raise TypeError(f"dynamic: expected dimensions such as (0, 1), or a mapping of names to these, got {dynamic!r}")
    if isinstance(dynamic, Mapping) and not dynamic.keys() <= given.keys():
        unknown = ", ".join(sorted(map(str, dynamic.keys() - given.keys())))
        raise ValueError(f"dynamic: the example has no argument {unknown}; it has {', '.join(given)}")
    kind = torch.export.Dim.AUTO if dynamic is None else torch.export.Dim.DYNAMIC
    wanted = (0,) if dynamic is None else dynamic
    shapes: dict[str, Any] = {}
    for name, value in given.items():
        dims = wanted.get(name, ()) if isinstance(wanted, Mapping) else wanted
        shapes[name] = None
        if isinstance(value, Tensor):
            shapes[name] = {dim % value.ndim: kind for dim in dims if -value.ndim <= dim < value.ndim}
    return shapes
