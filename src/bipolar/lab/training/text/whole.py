"""Evaluation over a whole text, no character of which is left out, in one stream or several."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bipolar.lab.errors import UsageError
from bipolar.lab.training.progress import followed

#: Characters that a model reads at once, where no gradient asks for fewer.
LONG = 1000


class WholeText:
    """A text cut into streams of equal length, each read from its start to its end.

    With one stream, all characters but the first are predicted, each from all before it, as the field reports it. With
    more, as many as would not fill a stream each are left out at the end.

    Args:
        text: the characters as indices, of shape (length)
        streams: the number of streams
        name: the name of the text in an error
    """

    def __init__(self, text: Tensor, streams: int = 1, name: str = "text") -> None:
        self.length = (len(text) - 1) // streams
        if self.length < 1:
            raise UsageError(f"{name}: {len(text)} characters are less than two for each of {streams} streams")
        used = self.length * streams
        self.input, self.target = (part.view(streams, self.length) for part in (text[:used], text[1 : used + 1]))

    def windows(self, size: int) -> list[tuple[Tensor, Tensor]]:
        """Inputs and targets, (window, streams) each, one after the other; the last window may be shorter."""
        pairs = zip(self.input.split(size, dim=1), self.target.split(size, dim=1), strict=True)
        return [(x.mT, y.mT) for x, y in pairs]


@torch.no_grad()
def bpc_of(model: nn.Module, text: WholeText, *, show: bool = False) -> float:
    """Bits per character, the state carried along from a start at zero."""
    nats, state = 0.0, None
    for x, y in on(device_of(model), followed(text.windows(LONG), "evaluation", show=show)):
        logits, state = model(x, state)
        nats += float(cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum"))
    return nats / text.target.numel() / math.log(2)


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def on(device: torch.device, windows: Iterator[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """The windows as a model takes them."""
    for x, y in windows:
        yield x.long().to(device), y.long().to(device)
