"""A character-level language model of any cell, called like the paper's."""

from typing import Any

import torch
from torch import Tensor, nn

from bipolar._tools.restoring import evaluating
from bipolar.lab.cells.arguments import check_counts
from bipolar.lab.cells.catalogue import RIVALS
from bipolar.lab.cells.protocol import Cell
from bipolar.models._char_rnn import one_hot
from bipolar.models._hub import HubMixin
from bipolar.models._load import KINDS
from bipolar.models._writer import Writer, symbols_of


class RivalRNN(nn.Module, Writer, HubMixin, library_name="bipolar", license="mit"):
    r"""Layers of a cell that read characters one-hot, and a linear decoder.

    An embedding as wide as the layers, which :class:`~bipolar.models.CharRNN` has for the paper's stack, would cost the
    cells weights in their first layer that bring nothing: as published, they read the characters themselves, all but
    the recurrent highway network, which has a small trained embedding there. They are scaled to a unit second moment,
    as that embedding is.

    Args:
        vocabulary: the characters that the model knows, or only their number
        hidden_size: the number of units of each layer
        num_layers: the number of layers, or of levels, of a network that has levels
        cell: the name of the cell, one of :data:`~bipolar.lab.cells.catalogue.RIVALS`
        dropout: the dropout on the output of each layer. Default: 0
        options: the options of the cell by name; those that are missing have their published values. Default: none

    Shape:
        - tokens: (time, batch), int64
        - state: (1, batch, the state's width)
        - logits: (time, batch, number of characters)

    Examples::

        >>> model = RivalRNN("abc ", hidden_size=16, num_layers=1, cell="mlstm")
        >>> logits, state = model(torch.tensor([[0, 1], [3, 2]]))
        >>> logits.shape
        torch.Size([2, 2, 4])
    """

    embedding: Tensor

    def __init__(
        self,
        vocabulary: str | int,
        hidden_size: int,
        num_layers: int,
        cell: str,
        dropout: float = 0.0,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        symbols = symbols_of(vocabulary)
        if cell not in RIVALS:
            raise ValueError(f"cell: expected one of {', '.join(map(repr, RIVALS))}, got {cell!r}")
        self.vocabulary, self.cell = vocabulary, cell
        #: a term of the loss from the last pass in training; None without one
        self.penalty: Tensor | None = None
        self.rnn = RIVALS[cell].build(cell, symbols, hidden_size, num_layers, dropout, options or {})
        self.register_buffer("embedding", one_hot(symbols))
        self.decoder = nn.Linear(hidden_size, symbols)

    def forward(
        self, tokens: Tensor, state: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        output, state = self.rnn(nn.functional.embedding(tokens, self.embedding), state, generator=generator)
        penalties = [module.penalty for module in self.rnn.modules() if isinstance(module, Cell)]
        found = [penalty for penalty in penalties if penalty is not None]
        self.penalty = torch.stack(found).sum() if found else None
        return self.decoder(output), state

    def step(self, token: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The logits after one more character, without autograd or dropout; ``token`` of shape (batch) or ()."""
        with torch.no_grad(), evaluating(self):
            logits, state = self(token.reshape(1, -1), state)
        return logits.view(*token.shape, -1), state

    def start_epoch(self, epoch: int) -> None:
        """Tells layers that change over a training which epoch begins, the first of which is 0."""
        for module in self.rnn.modules():
            anneal = getattr(module, "anneal", None)
            if anneal is not None:
                anneal(epoch)

    @property
    def num_parameters(self) -> int:
        """The number of trained parameters."""
        return sum(p.numel() for p in self.parameters())

    @classmethod
    def width_for(
        cls, params: float, num_layers: int, vocab: int, cell: str, options: dict[str, Any] | None = None
    ) -> int:
        """The width at which a model comes closest to a number of parameters, of those that its cell can have."""

        def count(width: int) -> int:
            with torch.device("meta"):
                return cls(vocab, width, num_layers, cell, options=options).num_parameters

        # heads share the width of a transformer: each has an even number of its units
        heads = int((options or {}).get("heads", 4))
        check_counts(heads=heads)
        unit = 2 * heads if cell == "transformer" else 1
        low, high = 0, 1
        while count(high * unit) < params:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if count(middle * unit) < params else (low, middle)
        return unit * min((w for w in (low, high) if w), key=lambda width: abs(count(width * unit) - params))


KINDS.append(RivalRNN)
