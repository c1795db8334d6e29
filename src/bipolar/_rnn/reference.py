"""The stack cell by cell in plain autograd: the paper's formulas, and the standard for the tests."""

from collections.abc import Callable

import torch
from torch import Tensor

from bipolar._rnn.handwritten import is_eager
from bipolar._rnn.stack_pass import StackPass


def run(task: StackPass, *, f: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """The outputs (time, batch, hidden_size) and the last states (num_layers, batch, hidden_size).

    Outputs beyond the end of a sequence are computed, and mean nothing: time runs forward, so nothing depends on them.
    The activation ``f`` acts on (batch, hidden_size).
    """
    xs, state, weights, blocks, skip_scale, noise, reset, ends = task
    h = list(state.unbind(0))
    masks = [noise.recurrent_mask(i, past) for i, past in enumerate(h)]
    last = h.copy()
    outputs = []
    decided = not torch.compiler.is_compiling() and is_eager()  # a graph or a transform cannot branch on a draw
    for t in range(len(xs)):
        if reset is not None:
            h = [past.masked_fill(reset[t].unsqueeze(1), 0) for past in h]
        x = block_input = xs[t]
        for i, (u, w, b) in enumerate(weights):
            if blocks.starts(i):
                block_input = x
            dropped = noise.dropped[t, blocks.of(i)] if noise.dropped is not None and blocks.droppable(i) else None
            if dropped is not None and decided and dropped:
                continue  # the identity: x passes by, and h stays
            mask, stayed, passed = masks[i], h[i], x
            past = stayed if mask is None else stayed * mask
            h[i] = f(torch.nn.functional.linear(past, w) + torch.nn.functional.linear(x, u, b))
            if blocks.has_skip(i):
                h[i] = h[i] + skip_scale * block_input
            x = h[i] if noise.output is None else noise.output.at(i, t).zeroed(h[i]) * noise.scale
            if dropped is not None and not decided:
                h[i], x = torch.where(dropped, stayed, h[i]), torch.where(dropped, passed, x)
        outputs.append(x)
        if ends is not None:
            here = (ends == t).unsqueeze(1)
            last = [torch.where(here, now, before) for now, before in zip(h, last, strict=True)]
    if noise.dropped is not None:  # a layer that was always dropped has a gradient, too: zero
        outputs[-1] = outputs[-1] + 0 * sum(p.sum() for layer in weights for p in layer if p is not None)
    return torch.stack(outputs), torch.stack(h if ends is None else last)
