"""Parallel streams over a text, for truncated backpropagation through time."""

import torch
from torch import Tensor

from bipolar.lab.errors import UsageError


class Streams:
    """``batch`` parallel streams over a text, in windows of ``window`` characters; the target is the next character.

    The text is cropped to a whole number of windows and cut into as many pieces as there are streams. Each stream
    continues from window to window, so that the state of a recurrent network can be carried along. The start of the
    crop is drawn for each epoch.

    Args:
        text: the characters as indices, of shape (length)
        batch: the number of streams
        window: the number of characters in a window
        name: the name of the text in an error
    """

    def __init__(self, text: Tensor, batch: int, window: int, name: str = "text") -> None:
        self.text, self.batch, self.window = text, batch, window
        #: the number of windows in an epoch
        self.windows = (len(text) - 1) // (batch * window)
        if not self.windows:
            raise UsageError(
                f"{name}: {len(text)} characters are less than one batch of {batch} x {window} + 1; "
                "take a longer text, or a smaller --batch-size or --window"
            )

    def offset(self, generator: torch.Generator | None = None) -> int:
        """The start of an epoch's crop: drawn, or 0 without a generator."""
        slack = len(self.text) - 1 - self.windows * self.batch * self.window
        return 0 if generator is None else int(torch.randint(slack + 1, (), generator=generator))

    def at(self, index: int, offset: int = 0, part: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Input and target of one window, of shape (window, streams), for the streams in ``part``."""
        length = self.windows * self.window

        def window_from(start: int) -> Tensor:
            streams = self.text[start : start + self.batch * length].view(self.batch, length)
            return streams[part, index * self.window : (index + 1) * self.window].mT.long()

        return window_from(offset), window_from(offset + 1)
