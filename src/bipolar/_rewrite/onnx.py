"""Export to ONNX of the folded model, with plain activations alone, checked against onnxruntime."""

import contextlib
import inspect
import logging
from collections.abc import Iterator
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
    """A model was exported, but computes something else in onnxruntime."""


def export_onnx(
    model: nn.Module,
    example: Any,
    path: str | Path,
    *,
    tolerance: float = 1e-4,
    **options: Any,
) -> Path:
    """Folds a model, exports it to an ONNX file, and makes sure that onnxruntime computes the same.

    Where the symmetry holds (:func:`~bipolar.symmetry`), the graph has plain Relu or Elu nodes and no sign operations.
    Needs ``pip install 'bipolar[onnx]'``.

    Args:
        model: any module; it is exported as it runs in evaluation mode
        example: an input, as for :func:`~bipolar.lsuv_`; its first dimension is exported as a dynamic one where the
            model allows it
        path: the file to write; it appears, or is replaced, only if the check has passed
        tolerance: by how much the outputs may differ, as a share of the largest. Default: 1e-4
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
    with restored(folded), torch.no_grad():
        folded.eval()
        expected = list(tensors_in_objects(folded(*args, **kwargs)))
        defaults: dict[str, Any] = {"dynamo": True, "verbose": False, "dynamic_shapes": _dynamic(folded, args, kwargs)}
        with _quiet("torch.onnx._internal.exporter._registration"):  # it warns that torchvision is missing
            program: Any = torch.onnx.export(folded, args, kwargs=kwargs, **defaults | options)
    with replacing(path) as temporary:
        program.save(temporary)
        session = onnxruntime.InferenceSession(str(temporary), providers=["CPUExecutionProvider"])
        names = [node.name for node in session.get_inputs()]
        given = (t.detach().cpu().numpy() for t in tensors_in(example))
        outputs = session.run(None, dict(zip(names, given, strict=True)))
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


def _dynamic(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Dynamic shapes: the first dimension of every tensor, where the exporter finds that it can vary."""
    bound = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    return {
        name: {0: torch.export.Dim.AUTO} if isinstance(value, Tensor) and value.ndim else None
        for name, value in bound.items()
    }
