r"""LSUV of the recurrent stack as in the paper: in one time step, with :math:`h(t-1) \sim \mathcal{N}(0, 1)`."""

import copy
import math
from collections.abc import Callable
from typing import NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize

from bipolar._activations.moments import Statistic, check_statistic
from bipolar._init.follow import is_unbounded
from bipolar._init.meter import Meter
from bipolar._init.report import LSUVError, LSUVReport, LSUVRow
from bipolar._init.solver import Scaling, UnsolvableError, solve
from bipolar._init.weights import WeightSetter, parameter_names
from bipolar._rnn.stack import StackedRNN
from bipolar._tools.calling import unwrapped
from bipolar._tools.checks import check_count, check_positive
from bipolar._tools.choices import Balance as Balance


def lsuv_rnn_(
    rnn: StackedRNN,
    input: Tensor,
    *,
    target: Statistic = "variance",
    balance: Balance = "magnitude",
    tol: float = 1e-3,
    max_iter: int = 40,
    generator: torch.Generator | None = None,
) -> LSUVReport:
    r"""Initialises a stack by layer-sequential unit variance, in place: layer by layer, in one time step.

    Layer i is fed with what the layers below make of ``input``, and with :math:`h_i(t-1) \sim \mathcal{N}(0, 1)`. Its
    weights are replaced by :math:`s W_i` and :math:`s U_i`, with the common scale s for which

    .. math::
        \text{Var}\left[ f(s W_i h_i(t-1) + s U_i x_i(t) + b_i) \; [\, + \, \alpha h_{i-k}(t) \,] \right] = 1

    over all elements of :math:`h_i(t)`, skip included. Before that the two are brought to equal magnitude,
    :math:`\lVert W_i \rVert_F = \lVert U_i \rVert_F`, and weighted by ``gamma`` as in the paper's footnote:
    :math:`W_i' = W_i \sqrt{2 \gamma}`, :math:`U_i' = U_i \sqrt{2 (1 - \gamma)}`. The common scale keeps their ratio,
    so the weights of a finished layer have the same magnitude, as the paper says.

    With ``balance="variance"`` the two start from equal *variances* of :math:`W_i h_i(t-1)` and :math:`U_i x_i(t)`
    instead, and ``gamma`` is the share of the variance that :math:`W_i h_i(t-1)` brings. For a bipolar activation the
    two ways nearly agree. The outputs of a plain ReLU have a mean, which :math:`U_i` turns into variance between units:
    there equal variances make :math:`U_i` smaller than :math:`W_i`, and a state that is carried on grows faster.

    The skip alone brings a variance of :math:`\alpha^2`, 0.98 in the paper, and leaves the layer the rest. Where it
    leaves nothing, there is no scale to find: the layer keeps its weights, and its rows of the report say so. Where f
    is bounded (tanh), it is the input of f that is given unit variance.

    Args:
        rnn: the stack
        input: (batch, input_size); it is standardised, to a mean of 0 and a variance of 1 over all its elements
        target: what is made 1, ``"variance"`` or ``"second_moment"``. Default: ``"variance"``
        balance: what :math:`W_i` and :math:`U_i` share by ``gamma``: the ``"magnitude"`` of the weights, as in the
            paper, or the ``"variance"`` that they bring. Default: ``"magnitude"``
        tol: how far from 1 it may stay. Default: 1e-3
        max_iter: how many measurements a layer may take. Default: 40
        generator: where the states come from. Default: torch's global generator

    Returns:
        A report with two rows for each layer, one for each weight; it prints as a table.

    Raises:
        LSUVError: if a layer cannot be initialised; nothing is changed then.

    Examples::

        >>> rnn = bipolar.StackedRNN(64, 64, num_layers=12)
        >>> report = bipolar.lsuv_rnn_(rnn, torch.randn(128, 64))
        >>> max(abs(row.after - 1) for row in report) < 1e-3
        True
    """
    check_statistic("target", target)
    if balance not in get_args(Balance):
        raise ValueError(f"balance: expected 'magnitude' or 'variance', got {balance!r}")
    check_positive("tol", tol)
    group = rnn.process_group if isinstance(rnn, DistributedDataParallel) else None
    stack = unwrapped(rnn)
    if not isinstance(stack, StackedRNN):
        raise TypeError(f"rnn: expected a StackedRNN, got {type(stack).__name__}; for any other model there is lsuv_")
    check_count("max_iter", max_iter)
    if not isinstance(input, Tensor):
        raise TypeError(f"input: expected a tensor of shape (batch, input_size), got {type(input).__name__}")
    if input.ndim != 2 or input.size(1) != stack.input_size or not len(input):
        raise ValueError(f"input: expected (batch, {stack.input_size}), got shape {tuple(input.shape)}")
    with WeightSetter(group, generator) as weights, torch.no_grad():
        rows = StackScaler(stack, "", Meter(target, group), weights, tol, max_iter, balance).run(input)
    return LSUVReport(target, "activation", rows, parameter_names(stack, weights.scaled))


