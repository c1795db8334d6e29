"""A small transformer on the protocol of recurrent layers: its state is the keys and values of the last positions."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from bipolar.lab.cells.arguments import check_counts, check_rates
from bipolar.lab.cells.protocol import Cell, Dice, Drawn, State


class RMSNorm(nn.RMSNorm):
    """Torch's, in the precision of its weights: under autocast that warns of two of them."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype))


class Block(nn.Module):
    r"""Attention and an MLP, each with RMSNorm before it and a shortcut around it."""

    def __init__(self, width: int, heads: int, init_scale: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RMSNorm(width, eps=1e-6), RMSNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.merge = nn.Linear(width, width, bias=False)
        self.widen = nn.Linear(width, 4 * width, bias=False)
        self.narrow = nn.Linear(4 * width, width, bias=False)
        for layer in (self.qkv, self.widen):
            nn.init.normal_(layer.weight, std=0.02)
        for layer in (self.merge, self.narrow):
            nn.init.normal_(layer.weight, std=init_scale)

    def forward(
        self, x: Tensor, past: tuple[Tensor, Tensor] | None, mask: Tensor, turns: Tensor, noise: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The output, and the keys and values, all of shape (batch, time, width); the past comes before the input."""
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        if past is not None:
            k, v = torch.cat((past[0], k), dim=1), torch.cat((past[1], v), dim=1)
        split = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v)]
        # Keys are kept unturned: only distances matter, so a pass may number its positions from the oldest one.
        seen = functional.scaled_dot_product_attention(
            turned(split[0], turns[:, -x.shape[1] :]), turned(split[1], turns), split[2], attn_mask=mask
        )
        branch = self.merge(seen.transpose(1, 2).flatten(2))
        x = x + (branch * noise[0] if noise else branch)
        branch = self.narrow(functional.gelu(self.widen(self.norm2(x))))
        return x + (branch * noise[1] if noise else branch), k, v


def turned(x: Tensor, turns: Tensor) -> Tensor:
    """Rotary positions: pairs of features, one from either half, turned by angles that grow with the position."""
    a, b = x.chunk(2, dim=-1)
    cos, sin = turns
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Transformer(Cell):
    r"""A transformer decoder that attends to the last positions, within and before its window.

    .. math::
        u &= x + d \odot \text{Attention}(\text{RMSNorm}(x)) \\
        y &= u + d' \odot W_2 \, \text{GELU}(W_1 \, \text{RMSNorm}(u))

    in each layer, between a linear map of the input and a last RMSNorm. A position attends to itself and to the
    ``context`` positions before it. The state has the keys and values of the last ``context`` positions, so a sequence
    in windows is the sequence in one. Each layer looks back ``context`` positions further, as in a stack of
    convolutions. Masks of dropout, d, are drawn for each step.

    References: Vaswani et al., `Attention Is All You Need <https://arxiv.org/abs/1706.03762>`_, 2017; rotary positions
    from Su et al., `RoFormer <https://arxiv.org/abs/2104.09864>`_, 2021, with base 10,000; norms before the branches,
    RMSNorm, no biases and an MLP of four times the width are common choices since. Weights start normal with a standard
    deviation of 0.02, those that end a branch with 0.02 over the square root of the number of branches, as in GPT-2.

    Args:
        input_size: the width of the input
        hidden_size: the width of the layers
        layers: their number. Default: 4
        heads: the number of heads; each has an even number of features. Default: 4
        context: how many positions before its own a position attends to. Default: 128
        dropout: the rate of dropout of each branch. Default: 0

    Shape:
        - state: (1, batch, context * (2 * layers * hidden_size + 1)): keys and values of each layer, and for each
          position whether there was one. Zeros are the beginning.

    Examples::

        >>> network = Transformer(8, 16, layers=2, context=10)
        >>> output, state = network(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 650]))
        >>> output, state = network(torch.randn(5, 2, 8), state)
    """

    angles: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        layers: int = 4,
        heads: int = 4,
        context: int = 128,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(input_size, hidden_size)
        check_counts(layers=layers, heads=heads, context=context)
        check_rates(dropout=dropout)
        if hidden_size % (2 * heads):
            raise ValueError(
                f"hidden_size: expected a multiple of {2 * heads}, twice the number of heads, got {hidden_size}"
            )
        self.context, self.dropout = context, dropout
        self.sizes = (context * hidden_size,) * (2 * layers) + (context,)
        self.input = nn.Linear(input_size, hidden_size)
        self.blocks = nn.ModuleList(Block(hidden_size, heads, 0.02 * (2 * layers) ** -0.5) for _ in range(layers))
        self.norm = RMSNorm(hidden_size, eps=1e-6)
        pairs = hidden_size // heads // 2
        self.register_buffer("angles", 10_000.0 ** -(torch.arange(pairs) / pairs), persistent=False)

    def prepare(self, x: Tensor) -> Tensor:
        prepared: Tensor = self.input(x)
        return prepared

    def draw(self, steps: int, batch: int, dice: Dice) -> Drawn:
        if not self.training or not self.dropout:
            return Drawn()
        shape = steps, batch, self.hidden_size
        return Drawn(each=tuple(dice.dropped_out(self.dropout, *shape) for _ in range(2 * len(self.blocks))))

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        output, state = self._advance(x.unsqueeze(0), state, [mask.unsqueeze(0) for mask in each])
        return output[0], state

    def forward(
        self, x: Tensor, state: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        steps, batch = x.shape[:2]
        noise = self.draw(steps, batch, Dice(generator, x)).each
        parts = None if state is None else tuple(state[0].split(self.sizes, dim=-1))
        output, parts = self._advance(self.prepare(x), parts, noise)
        return output, torch.cat(parts, dim=-1).unsqueeze(0)

    def _advance(self, x: Tensor, state: State | None, noise: Sequence[Tensor]) -> tuple[Tensor, State]:
        """A window of any length; without a state there is no past to attend to, and none is computed."""
        x = x.transpose(0, 1)
        noise = [mask.transpose(0, 1) for mask in noise]
        batch, steps, width = x.shape
        before = 0 if state is None else self.context
        places = torch.arange(before + steps, device=x.device)
        distance = places[before:, None] - places
        mask = (distance >= 0) & (distance <= self.context)
        there = x.new_ones(batch, steps)
        if state is not None:
            there = torch.cat((state[-1], there), dim=1)
            mask = (mask & (there > 0)[:, None]).unsqueeze(1)
        angles = places[:, None].to(x) * self.angles
        turns = torch.stack((angles.cos(), angles.sin()))
        parts = []
        for layer, block in enumerate(self.blocks):
            past = None
            if state is not None:
                past = state[2 * layer].unflatten(-1, (-1, width)), state[2 * layer + 1].unflatten(-1, (-1, width))
            x, k, v = block(x, past, mask, turns, noise[2 * layer : 2 * layer + 2])
            parts += [self._last(k).flatten(1), self._last(v).flatten(1)]
        return self.norm(x).transpose(0, 1), (*parts, self._last(there.unsqueeze(-1)).flatten(1))

    def _last(self, x: Tensor) -> Tensor:
        """The last positions of (batch, time, ...), with zeros before the first where there are too few."""
        x = x[:, -self.context :]
        return functional.pad(x, (0, 0, self.context - x.shape[1], 0))
