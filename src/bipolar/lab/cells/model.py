"""A character-level language model of any cell, called like the paper's."""

from typing import Any

import torch
from torch import Tensor, nn

from bipolar._tools.restoring import evaluating
from bipolar.lab.cells.catalogue import rival
from bipolar.models._hub import HubMixin
from bipolar.models._writer import Writer


class RivalRNN(nn.Module, Writer, HubMixin, library_name="bipolar", license="mit"):
    r"""A fixed embedding, layers of a cell, and a linear decoder: :class:`~bipolar.models.CharRNN` with another cell.

    Args:
        vocabulary: the characters that the model knows, or only their number
        hidden_size: the number of units of each layer
        num_layers: the number of layers, or of levels, of a network that has levels
        cell: the name of the cell, see :data:`~bipolar.lab.cells.catalogue.RIVALS`
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
        symbols = vocabulary if isinstance(vocabulary, int) else len(vocabulary)
        if symbols < 1 or (isinstance(vocabulary, str) and len(set(vocabulary)) != symbols):
            raise ValueError(f"vocabulary: expected different characters, or their number, got {vocabulary!r}")
        self.vocabulary, self.cell = vocabulary, cell
        self.register_buffer("embedding", torch.randn(symbols, hidden_size))
        self.rnn = rival(cell).build(hidden_size, num_layers, dropout, options or {})
        self.decoder = nn.Linear(hidden_size, symbols)

    def forward(
        self, tokens: Tensor, state: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        output, state = self.rnn(nn.functional.embedding(tokens, self.embedding), state, generator=generator)
        return self.decoder(output), state

    def step(self, token: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The logits after one more character, without autograd or dropout; ``token`` of shape (batch) or ()."""
        with torch.no_grad(), evaluating(self):
            logits, state = self(token.reshape(1, -1), state)
        return logits.view(*token.shape, -1), state

    @property
    def num_parameters(self) -> int:
        """The number of trained parameters."""
        return sum(p.numel() for p in self.parameters())