class _ScalableLayer(NamedTuple):
    """One layer in one time step, as a function of the scale of its weights."""

    activation: Callable[[Tensor], Tensor]
    #: W h + U x at a scale of 1
    linear: Tensor
    bias: Tensor | float
    skip: Tensor | None
    #: whether the activation cannot have unit variance, so that its input gets it
    bounded: bool

    @property
    def at(self) -> str:
        """The place of the measurement, for the report."""
        if self.bounded:
            return "input of f"
        return "state" if self.skip is None else "state, with skip"

    def state(self, scale: float) -> Tensor:
        h = self.activation(self.linear * scale + self.bias)
        return h if self.skip is None else h + self.skip

    def measured(self, scale: float) -> Tensor:
        """The values that get unit variance."""
        return self.linear * scale + self.bias if self.bounded else self.state(scale)


class StackScaler:
    """Scales the weights of a stack; ``prefix`` precedes their names in rows and messages."""

    def __init__(
        self,
        rnn: StackedRNN,
        prefix: str,
        meter: Meter,
        weights: WeightSetter,
        tol: float,
        max_iter: int,
        balance: Balance = "magnitude",
    ) -> None:
        self.rnn, self.prefix, self.meter, self.weights = rnn, prefix, meter, weights
        self.tol, self.max_iter, self.balance = tol, max_iter, balance
        self.notes = _left_alone(rnn)

    def run(self, input: Tensor) -> list[LSUVRow]:
        """Scales all layers for an input of shape (samples, input_size)."""
        rnn = self.rnn
        x = _standardised(input.double() if rnn.weight_hh_l0.dtype == torch.float64 else input, self.meter)
        activation: Callable[[Tensor], Tensor] = rnn.activation
        if isinstance(rnn.activation, nn.Module):  # a copy, in the precision of x and without randomness
            activation = copy.deepcopy(rnn.activation).to(x).eval()
        bounded = not is_unbounded(activation, rnn.hidden_size, x)
        block_input, rows = x, []
        for i, (u, w, b) in enumerate(rnn.layers()):
            if rnn.blocks.starts(i):
                block_input = x
            vertical, horizontal = x @ u.to(x).mT, self._past(x) @ w.to(x).mT
            factors = self._factors(i, u, w, vertical, horizontal)
            bias = 0.0 if b is None else b.to(x)
            skip = rnn.skip_scale * block_input if rnn.blocks.has_skip(i) else None
            layer = _ScalableLayer(activation, factors[0] * vertical + factors[1] * horizontal, bias, skip, bounded)
            note = self._reason_to_keep(i, layer)
            if note:
                layer, factors = layer._replace(linear=vertical + horizontal), (1.0, 1.0)
                measured = self.meter(layer.measured(1.0))
                scaling = Scaling(measured, measured, 1.0, 1)
            else:
                scaling = self._solve(i, layer)
                self._multiply(i, factors, scaling.scale)
            rows += self._rows(i, layer, factors, scaling, note)
            x = layer.state(scaling.scale)
        return rows

    def _past(self, x: Tensor) -> Tensor:
        """Random states for the samples of x."""
        generator = self.weights.generator
        device = x.device if generator is None else generator.device
        return torch.randn(len(x), self.rnn.hidden_size, generator=generator, device=device).to(x)

    def _factors(self, i: int, u: Tensor, w: Tensor, vertical: Tensor, horizontal: Tensor) -> tuple[float, float]:
        """The factors of U and W that bring the two to equal size and then weight them by ``gamma``."""
        gamma = self.rnn.gamma
        sizes = _sizes(vertical, horizontal, gamma, self.meter, f"{self.prefix}layer {i}")
        if self.balance == "magnitude":
            sizes = float(u.double().square().sum()), float(w.double().square().sum())
        equal = math.sqrt(sizes[1] / sizes[0]) if all(sizes) else 1.0
        return equal * math.sqrt(2 * (1 - gamma)), math.sqrt(2 * gamma)

    def _reason_to_keep(self, i: int, layer: _ScalableLayer) -> str:
        """The reason why a layer keeps its weights; empty if there is none."""
        if layer.skip is not None and not layer.bounded and (alone := self.meter(layer.measured(0.0))) > 1 - self.tol:
            return f"the skip alone has {alone:.4g}: weights kept"
        return self.notes.get(i, "")

    def _solve(self, i: int, layer: _ScalableLayer) -> Scaling:
        try:
            return solve(lambda scale: self.meter(layer.measured(scale)), self.tol, self.max_iter)
        except UnsolvableError as error:
            samples, target = len(layer.linear), self.meter.target.replace("_", " ")
            few = f"; {samples} samples may be too few" if samples < 32 else ""
            raise LSUVError(f"{self.prefix}layer {i}: its {target} {error}{few}") from None

    def _multiply(self, i: int, factors: tuple[float, float], scale: float) -> None:
        for name, factor in zip(_names_of_u_and_w(i), factors, strict=True):
            self.weights.set(self.rnn, name, self.weights.get(self.rnn, name) * (factor * scale))
            self.weights.scaled.append((self.rnn, name))

    def _rows(
        self, i: int, layer: _ScalableLayer, factors: tuple[float, float], scaling: Scaling, note: str
    ) -> list[LSUVRow]:
        kind = type(self.rnn).__name__
        return [
            LSUVRow(
                f"{self.prefix}{name}", kind, *scaling._replace(scale=factor * scaling.scale), at=layer.at, note=note
            )
            for name, factor in zip(_names_of_u_and_w(i), factors, strict=True)
        ]


