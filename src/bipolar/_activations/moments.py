r"""Moments of an activation under a normal input, and the weight gain that follows from them.

A layer with weights of variance :math:`g^2 / \text{fan\_in}`, fed with zero-mean inputs of unit variance, hands
:math:`\mathcal{N}(0, g^2)` to its activation. :func:`moments` describes the output; :func:`gain` finds the :math:`g`
that keeps its variance, or its second moment, at 1.
"""

import copy
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from bipolar._activations.catalogue import of_class, of_function
from bipolar._activations.channelwise import ChannelActivation
from bipolar._activations.modules import Bipolar
from bipolar._activations.registry import get_activation
from bipolar._tools.checks import check_positive
from bipolar._tools.choices import Statistic as Statistic

Activation: TypeAlias = str | Callable[[Tensor], Tensor]

#: The integral is cut off this many standard deviations out, where the density is below 1e-31.
REACH = 12.0
NODES = 32
#: A gain is found by so many lines, or by bisection.
LINES = 12


class Moments(NamedTuple):
    """The output of an activation under a normal input; for a bipolar one over both kinds of unit."""

    mean: float
    variance: float
    second_moment: float
    #: E[f'(x)²]: the factor by which the activation scales the second moment of a gradient
    derivative_second_moment: float


def moments(f: Activation, std: float = 1.0, *, kinks: Iterable[float] | None = None) -> Moments:
    r"""Moments of :math:`f(x)` for :math:`x \sim \mathcal{N}(0, \text{std}^2)`, by quadrature, to 1e-6.

    That holds for functions that bend within a few units of their kinks and are almost straight elsewhere, as
    activations are; not for a sine under a wide input.

    Args:
        f: an activation, plain or bipolar: a name (:func:`~bipolar.list_activations`), a function or a module. A
            bipolar function needs its channels in dimension 1 or -1; a module may have them anywhere. Randomness and
            dropout are switched off.
        std: the standard deviation of the input. Default: 1.0
        kinks: where f or its derivative jumps; the integral is split there. Default: known for the activations of
            torch and of this library, at 0 for all else

    Examples::

        >>> bipolar.moments("relu").variance, bipolar.moments("brelu").variance  # doctest: +NUMBER
        (0.340845, 0.5)
    """
    check_positive("std", std)
    if not math.isfinite(std):
        raise ValueError(f"std: expected a finite number, got {std}")
    integral = _Integral(f, kinks)
    x, output, weight = integral.at(std)
    with torch.inference_mode(False), torch.enable_grad(), torch.device("cpu"):
        derivative = torch.autograd.grad(output.sum(), x)[0] if output.requires_grad else torch.zeros_like(x)
    return Moments(*_moments_of(output, weight), _mean_of(derivative.square(), weight))


def gain(
    f: Activation, keep: Statistic = "variance", *, stacked: bool = False, kinks: Iterable[float] | None = None
) -> float:
    r"""The weight gain that an activation needs.

    Weights :math:`\mathcal{N}(0, g^2 / \text{fan\_in})` followed by f turn a zero-mean input of unit variance (or unit
    second moment) into an output of the same: :math:`\text{Var} f(x) = 1` for :math:`x \sim \mathcal{N}(0, g^2)`.

    With ``stacked=True`` the input is the output of another such layer, whose mean need not be zero: then
    :math:`x \sim \mathcal{N}(0, g^2 \, \mathbb{E}[f^2])`. For ReLU and variance that makes :math:`\sqrt 2` (He et al.)
    of 1.713.

    The right gain for SELU is 1: its fixed point is a mean of 0 and a variance of 1.
    ``torch.nn.init.calculate_gain("selu")`` says 3/4, which does not keep the variance.

    Args:
        f: an activation, plain or bipolar: a name, a function or a module
        keep: ``"variance"`` or ``"second_moment"``. Default: ``"variance"``
        stacked: whether the input is f's own output. Default: ``False``
        kinks: where f or its derivative jumps. Default: as for :func:`moments`

    Examples::

        >>> bipolar.gain("relu"), bipolar.gain("relu", stacked=True)  # doctest: +NUMBER
        (1.71286, 1.41421)
        >>> bipolar.gain("selu"), torch.nn.init.calculate_gain("selu")  # doctest: +NUMBER
        (1.0, 0.75)
    """
    check_statistic("keep", keep)
    integral = _Integral(f, kinks)

    def log_of_kept(log_std: float) -> float:
        _, output, weight = integral.at(math.exp(log_std))
        _, variance, second_moment = _moments_of(output, weight)
        kept = variance if keep == "variance" else second_moment
        return math.log(kept) if kept > 0 else kept - math.inf  # which leaves NaN as it is

    std = math.exp(_root(log_of_kept, f"gain: no scale of its input gives {f!r} an output with a {keep} of 1"))
    if not stacked:
        return std
    _, output, weight = integral.at(std)
    return std / math.sqrt(_mean_of(output.square(), weight))


