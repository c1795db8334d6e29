"""The probe: signal and gradient of any model, layer by layer."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bipolar._activations.channelwise import ChannelActivation
from bipolar._activations.recognition import is_elementwise
from bipolar._probe.edges import Edges
from bipolar._probe.lyapunov import describe, lyapunov
from bipolar._probe.norms import has_unset_statistics, is_norm
from bipolar._rnn import StackedRNN
from bipolar._tools.batches import check_fits, is_loader
from bipolar._tools.calling import call, unwrapped
from bipolar._tools.nested import tensors_in
from bipolar._tools.restoring import restored
from bipolar._tools.rows import NamedRows
from bipolar._tools.table import text_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: An activation is saturated at values where its slope is smaller than this.
SMALL_SLOPE = 0.05

#: Layers that count as one, whatever modules they contain.
WHOLE = (ChannelActivation, StackedRNN, nn.RNNBase, nn.MultiheadAttention)

FEATURES_LAST = (nn.Linear, nn.LayerNorm, nn.Embedding, StackedRNN, nn.RNNBase, nn.MultiheadAttention)


@dataclass
class Layer:
    """Statistics of one call of a layer; those that do not apply are None."""

    name: str
    kind: str
    mean: float
    variance: float
    second_moment: float
    #: share of units that gave 0 for every sample and position
    dead: float
    #: standard deviation of the units' own means
    spread: float
    #: share of values at which an activation passes less than 5 % of a gradient
    saturated: float | None = None
    #: root mean square of the gradient of the loss on the output
    gradient: float | None = None
    #: norm of the weights' gradient over that of the weights; times the learning rate, how far a step of SGD moves them
    update_ratio: float | None = None
    #: largest Lyapunov exponent of a recurrent layer's state for a time step; above 0 small differences in it grow
    lyapunov: float | None = None
    #: number of values that each unit gave, over samples and positions
    values: int = 0
    #: whether it has weights
    weighted: bool = False
    #: whether its output does not depend on the size of its input
    norm: bool = False
    #: whether it is a batch norm in evaluation mode whose running statistics are still those it was made with
    unset: bool = False
    #: the layers whose outputs reach it with no other layer between
    fed_by: tuple[str, ...] = ()


class Probe(NamedRows[Layer]):
    """The layers of a model in the order in which they ran; see :func:`probe`.

    It is a sequence of them: ``p[0]`` is the first, ``p["head"]`` the one of that name.
    """

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers

    @property
    def _rows(self) -> list[Layer]:
        return self.layers

    def __str__(self) -> str:
        return self.table()

    def table(self) -> str:
        """One line for each layer."""
        left_out = {"values", "weighted", "norm", "unset", "fed_by"}
        if all(layer.lyapunov is None for layer in self.layers):
            left_out.add("lyapunov")
        names = [f.name for f in fields(Layer) if f.name not in left_out]
        return text_table(names, [[getattr(layer, name) for name in names] for layer in self.layers])

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values: ``{"layers": [{"name": …, "mean": …, …}, …], "warnings": […]}``."""
        return {"layers": [asdict(layer) for layer in self.layers], "warnings": self.warnings()}

    def warnings(self) -> list[str]:
        """Plain sentences on what is unhealthy; an empty list if nothing is."""
        from bipolar._probe.diagnosis import diagnose

        return diagnose(self.layers)

    def recurrence(self) -> list[str]:
        """A sentence on each recurrent layer: whether its state contracts, is at the edge or chaotic, and how fast."""
        return [describe(layer.name, layer.lyapunov) for layer in self.layers if layer.lyapunov is not None]

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Draws signal and gradient against depth; writes the figure to ``path`` (.png, .svg, .pdf) if it is given."""
        try:
            from bipolar._probe.plot import draw
            from bipolar._tools.figures import save
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"plot needs {error.name}: pip install 'bipolar[lab]'", name=error.name) from None
        figure = draw(self.layers)
        if path is not None:
            save(figure, Path(path))
        return figure


def probe(model: nn.Module, batch: Any, loss: Callable[[Any], Tensor] | None = None) -> Probe:
    """Measures the output of every leaf layer of a model on a batch and, with a loss, the gradient on it.

    The model runs in the mode it is in; its buffers, gradients and hooks are afterwards as they were. A layer that is
    called several times has a row for each call. Functional calls, such as ``F.relu``, are not layers and not seen.

    A row has ``mean``, ``variance`` and ``second_moment`` of the output; ``dead``, the share of units that gave 0 for
    every sample and position; ``spread``, the standard deviation of the units' own means; ``saturated``, the share of
    values at which an activation passes less than 5 % of a gradient; ``gradient``, the root mean square of the gradient
    of the loss on the output; and ``update_ratio``, the norm of the weights' gradient over that of the weights.

    The row of a recurrent layer, :class:`~bipolar.StackedRNN` or torch's RNN, LSTM or GRU, also has ``lyapunov``, the
    largest Lyapunov exponent of its state along the sequences of the batch, per time step and without dropout: a small
    difference in the state has grown by a factor of exp(lyapunov t) after t steps. Below 0 the layer contracts and
    forgets, above 0 it is chaotic; ``recurrence()`` says it in a sentence. It takes a step in forward mode for each
    time step. A bidirectional layer has none.

    ``fed_by`` names the layers whose outputs reach a layer with no other layer between; the probe follows them through
    torch functions. ``warnings()`` compares layers along these edges: signal and gradient of a layer with those of the
    layer that feeds it most, not with those of another branch. A norm layer begins a new path.

    Args:
        model: any module
        batch: what its forward takes: a tensor, a tuple or list of arguments, or a dictionary of them
        loss: a function from the model's output to a scalar. Default: none, and no gradients

    Examples::

        >>> model = nn.Sequential(nn.Linear(64, 64), bipolar.BReLU(), nn.Linear(64, 10))
        >>> p = bipolar.probe(model, torch.randn(256, 64), loss=lambda output: output.square().mean())
        >>> [layer.name for layer in p.layers]
        ['0', '1', '2']
        >>> p.warnings()
        []

        >>> p = bipolar.probe(nn.LSTM(64, 64), torch.randn(50, 8, 64))
        >>> p.recurrence()[0].split(":")[0], p["LSTM"].lyapunov < 0
        ("'LSTM' contracts", True)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected an nn.Module, got {type(model).__name__}")
    if loss is not None and not callable(loss):
        raise TypeError(f"loss: expected a function from the model's output to a scalar, got {type(loss).__name__}")
    if is_loader(batch):
        raise TypeError(f"batch: expected what forward takes, got a {type(batch).__name__}; pass one of its batches")
    model = unwrapped(model)
    check_fits(model, batch)
    recorder = _Recorder(model)
    with restored(model), recorder, torch.set_grad_enabled(loss is not None):
        with recorder.edges:
            output = call(model, batch)
        if loss is not None:
            recorder.backward(loss(output))
    return Probe(recorder.layers)