def _names_of_u_and_w(i: int) -> tuple[str, str]:
    """The names of U and W of a layer."""
    return f"weight_ih_l{i}", f"weight_hh_l{i}"


def _left_alone(rnn: StackedRNN) -> dict[int, str]:
    """The layers whose weights LSUV must not change, with the reason."""
    names: dict[int, list[str]] = {}
    for name, parameter in rnn.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    notes: dict[int, str] = {}
    for i in range(rnn.num_layers):
        for name in _names_of_u_and_w(i):
            if parametrize.is_parametrized(rnn, name):
                notes.setdefault(i, "its weights are parametrised")
                continue
            weight = getattr(rnn, name)
            others = [other for other in names[id(weight)] if other != name]
            if not weight.requires_grad:
                notes.setdefault(i, "frozen")
            elif others:
                notes.setdefault(i, f"tied to {others[0]!r}")
    return notes


def _sizes(vertical: Tensor, horizontal: Tensor, gamma: float, meter: Meter, name: str) -> tuple[float, float]:
    """The sizes of U x and W h; refuses a layer in which one that counts is zero, or one is not finite."""
    sizes = meter(vertical), meter(horizontal)
    for size, source, share in zip(sizes, ("U x", "W h"), (1 - gamma, gamma), strict=True):
        if size == 0 and share > 0:
            raise LSUVError(f"{name} is dead: its {source} is the same for every input")
        if not math.isfinite(size):
            raise LSUVError(f"{name}: its {source} gives NaN or infinity")
    return sizes


def _standardised(input: Tensor, meter: Meter) -> Tensor:
    """The input with a mean of 0 and a variance of 1 over all processes, in single precision at least."""
    x = input.detach()
    x = x if x.dtype == torch.float64 else x.float()
    if not meter.everywhere(bool(x.isfinite().all()), x.device):
        raise LSUVError("input: there is NaN or infinity in it")
    variance = Meter("variance", meter.group)(x)
    if variance == 0:
        raise LSUVError("input: all its values are the same, so it has no variance to hand on")
    if not math.isfinite(variance):
        raise LSUVError("input: its values are too large for its precision")
    return (x - meter.mean(x)) / math.sqrt(variance)