def check_statistic(argument: str, value: str) -> None:
    if value not in ("variance", "second_moment"):
        raise ValueError(f"{argument}: expected 'variance' or 'second_moment', got {value!r}")


class _Integral:
    """f, made ready to be integrated over normal inputs of any standard deviation."""

    def __init__(self, f: Activation, kinks: Iterable[float] | None) -> None:
        self.function, self.channels = _elementwise(f)
        self.kinks = _known_kinks(self.function) if kinks is None else tuple(kinks)

    def at(self, std: float) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs and outputs of f, (points, channels), and the weights of the points."""
        with torch.inference_mode(False), torch.enable_grad(), torch.device("cpu"):
            z, weight = _quadrature(std, self.kinks)
            x = (std * z).unsqueeze(1).repeat(1, self.channels).requires_grad_()
            return x, self.function(x * 1), weight  # not the leaf itself: f may work in place


def _moments_of(output: Tensor, weight: Tensor) -> tuple[float, float, float]:
    """Mean, variance and second moment."""
    mean = _mean_of(output, weight)
    # the variance not as a difference of large numbers, where the mean is large
    return mean, _mean_of((output.detach() - mean).square(), weight), _mean_of(output.detach().square(), weight)


def _mean_of(values: Tensor, weight: Tensor) -> float:
    return (weight @ values.detach().double().mean(dim=1)).item()


def _elementwise(f: Activation) -> tuple[Callable[[Tensor], Tensor], int]:
    """f as a function of (points, channels) in float64, without randomness, and a number of channels that it takes."""
    if isinstance(f, str):
        f = get_activation(f)
    if not isinstance(f, nn.Module):
        return f, 2
    f = copy.deepcopy(f).cpu().double().eval()
    if isinstance(f, ChannelActivation):
        f.dim = 1
    slopes = getattr(f, "num_parameters", 1)
    return f, slopes if slopes > 1 else 2


def _known_kinks(f: Callable[[Tensor], Tensor]) -> tuple[float, ...]:
    """The kinks of an activation, those of the flipped units among them."""
    if isinstance(f, Bipolar):
        return _known_kinks(f.f)
    entry = of_class(type(f)) or of_function(f)
    if entry is None:
        return (0.0,)
    kinks = entry.kinks(**(entry.options_of_module(f) if isinstance(f, nn.Module) else {}))
    return (*kinks, *(-kink for kink in kinks))


@functools.cache
def _gauss_legendre() -> tuple[list[float], list[float]]:
    """Nodes and weights on [-1, 1], from the eigenvectors of the Jacobi matrix (Golub & Welsch, 1969)."""
    k = torch.arange(1, NODES, dtype=torch.float64)
    off_diagonal = k / (4 * k**2 - 1).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(off_diagonal, 1) + torch.diag(off_diagonal, -1))
    return nodes.tolist(), (2 * vectors[0] ** 2).tolist()


def _quadrature(std: float, kinks: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Points z and weights w with sum(w g(z)) = E[g(z)] for standard normal z, finer around the kinks of f(std z)."""
    breaks = {float(z) for z in range(-int(REACH), int(REACH) + 1)}
    breaks |= {(kink + step) / std for kink in kinks for step in (-16.0, -4.0, -1.0, 0.0, 1.0, 4.0, 16.0)}
    edges = torch.tensor(sorted(z for z in breaks if abs(z) <= REACH), dtype=torch.float64)
    middle, half = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    nodes, weights = (torch.tensor(values, dtype=torch.float64) for values in _gauss_legendre())
    z = (middle[:, None] + half[:, None] * nodes).flatten()
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return z, (half[:, None] * weights).flatten() * density


def _root(value: Callable[[float], float], message: str) -> float:
    """A zero of a function that rises through it, to 1e-12, within a bracket found from 0 outwards.

    By false position, the zero of the line through both ends of the bracket; the logarithm of a variance is almost a
    line. Where an end stays for a second time its value is halved, so that the bracket closes from both sides (the
    Illinois algorithm; Dowell & Jarratt, 1971).
    """
    low = high = 0.0
    below = above = value(0.0)
    while below > 0:
        high, above, low = low, below, low - 1.0
        if low < -20:
            raise ValueError(message)
        below = value(low)
    while above < 0:
        low, below, high = high, above, high + 1.0
        if high > 20:
            raise ValueError(message)
        above = value(high)
    rounds, last = 0, 0
    while high - low > 1e-12:
        rounds += 1
        share = below / (below - above) if math.isfinite(below) and math.isfinite(above) else 0.5
        share = share if rounds <= LINES else 0.5
        middle = min(max(low + share * (high - low), low + 2.5e-13), high - 2.5e-13)  # beyond a zero that an end is
        there = value(middle)
        if there < 0:
            low, below, above, last = middle, there, above / 2 if last < 0 else above, -1
        else:
            high, above, below, last = middle, there, below / 2 if last > 0 else below, 1
    return (low + high) / 2
