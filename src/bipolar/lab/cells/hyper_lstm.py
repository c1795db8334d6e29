"""HyperLSTM: a small LSTM that scales the weights of a large one, row by row and step by step."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bipolar.lab.cells.arguments import check_counts, check_rates
from bipolar.lab.cells.protocol import Cell, Dice, Drawn, State

EPSILON = 1e-3  # of layer norm, as in the released code


class _Norms(nn.Module):
    """Layer norm of each gate by itself: the last dimension is the width, the one before the gates."""

    def __init__(self, width: int, *gates: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(*gates, width))
        self.bias = nn.Parameter(torch.zeros(*gates, width))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], eps=EPSILON) * self.gain + self.bias


class HyperLSTM(Cell):
    r"""An LSTM whose weights a hypernetwork changes.

    The hypernetwork is an LSTM of fewer units over :math:`[x_t; h_{t-1}]`, with state :math:`\hat h_t`. For each gate
    :math:`k \in \{i, g, f, o\}`:

    .. math::
        z^k_h &= A^k_h \hat h_t + e^k_h, \quad z^k_x = A^k_x \hat h_t + e^k_x, \quad z^k_b = A^k_b \hat h_t \\
        a^k_t &= \text{LN}(D^k_h z^k_h \odot W^k_h h_{t-1} + D^k_x z^k_x \odot W^k_x x_t + D^k_b z^k_b + b^k) \\
        c_t &= \sigma(a^f_t + 1) \odot c_{t-1} + \sigma(a^i_t) \odot d_t \odot \tanh(a^g_t) \\
        h_t &= \sigma(a^o_t) \odot \tanh(\text{LN}(c_t))

    With ``layer_norm`` the hypernetwork has it too, in the same places, instead of biases. The mask of dropout, d,
    is drawn for each step.

    Reference: Ha et al., `HyperNetworks <https://arxiv.org/abs/1609.09106>`_, 2016. There, on the characters of Penn
    Treebank: 1,000 units, 128 in the hypernetwork, embeddings of 4 (4.91 million parameters with the softmax, 4.92 with
    layer norm) or 16, recurrent dropout of 0.1, or 0.15 with embeddings of 16. The text computes z from
    :math:`\hat h_{t-1}`; the released code and we, from :math:`\hat h_t`. The start is that of the released code: the D
    that scale begin at 0.1 over the embedding size and their z at one, so that each weight begins at a tenth; what
    shifts begins at zero; the recurrent weights of each gate begin orthogonal.

    Args:
        input_size: the width of the input
        hidden_size: the width of the layer
        hyper_size: the width of the hypernetwork. Default: 128
        embedding_size: the width of each z. Default: 4
        layer_norm: whether to have LN. Default: ``False``
        recurrent_dropout: the rate of dropout of what enters the memory. Default: 0

    Examples::

        >>> layer = HyperLSTM(8, 16, hyper_size=4, embedding_size=2, layer_norm=True)
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 40]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        hyper_size: int = 128,
        embedding_size: int = 4,
        layer_norm: bool = False,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__(input_size, hidden_size)
        check_counts(hyper_size=hyper_size, embedding_size=embedding_size)
        check_rates(recurrent_dropout=recurrent_dropout)
        self.hyper_size, self.embedding_size = hyper_size, embedding_size
        self.recurrent_dropout = recurrent_dropout
        self.sizes = (hidden_size, hidden_size, hyper_size, hyper_size)  # h, c, and the hypernetwork's
        main, hyper = 4 * hidden_size, 4 * hyper_size
        # The rows of the large LSTM over those of the hypernetwork; gates i, g, f, o.
        self.input = nn.Parameter(torch.empty(main + hyper, input_size))
        self.recurrent = nn.Parameter(torch.empty(main + hyper, hidden_size))
        self.hyper_recurrent = nn.Parameter(torch.empty(hyper, hyper_size))
        self.bias = nn.Parameter(torch.zeros(4, 1, hidden_size))
        self.hyper_bias = None if layer_norm else nn.Parameter(torch.zeros(hyper))
        # A: the embeddings that scale the state's product, those that scale the input's, and those that shift.
        self.embed = nn.Parameter(torch.zeros(12 * embedding_size, hyper_size))
        self.embed_bias = nn.Parameter(torch.ones(8 * embedding_size))
        self.decode = nn.Parameter(torch.full((12, embedding_size, hidden_size), 0.1 / embedding_size))  # D
        self.norms = _Norms(hidden_size, 4, 1) if layer_norm else None
        self.cell_norm = _Norms(hidden_size) if layer_norm else None
        self.hyper_norms = _Norms(hyper_size, 4) if layer_norm else None
        self.hyper_cell_norm = _Norms(hyper_size) if layer_norm else None
        nn.init.xavier_uniform_(self.input[:main])
        nn.init.xavier_uniform_(self.input[main:])
        for block in (*self.recurrent.split([hidden_size] * 4 + [hyper_size] * 4), *self.hyper_recurrent.chunk(4)):
            nn.init.orthogonal_(block)
        nn.init.normal_(self.embed[8 * embedding_size :], std=0.01)
        nn.init.zeros_(self.decode[8:])

    def prepare(self, x: Tensor) -> Tensor:
        bias = None if self.hyper_bias is None else nn.functional.pad(self.hyper_bias, (4 * self.hidden_size, 0))
        return nn.functional.linear(x, self.input, bias)

    def draw(self, steps: int, batch: int, dice: Dice) -> Drawn:
        once = (nn.functional.pad(self.embed_bias, (0, 4 * self.embedding_size)),)
        return Drawn(once, self.dropped(dice, self.recurrent_dropout, steps, batch, self.hidden_size))

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        h, c, hyper_h, hyper_c = state
        batch, main, embedding = len(h), 4 * self.hidden_size, self.embedding_size
        product = h @ self.recurrent.T  # for both networks at once

        gates = torch.addmm(product[:, main:] + x[:, main:], hyper_h, self.hyper_recurrent.T).view(batch, 4, -1)
        if self.hyper_norms is not None:
            gates = self.hyper_norms(gates)
        i, g, f, o = gates.unbind(1)
        hyper_c = torch.sigmoid(f + 1) * hyper_c + torch.sigmoid(i) * torch.tanh(g)
        seen = hyper_c if self.hyper_cell_norm is None else self.hyper_cell_norm(hyper_c)
        hyper_h = torch.sigmoid(o) * torch.tanh(seen)

        z = torch.addmm(once[0], hyper_h, self.embed.T)
        scale_h, scale_x, shift = torch.bmm(z.view(batch, 12, embedding).transpose(0, 1), self.decode).chunk(3)
        of_h, of_x = (p[:, :main].view(batch, 4, -1).transpose(0, 1) for p in (product, x))
        gates = scale_h * of_h + scale_x * of_x + shift + self.bias
        if self.norms is not None:
            gates = self.norms(gates)
        i, g, f, o = gates.unbind(0)
        g = torch.tanh(g) * each[0] if each else torch.tanh(g)
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * g
        h = torch.sigmoid(o) * torch.tanh(c if self.cell_norm is None else self.cell_norm(c))
        return h, (h, c, hyper_h, hyper_c)
