"""The reference against the paper's formula."""

import torch
from torch import nn

import bipolar


def test_the_reference_is_the_formula_of_the_paper() -> None:
    """Written out by hand for five layers, with skips every two: the last layer is an incomplete block."""
    rnn = bipolar.StackedRNN(3, 3, 5, "belu", skip_every=2, skip_scale=0.7, dtype=torch.float64, backend="reference")
    for parameter in rnn.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    f = bipolar.BELU(dim=-1)
    h = [[torch.zeros(2, 3, dtype=torch.float64)] for _ in range(5)]
    for t in range(4):
        below = x[t]
        for i in range(5):
            u, w, b = (getattr(rnn, f"{name}_l{i}") for name in ("weight_ih", "weight_hh", "bias"))
            new = f(h[i][t] @ w.T + below @ u.T + b)
            if i == 1:
                new = new + 0.7 * x[t]
            if i == 3:
                new = new + 0.7 * h[1][t + 1]
            h[i].append(new)
            below = new
    output, state = rnn(x)
    torch.testing.assert_close(output, torch.stack(h[4][1:]))
    torch.testing.assert_close(state, torch.stack([layer[-1] for layer in h]))
