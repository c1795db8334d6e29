"""Pairing of a bipolar model with its plain twin: the same function at the start, to compare runs in pairs."""

from typing import cast

import torch

from bipolar._activations.channelwise import ChannelActivation
from bipolar._activations.patterns import signs
from bipolar._rnn import StackedRNN
from bipolar.models import CharRNN


@torch.no_grad()
def pair_with_plain(model: CharRNN) -> None:
    """Flips signs of a fresh bipolar model, so that it computes the plain model of the same random numbers.

    One start is as likely as the other. Two runs that differ in bipolarity alone then share their noise. The gains of
    the two activations still differ; LSUV sets the scales.
    """
    activation = getattr(model.rnn, "activation", None)
    if not isinstance(activation, ChannelActivation):
        return
    rnn = cast(StackedRNN, model.rnn)
    sign = signs(rnn.hidden_size, activation.pattern)
    for weight in (model.embedding, model.decoder.weight):
        weight.mul_(sign)
    for u, w, _ in rnn.layers():
        for weight in (u, w):
            weight.mul_(sign).mul_(sign[:, None])
