"""HM-LSTM: levels that detect boundaries, and update the level above only there."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from bipolar.lab.cells.arguments import check_counts
from bipolar.lab.cells.protocol import Cell, State, uniform_


class HMLSTM(Cell):
    r"""A hierarchical multiscale LSTM with its output embedding.

    Level l has a state h, a memory c and a boundary z, 0 or 1. With :math:`z^0 = 1` and :math:`h^0_t = x_t`:

    .. math::
        s^l_t &= U^l h^l_{t-1} + z^l_{t-1} V^l h^{l+1}_{t-1} + z^{l-1}_t W^l h^{l-1}_t + b^l \\
        f, i, o &= \sigma(s_f), \sigma(s_i), \sigma(s_o), \quad g = \tanh(s_g), \quad
            \tilde z = \max(0, \min(1, (a s_z + 1) / 2)), \quad z^l_t = [\tilde z > 1/2] \\
        c^l_t &= \begin{cases}
            i \odot g & \text{if } z^l_{t-1} = 1 \text{ (flush)} \\
            f \odot c^l_{t-1} + i \odot g & \text{if } z^l_{t-1} = 0, z^{l-1}_t = 1 \text{ (update)} \\
            c^l_{t-1} & \text{otherwise (copy)} \end{cases} \\
        h^l_t &= o \odot \tanh(c^l_t), \text{ or } h^l_{t-1} \text{ when copied} \\
        y_t &= \max\bigl(0, \sum_l \sigma(w_l \cdot [h^1_t; \dots; h^L_t]) E^l h^l_t\bigr)

    The gradient passes straight through the step of z, as that of :math:`\tilde z`. Its slope a begins at 1;
    call :meth:`anneal` at each epoch. The top level has no level above it, no detector and no flush.

    Reference: Chung et al., `Hierarchical Multiscale Recurrent Neural Networks <https://arxiv.org/abs/1609.01704>`_,
    2016. There: three levels, of 512 units on Penn Treebank with an output embedding of 512, of 1,024 units on Text8
    with one of 2,048; layer norm; the slope :math:`\min(5, 1 + 0.04 \cdot \text{epoch})`, but 1 on Text8. Layer norm
    stands where Ba et al. have it in an
    LSTM: on each of the three products, over all gates together, before z switches it, and on c within the last tanh.
    That place, the start of torch's own cells, zero biases, and a detector that also works where its level copies are
    our choice.

    Args:
        input_size: the width of the input
        hidden_size: the width of the output embedding
        level_size: the width of each level. Default: ``hidden_size``
        levels: L, at least 2. Default: 3
        layer_norm: whether to have layer norm. Default: ``False``
        annealed: whether :meth:`anneal` makes the slope steeper; else it stays at 1. Default: ``True``

    Examples::

        >>> layer = HMLSTM(8, 16, layer_norm=True)
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 98]))
        >>> layer.anneal(epoch=10)
        >>> layer.slope
        tensor(1.4000)
    """

    slope: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        level_size: int | None = None,
        levels: int = 3,
        layer_norm: bool = False,
        annealed: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size)
        width = hidden_size if level_size is None else level_size
        check_counts(level_size=width)
        self.annealed = annealed
        if levels < 2:
            raise ValueError(f"levels: expected at least 2 of them, got {levels}")
        self.levels, self.level_size = levels, width
        self.sizes = (width,) * (2 * levels) + (1,) * (levels - 1)  # each h, each c, each z
        #: the widths of s: four gates, and all but the top have a detector
        self.slices = [4 * width + 1] * (levels - 1) + [4 * width]
        self.register_buffer("slope", torch.tensor(1.0))
        self.bottom_up = nn.ParameterList(
            torch.empty(rows, width if level else input_size) for level, rows in enumerate(self.slices)
        )
        # What a state says to its own level, over what it says to the level below.
        self.recurrent = nn.ParameterList(
            torch.empty(rows + (self.slices[level - 1] if level else 0), width)
            for level, rows in enumerate(self.slices)
        )
        self.biases = nn.ParameterList(torch.zeros(rows) for rows in self.slices)
        self.gates = nn.Linear(levels * width, levels, bias=False)
        self.embedding = nn.Linear(levels * width, hidden_size, bias=False)
        uniform_([*self.bottom_up, *self.recurrent], width)
        self.norms: nn.ModuleDict | None = None
        if layer_norm:
            # One bias is enough for the sum of the three, but that of c has its own.
            self.norms = nn.ModuleDict(
                {
                    "bottom_up": nn.ModuleList(nn.LayerNorm(rows, bias=False) for rows in self.slices),
                    "recurrent": nn.ModuleList(nn.LayerNorm(rows, bias=False) for rows in self.slices),
                    "top_down": nn.ModuleList(nn.LayerNorm(rows, bias=False) for rows in self.slices[:-1]),
                    "cell": nn.ModuleList(nn.LayerNorm(width) for _ in range(levels)),
                }
            )

    @torch.no_grad()
    def anneal(self, epoch: int) -> None:
        """Set the slope of the detectors for an epoch, the first of which is 0: steeper, up to 5."""
        if self.annealed:
            self.slope.fill_(min(5.0, 1 + 0.04 * epoch))

    def _normed(self, kind: str, level: int, x: Tensor) -> Tensor:
        if self.norms is None:
            return x
        found: Tensor = cast(nn.ModuleList, self.norms[kind])[level](x)
        return found

    def _boundary(self, x: Tensor) -> Tensor:
        soft = ((self.slope * x + 1) / 2).clamp(0, 1)
        # The value is hard, the gradient that of the soft one.
        return (soft > 0.5).to(soft) + (soft - soft.detach())

    def prepare(self, x: Tensor) -> Tensor:
        prepared: Tensor = self._normed("bottom_up", 0, nn.functional.linear(x, self.bottom_up[0])) + self.biases[0]
        return prepared

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        hs, cs = state[: self.levels], state[self.levels : 2 * self.levels]
        zs = state[2 * self.levels :]
        own, down = [], []
        for level, (h, weight) in enumerate(zip(hs, self.recurrent, strict=True)):
            product = h @ weight.T
            own.append(self._normed("recurrent", level, product[:, : self.slices[level]]))
            if level:
                down.append(self._normed("top_down", level - 1, product[:, self.slices[level] :]))
        new_hs: list[Tensor] = []
        new_cs: list[Tensor] = []
        new_zs: list[Tensor] = []
        for level, (h, c) in enumerate(zip(hs, cs, strict=True)):
            s = own[level]
            if level == 0:
                s = s + x
            else:
                said = self._normed("bottom_up", level, new_hs[-1] @ self.bottom_up[level].T)
                s = torch.addcmul(s + self.biases[level], new_zs[-1], said)
            if level < self.levels - 1:
                s = torch.addcmul(s, zs[level], down[level])
            f, i, o, g = s[:, : 4 * self.level_size].chunk(4, dim=-1)
            entering, kept = torch.sigmoid(i) * torch.tanh(g), torch.sigmoid(f) * c
            if level == 0:  # the input always comes: an update, or a flush
                new_c = (1 - zs[0]) * kept + entering
            elif level < self.levels - 1:
                below, flush = new_zs[-1], zs[level]
                stay = 1 - flush
                new_c = flush * entering + stay * (below * (kept + entering) + (1 - below) * c)
            else:
                new_c = new_zs[-1] * (kept + entering) + (1 - new_zs[-1]) * c
            new_h = torch.sigmoid(o) * torch.tanh(self._normed("cell", level, new_c))
            if level:
                copied = 1 - new_zs[-1] if level == self.levels - 1 else (1 - zs[level]) * (1 - new_zs[-1])
                new_h = copied * h + (1 - copied) * new_h
            new_hs.append(new_h)
            new_cs.append(new_c)
            if level < self.levels - 1:
                new_zs.append(self._boundary(s[:, -1:]))
        return torch.cat(new_hs, dim=-1), (*new_hs, *new_cs, *new_zs)

    def finish(self, raw: Tensor) -> Tensor:
        gated = torch.sigmoid(self.gates(raw)).unsqueeze(-1) * raw.unflatten(-1, (self.levels, self.level_size))
        return torch.relu(self.embedding(gated.flatten(-2)))
