"""The optimiser that we recommend for a network without norms."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from bipolar._init.selection import RECURRENT
from bipolar.optim._muon import Muon
from bipolar.optim._pin import Pin, pin
from bipolar.optim._roles import groups, parts_of


def recommended(
    model: nn.Module,
    lr: float = 0.05,
    *,
    adam_lr: float = 4e-3,
    gain: float | None = None,
    last: str | Iterable[str] | None = None,
    lsuv_report: Any = None,
) -> tuple[Muon, Pin | None]:
    r"""Muon for hidden matrices, Adam for the rest, and each filter pinned at the norm that LSUV gave it.

    Initialise the model with :func:`~bipolar.lsuv_` on the second moment first; let the rates rise over the first steps
    and fall to zero over the rest, with any scheduler of torch. A smooth activation such as ELU does better than ReLU.

    The weights of recurrent layers are not pinned: a stack learns worse with rows of constant norm.

    Args:
        model: the model, initialised
        lr: the rate of Muon. Default: 0.05; for a recurrent stack, 0.02 is the rate that we know
        adam_lr: the rate of Adam. Default: 4e-3
        gain: a learned gain for each pinned filter, as for :func:`bipolar.optim.pin`. In a residual network 0.2, with
            an ``adam_lr`` of 0.01, was worth a point of test error over six epochs, and nothing over two. After
            ``lsuv_(..., centre=True)`` it was worth some tenths more; in a plain network with max pooling centring
            costs. Default: none
        last: the last layers, as for :func:`bipolar.optim.groups`
        lsuv_report: as for :func:`bipolar.optim.pin`

    Returns:
        the optimiser, and the handle and report of the pin, None where there is nothing to pin but recurrent layers

    Examples::

        >>> model = bipolar.models.WideResNet(depth=10, widen_factor=1, activation="elu", dropout=0.0)
        >>> report = bipolar.lsuv_(model, torch.randn(16, 3, 32, 32), target="second_moment")
        >>> optimizer, pinned = bipolar.optim.recommended(model, lr=0.05)
        >>> schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=400)
        >>> len(pinned.pinned)
        9
    """
    # Rates, momentum and four iterations are one setting, the best of a few that were tried on CIFAR-10.
    optimizer = Muon(groups(model, last=last), lr, momentum=0.9, ns_steps=4, adam_lr=adam_lr)
    parts = parts_of(model, last)
    recurrent = {part.name for part in parts if any(isinstance(owner, RECURRENT) for owner in part.owners)}
    if all(part.name in recurrent for part in parts if part.role == "matrix"):
        return optimizer, None
    return optimizer, pin(optimizer, model, gain=gain, last=last, exclude=recurrent, lsuv_report=lsuv_report)