class _Recorder:
    """Records every call of a leaf layer within a ``with`` block, by hooks."""

    def __init__(self, model: nn.Module) -> None:
        self.names = _leaves(model)
        self.layers: list[Layer] = []
        self.modules: list[nn.Module] = []
        self.calls: Counter[nn.Module] = Counter()
        self.saturated: dict[nn.Module, float] = {}
        self.edges = Edges()
        self.feeders: dict[nn.Module, frozenset[int]] = {}
        self.handles: list[Any] = []
        # of the last layer that defines them: the number of dimensions, and the one that counts units
        self.features_at = (0, 1)

    def __enter__(self) -> "_Recorder":
        for module in self.names:
            self.handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
            self.handles.append(module.register_forward_hook(self._after, with_kwargs=True))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # before the call, because the layer may overwrite its input
        self.feeders[module] = self.edges.sources((args, kwargs))
        if not is_elementwise(module):
            return
        with torch.inference_mode(False), torch.enable_grad():
            x = next(tensors_in((args, kwargs))).detach().clone().requires_grad_()
            (derivative,) = torch.autograd.grad(module.forward(x * 1).sum(), x)
        self.saturated[module] = (derivative.abs() < SMALL_SLOPE).double().mean().item()

    def _after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        tensor = next((t for t in tensors_in(output) if t.is_floating_point()), None)
        if tensor is None or tensor.is_nested or not tensor.numel():
            return
        self.calls[module] += 1
        call_number = f" ({self.calls[module]})" if self.calls[module] > 1 else ""
        layer = Layer(
            name=self.names[module] + call_number,
            kind=type(module).__name__,
            saturated=self.saturated.pop(module, None),
            weighted=any(parameter.ndim > 1 for parameter in module.parameters()),
            norm=is_norm(module, args, kwargs, tensor),
            unset=has_unset_statistics(module),
            lyapunov=lyapunov(module, args, kwargs),
            fed_by=tuple(self.layers[i].name for i in sorted(self.feeders.pop(module, ()))),
            **_statistics(tensor.detach(), self._unit_dim(module, tensor)),
        )
        self.edges.mark(output, frozenset([len(self.layers)]))
        self.layers.append(layer)
        self.modules.append(module)
        if tensor.requires_grad:

            def keep(gradient: Tensor) -> None:
                norm = torch.linalg.vector_norm(gradient.detach(), dtype=torch.float64).item()
                layer.gradient = norm / math.sqrt(gradient.numel())

            self.handles.append(tensor.register_hook(keep))

    def _unit_dim(self, module: nn.Module, output: Tensor) -> int:
        """The dimension of an output that counts units; activations, pooling and the like follow the layer before."""
        if isinstance(module, ChannelActivation):
            return module.dim if output.ndim > 1 else 0
        if isinstance(module, FEATURES_LAST):
            self.features_at = (output.ndim, -1)
        elif isinstance(module, nn.modules.conv._ConvNd):
            self.features_at = (output.ndim, 1 - module.weight.ndim)
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            self.features_at = (output.ndim, 1)
        elif self.features_at[0] != output.ndim:
            return -1 if output.ndim < 4 else 1
        return self.features_at[1]

    def backward(self, loss: Tensor) -> None:
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise ValueError(f"loss: expected a function that gives a scalar tensor, got {loss!r}")
        if not loss.requires_grad:
            return
        parameters = {p: None for module in self.modules for p in module.parameters() if p.requires_grad}
        if not parameters:
            return
        gradients = dict(zip(parameters, torch.autograd.grad(loss, list(parameters), allow_unused=True), strict=True))
        for layer, module in zip(self.layers, self.modules, strict=True):
            pairs = [(p, gradients.get(p)) for p in module.parameters() if p.ndim > 1]
            weights, updates = (
                math.sqrt(sum(t.detach().double().square().sum().item() for t in side))
                for side in ([p for p, _ in pairs], [g for _, g in pairs if g is not None])
            )
            if pairs and weights and any(g is not None for _, g in pairs):
                layer.update_ratio = updates / weights


def _leaves(model: nn.Module) -> dict[nn.Module, str]:
    """The modules without modules of their own, and those that count as one."""
    leaves: dict[nn.Module, str] = {}
    inside: set[nn.Module] = set()
    for name, module in model.named_modules():
        children = [child for label, child in module.named_children() if label != "parametrizations"]
        if module not in inside and (not children or isinstance(module, WHOLE)):
            leaves[module] = name or type(module).__name__
            inside |= set(module.modules())
    return leaves


def _statistics(output: Tensor, unit_dim: int) -> dict[str, Any]:
    values = output.double() if output.dtype == torch.float64 else output.float()
    variance, mean = (statistic.item() for statistic in torch.var_mean(values, correction=0))
    units = values.movedim(unit_dim, 0).flatten(1) if values.ndim > 1 else values.unsqueeze(1)
    return {
        "mean": mean,
        "variance": variance,
        "second_moment": variance + mean**2,
        "dead": (units == 0).all(dim=1).double().mean().item(),
        "spread": units.mean(dim=1).std(correction=0).item(),
        "values": units.size(1),
    }
