r"""Layer-sequential unit variance (LSUV) of any model.

From Mishkin & Matas, `All you need is a good init <https://arxiv.org/abs/1511.06422>`_, 2016. The output of a linear or
convolution layer is linear in the scale of its weight, so the scale can be solved for right where the layer stands,
within one forward pass: at the first use of a layer's output, LSUV measures it, scales the weight, calls the layer once
more to make sure, and the pass goes on with the new output.
"""

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from bipolar._activations.moments import Statistic, check_statistic
from bipolar._init.meter import Meter
from bipolar._init.report import LSUVError, LSUVReport
from bipolar._init.selection import Selector, layers_of, left_alone, selected
from bipolar._init.sequential import SequentialPass
from bipolar._init.settings import Settings
from bipolar._init.weights import WeightSetter, parameter_names
from bipolar._tools.batches import check_fits, first_batches, is_loader
from bipolar._tools.calling import call, unwrapped
from bipolar._tools.checks import check_count, check_positive
from bipolar._tools.nested import tensors_in
from bipolar._tools.restoring import restored


def lsuv_(
    model: nn.Module,
    batch: Any,
    *,
    target: Statistic = "variance",
    at: Literal["activation", "output"] = "activation",
    tol: float = 1e-3,
    max_iter: int = 40,
    orthogonal: bool = True,
    per_channel: bool = False,
    centre: bool = False,
    include: Selector | Iterable[Selector] | None = None,
    exclude: Selector | Iterable[Selector] | None = None,
    generator: torch.Generator | None = None,
) -> LSUVReport:
    r"""Initialises a model by layer-sequential unit variance, in place and within one forward pass.

    For each linear and convolution layer, in the order in which they run on ``batch``, the weight W is replaced by
    :math:`s W`, with the scale s for which

    .. math::
        \text{Var}\left[ f(s W x + b) \right] = 1

    over all elements, where f is the activation that directly follows the layer (``at="activation"``, as in the paper
    by Eidnes & Nøkland), or nothing (``at="output"``, as in the LSUV paper, and wherever something else follows first:
    an addition, a norm, a pooling, an activation such as tanh whose output cannot have unit variance).
    The report says for each layer which it was. Recurrent layers of torch are scaled at the input of their gates, a
    :class:`~bipolar.StackedRNN` by :func:`~bipolar.lsuv_rnn_`. A layer whose input is constant, as in a recurrence that
    starts from a state of zeros, is scaled at the first call where it is not.

    Attention gets q, k and v of unit variance each, so that its logits :math:`q \cdot k / \sqrt{d}` have unit variance
    too and its softmax starts soft; the projection after it makes up for the variance that averaging over positions
    takes. Where one weight holds all three (``nn.MultiheadAttention``, GPT-2's ``Conv1D``, or any layer whose output is
    split right away), each part is made orthogonal and scaled by itself, as the layer of its own that it is.

    With ``per_channel`` every output channel c of a linear or convolution layer is first divided by its own standard
    deviation (its root mean square, where that is the target), and with ``centre`` every activation gets an input of
    mean zero, by the bias :math:`b_c` of the layer directly before it (or before the max pooling before it: then the
    mean is that of the pooled values):

    .. math::
        W_c \leftarrow s \, W_c / \sigma_c, \quad \sigma_c^2 = \text{Var}[W_c x], \qquad
        b_c \leftarrow - \text{E}[s \, W_c x / \sigma_c]

    Both together, with ``at="output"``, are what batch norm does at the start. The report says which layers were
    centred; those whose outputs are added up or normalised before the activation are not.

    A plain activation has a mean, and variance does not count it: plain ReLU ends up with a second moment of 1.47 where
    bipolar ReLU has 1. With ``target="second_moment"`` both start alike.

    The model runs in evaluation mode, but batch norm on the statistics of the batch. Only weights change, and biases
    with ``centre``: buffers, training flags, hooks and ``requires_grad`` are as before, and so is everything if an
    error is raised. With ``DistributedDataParallel`` the statistics are those of all processes' batches together, and
    all end up with the same weights.

    Args:
        model: any module
        batch: what its forward takes: a tensor, a tuple or list of arguments, or a dictionary of them; or a
            ``DataLoader``, of which it takes the first 64 samples or, if it is larger, the first batch, without targets
        target: what is made 1, ``"variance"`` or ``"second_moment"``. Default: ``"variance"``
        at: where it is measured, ``"activation"`` or ``"output"``. Default: ``"activation"``
        tol: how far from 1 it may stay. Default: 1e-3
        max_iter: how many measurements a layer may take. Default: 40
        orthogonal: whether weights are made orthogonal first, as in the LSUV paper, or kept. Default: ``True``
        per_channel: whether all channels of an output are brought to the same size first. Default: ``False``
        centre: whether biases are set such that the inputs of activations have mean zero. Default: ``False``
        include: the layers to initialise: a name with wildcards (``"blocks.*"``), a module, a class, a function of name
            and module, or several of these. Default: all
        exclude: the layers to leave out, likewise. Default: none
        generator: where random numbers come from. Default: torch's global generator

    Returns:
        A report with one row for each layer, which prints as a table. Layers that were left alone, because they never
        ran, are frozen, share their weight, or gave their output to something that no torch function shows (such as
        TorchScript), are in it with a note. Where max pooling stands between a layer and its activation, a note says
        how far above zero the activation's input lies. ``report.scaled`` names the parameters that were scaled.

    Raises:
        LSUVError: if a layer cannot be initialised; the message names the layer and the reason.

    Examples::

        >>> model = nn.Sequential(nn.Linear(64, 64), bipolar.BELU(), nn.Linear(64, 10))
        >>> report = bipolar.lsuv_(model, torch.randn(256, 64))
        >>> model[:2](torch.randn(4096, 64)).var().item()  # doctest: +NUMBER
        1.0
        >>> [(row.name, row.kind, row.rounds < 10) for row in report]
        [('0', 'Linear', True), ('2', 'Linear', True)]
        >>> report.scaled
        ['0.weight', '2.weight']
        >>> report = bipolar.lsuv_(model, torch.rand(256, 64), at="output", per_channel=True, centre=True)
        >>> [row.note for row in report]
        ['centred', '']
    """
    check_statistic("target", target)
    if at not in ("activation", "output"):
        raise ValueError(f"at: expected 'activation' or 'output', got {at!r}")
    check_positive("tol", tol)
    check_count("max_iter", max_iter)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected an nn.Module, got {type(model).__name__}")
    group = model.process_group if isinstance(model, DistributedDataParallel) else None
    model = unwrapped(model)
    batch = first_batches(batch, model) if is_loader(batch) else batch
    check_fits(model, batch)
    layers = selected(layers_of(model), include, exclude)
    if not layers:
        raise LSUVError(f"model: there is no layer to initialise in {type(model).__name__}")

    meter, weights = Meter(target, group), WeightSetter(group, generator)
    settings = Settings(
        meter,
        weights,
        after_activation=at == "activation",
        orthogonal=orthogonal,
        per_channel=per_channel,
        centre=centre,
        tol=tol,
        max_iter=max_iter,
    )
    sequence = SequentialPass(layers, left_alone(model, layers), settings)
    with weights, restored(model), torch.no_grad():
        _use_batch_statistics(model.eval())
        _check_finite(batch, model, meter)
        with sequence.hooked():
            with sequence:
                output = call(model, batch)  # kept until the layers that gave it have been scaled
            sequence.finish(output)
            del output
        if not any(row.rounds for row in sequence.rows.values()):
            notes = sorted({row.note for row in sequence.rows.values()})
            raise LSUVError(f"model: no layer of it can be initialised: {', '.join(notes)}")
    return LSUVReport(target, at, list(sequence.rows.values()), parameter_names(model, weights.scaled))


def _use_batch_statistics(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.train()


def _check_finite(batch: Any, model: nn.Module, meter: Meter) -> None:
    """Raises in every process if the batch of any one is not finite: the others would wait for it."""
    finite = all(bool(tensor.isfinite().all()) for tensor in tensors_in(batch) if tensor.is_floating_point())
    if not meter.everywhere(finite, next(iter(model.parameters()), torch.empty(0)).device):
        raise LSUVError("batch: there is NaN or infinity in it")
