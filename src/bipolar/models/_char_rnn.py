"""CharRNN: the paper's character-level language model."""

from collections.abc import Callable, Iterable
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from bipolar._init.report import LSUVReport
from bipolar._init.stacked import lsuv_rnn_
from bipolar._rnn import StackedRNN
from bipolar._symmetry.example import inputs_for
from bipolar._tools.choices import Balance, CellName, Pattern, Statistic
from bipolar._tools.restoring import evaluating
from bipolar.models._hub import HubMixin
from bipolar.models._writer import Writer, symbols_of


def one_hot(symbols: int) -> Tensor:
    """The characters one-hot, scaled to a unit second moment, (symbols, symbols)."""
    return torch.eye(symbols).mul_(symbols**0.5)


class CharRNN(nn.Module, Writer, HubMixin, library_name="bipolar", license="mit"):
    r"""A fixed embedding, a deep recurrent stack, and a linear decoder.

    .. math::
        p(c_{t+1}) = \text{softmax}(D \, h_L(t) + d), \quad h(t) = \text{rnn}(E_{c_t}, h(t-1))

    The embedding E is not trained. For the stack it is :math:`\mathcal{N}(0, 1)` and as wide as the layers, as in the
    paper; torch's own cells read the characters one-hot, times the square root of their number.

    Args:
        vocabulary: the characters that the model knows, or only their number
        hidden_size: the number of units of each layer
        num_layers: the number of layers
        cell: ``"stack"``, the paper's, or for comparison torch's ``"lstm"``, ``"gru"`` or ``"rnn"`` (tanh), which take
            ``dropout`` alone. Default: ``"stack"``
        nonlinearity, skip_every, skip_scale, dropout, recurrent_dropout, block_dropout, gamma, pattern, recompute: as
            for :class:`~bipolar.StackedRNN`

    Shape:
        - tokens: (time, batch) or (time), int64
        - logits: (time, batch, number of characters) or (time, number of characters)

    Examples::

        >>> model = bipolar.models.CharRNN("abc ", hidden_size=32, num_layers=8)
        >>> logits, state = model(torch.tensor([[0, 1], [3, 2]]))
        >>> logits.shape
        torch.Size([2, 2, 4])
    """

    embedding: Tensor

    def __init__(
        self,
        vocabulary: str | int,
        hidden_size: int = 256,
        num_layers: int = 36,
        *,
        cell: CellName = "stack",
        nonlinearity: str = "belu",
        skip_every: int | None = 4,
        skip_scale: float = 0.99,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        block_dropout: float = 0.0,
        gamma: float = 0.5,
        pattern: Pattern = "alternate",
        recompute: bool = False,
    ) -> None:
        super().__init__()
        if cell not in get_args(CellName):
            raise ValueError(f"cell: expected one of {', '.join(map(repr, get_args(CellName)))}, got {cell!r}")
        symbols = symbols_of(vocabulary)
        for name, count in (("hidden_size", hidden_size), ("num_layers", num_layers)):
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}; the cell is {cell!r}")
        self.vocabulary = vocabulary
        self.register_buffer("embedding", torch.randn(symbols, hidden_size) if cell == "stack" else one_hot(symbols))
        self.rnn: nn.Module
        if cell == "stack":
            self.rnn = StackedRNN(
                hidden_size,
                hidden_size,
                num_layers,
                nonlinearity,
                skip_every=skip_every,
                skip_scale=skip_scale,
                dropout=dropout,
                recurrent_dropout=recurrent_dropout,
                block_dropout=block_dropout,
                gamma=gamma,
                pattern=pattern,
                recompute=recompute,
            )
        else:
            for name, rate in (("recurrent_dropout", recurrent_dropout), ("block_dropout", block_dropout)):
                if rate:
                    raise ValueError(f"{name}: torch's own {cell!r} has dropout between its layers alone, got {rate}")
            if not 0 <= dropout < 1:
                raise ValueError(f"dropout: expected a rate in [0, 1), got {dropout}; the cell is {cell!r}")
            kind = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[cell]
            self.rnn = kind(symbols, hidden_size, num_layers, dropout=dropout if num_layers > 1 else 0.0)
        self.cell = cell
        self.decoder = nn.Linear(hidden_size, symbols)

    def forward(
        self, tokens: Tensor, state: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        x = nn.functional.embedding(tokens, self.embedding)
        if self.cell == "stack":
            output, state = self.rnn(x, state, generator=generator)
        else:
            output, state = self._of_torch(x, state)
        return self.decoder(output), cast(Tensor, state)

    def step(self, token: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The logits after one more character, without autograd or dropout; ``token`` of shape (batch) or ()."""
        with torch.no_grad():
            x = nn.functional.embedding(token, self.embedding)
            if isinstance(self.rnn, StackedRNN):
                output, state = self.rnn.step(x, state)
            else:
                with evaluating(self.rnn):
                    output, state = self._of_torch(x.unsqueeze(0), state)
                output = output.squeeze(0)
            return self.decoder(output), state

    def reader(self) -> Callable[[Tensor], Tensor]:
        """A function that takes one character after the other, of shape (1), and returns the logits after it.

        That of a stack has copies of its weights: ask for another after you have changed them.
        """
        if not isinstance(self.rnn, StackedRNN):
            return super().reader()
        stepper = self.rnn.stepper()

        @torch.no_grad()
        def read(token: Tensor) -> Tensor:
            logits: Tensor = self.decoder(stepper(nn.functional.embedding(token, self.embedding)))
            return logits

        return read

    def _of_torch(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Calls a cell of torch like the stack, with the two states of an LSTM side by side in one tensor."""
        if self.cell != "lstm":
            output, state = self.rnn(x, state)
            return output, cast(Tensor, state)
        pair = None if state is None else tuple(part.contiguous() for part in state.chunk(2, dim=-1))
        output, (h, c) = self.rnn(x, pair)
        return output, torch.cat((h, c), dim=-1)

    def initialise(
        self,
        target: Statistic = "variance",
        *,
        balance: Balance = "magnitude",
        tokens: int = 128,
        generator: torch.Generator | None = None,
    ) -> LSUVReport | None:
        """The paper's LSUV on random tokens, see :func:`~bipolar.lsuv_rnn_`; torch's own cells keep their start."""
        if not isinstance(self.rnn, StackedRNN):
            return None
        drawn = torch.randint(len(self.embedding), (tokens,), generator=generator)
        samples = self.embedding[drawn.to(self.embedding.device)]
        return lsuv_rnn_(self.rnn, samples, target=target, balance=balance, generator=generator)

    @property
    def num_parameters(self) -> int:
        """The number of trained parameters."""
        return sum(p.numel() for p in self.parameters())

    @staticmethod
    def width_for(params: float, num_layers: int, vocab: int, cell: CellName = "stack") -> int:
        """The width at which a model comes closest to a number of parameters."""
        gates, biases = {"stack": (1, 1), "rnn": (1, 2), "gru": (3, 2), "lstm": (4, 2)}[cell]

        def count(width: int) -> int:
            layer = gates * (2 * width * width + biases * width)
            lowest = 0 if cell == "stack" else gates * width * (vocab - width)  # which reads characters one-hot
            return num_layers * layer + lowest + (width + 1) * vocab

        width = 1
        while count(width + 1) <= params:
            width += 1
        return min((width, width + 1), key=lambda candidate: abs(count(candidate) - params))

    @classmethod
    def for_budget(
        cls,
        params: float = 4.75e6,
        num_layers: int = 36,
        vocab: str | int = 50,
        *,
        cell: CellName = "stack",
        **options: object,
    ) -> "CharRNN":
        """A model with about so many parameters: the width is chosen.

        Examples::

            >>> bipolar.models.CharRNN.for_budget(params=4.75e6, num_layers=36, vocab=50).rnn.hidden_size
            256
        """
        symbols = vocab if isinstance(vocab, int) else len(vocab)
        width = cls.width_for(params, num_layers, symbols, cell)
        return cls(vocab, width, num_layers, cell=cell, **options)  # type: ignore[arg-type]


@inputs_for.register
def _(module: CharRNN) -> Iterable[Any]:
    return [torch.zeros(3, 2, dtype=torch.int64, device=module.embedding.device)]
