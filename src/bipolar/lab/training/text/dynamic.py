r"""Dynamic evaluation: a model that goes on learning from the text it is tested on, after it has predicted it.

The text is read in one stream, segment by segment. Each segment :math:`s_i` is predicted with the weights
:math:`\theta_{i-1}`, which counts, and then taken into them,

.. math::
    \theta_i = \theta_{i-1} - \eta \frac{\nabla L(s_i)}{r + \epsilon}
        + \lambda \frac{r}{\bar r} (\theta_0 - \theta_{i-1}),

where :math:`r` is the root mean square of each parameter's gradient on training text, :math:`\bar r` its mean over all
parameters, and :math:`\lambda r / \bar r` at most 1: parameters with small gradients learn faster, and those with large
ones return faster to the trained weights :math:`\theta_0`.

Reference: Krause, Kahembwe, Murray, Renals: Dynamic Evaluation of Neural Sequence Models, 2017,
https://arxiv.org/abs/1709.07432, its equations for "RMS with global prior" and its "RMS" update.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bipolar.lab.errors import UsageError
from bipolar.lab.training.guard import explosion
from bipolar.lab.training.progress import followed
from bipolar.lab.training.text.whole import WholeText, device_of, on


@dataclass(frozen=True)
class Dynamic:
    """The settings of dynamic evaluation."""

    lr: float
    """eta"""
    decay: float = 0.02
    """lambda"""
    epsilon: float = 2e-5
    segment: int = 50
    """Characters of a segment."""


def dynamic_bpc(
    model: nn.Module,
    text: WholeText,
    training: Sequence[tuple[Tensor, Tensor]],
    settings: Dynamic,
    *,
    uniform: float,
    show: bool = False,
) -> float:
    """Bits per character of dynamic evaluation, unless it diverges; the model is left as it was.

    Args:
        model: the model, in evaluation mode
        text: the text, in one stream
        training: windows of training text, inputs and targets, from which the gradients' magnitudes are taken
        settings: the settings
        uniform: the loss of a uniform guess in nats; above ten times that the run has diverged
        show: whether to show progress
    """
    parameters = list(model.parameters())
    trained = [p.detach().clone() for p in parameters]
    nats, state = 0.0, None
    try:
        # cuDNN has no backward pass in evaluation mode
        with torch.backends.cudnn.flags(enabled=False):
            magnitudes = rms_of_gradients(model, training, show=show)
            mean = float(sum(r.sum() for r in magnitudes)) / sum(r.numel() for r in magnitudes)
            returns = [(settings.decay * r / mean).clamp(max=1) for r in magnitudes]
            windows = followed(text.windows(settings.segment), "dynamic evaluation", show=show)
            for x, y in on(device_of(model), windows):
                loss, state = _loss(model, x, y, state)
                nats += float(loss.detach()) * y.numel()
                exploded = explosion(float(loss.detach()), uniform)
                if exploded is not None:
                    raise UsageError(f"--dynamic {settings.lr:g}: {exploded}; choose a lower rate")
                gradients = torch.autograd.grad(loss, parameters)
                with torch.no_grad():
                    for p, start, r, back, g in zip(parameters, trained, magnitudes, returns, gradients, strict=True):
                        step = back * (start - p) - settings.lr * g / (r + settings.epsilon)
                        p.add_(step)
    finally:
        with torch.no_grad():
            for p, start in zip(parameters, trained, strict=True):
                p.copy_(start)
    return nats / text.target.numel() / math.log(2)


def rms_of_gradients(model: nn.Module, windows: Sequence[tuple[Tensor, Tensor]], *, show: bool = False) -> list[Tensor]:
    """For each parameter the root of the mean square of its gradients, over windows that follow one another."""
    parameters = list(model.parameters())
    squares, state = [torch.zeros_like(p) for p in parameters], None
    for x, y in on(device_of(model), followed(windows, "gradients on training text", show=show)):
        loss, state = _loss(model, x, y, state)
        for total, gradient in zip(squares, torch.autograd.grad(loss, parameters), strict=True):
            total.addcmul_(gradient, gradient)
    return [(total / len(windows)).sqrt() for total in squares]


def _loss(model: nn.Module, x: Tensor, y: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean loss of a window in nats, and the state after it."""
    logits, state = model(x, state)
    return cross_entropy(logits.flatten(0, 1), y.flatten()), state.detach()
