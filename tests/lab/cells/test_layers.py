"""Layers of cells: one above the other, states side by side, dropout on outputs."""

import pytest
import torch
from torch import nn

from bipolar.lab.cells.layers import Layers
from bipolar.lab.cells.vanilla import Vanilla


def test_layers_read_the_outputs_of_the_one_below() -> None:
    rnn = Layers(Vanilla, 3, 4, 2)
    x, state = torch.randn(5, 2, 3), torch.randn(1, 2, 8)
    first, h1 = rnn.layers[0](x, state[..., :4])
    second, h2 = rnn.layers[1](first, state[..., 4:])
    output, last = rnn(x, state)
    torch.testing.assert_close(output, second)
    torch.testing.assert_close(last, torch.cat((h1, h2), dim=-1))
    for ours, zero in zip(rnn(x), rnn(x, torch.zeros(1, 2, 8)), strict=True):
        torch.testing.assert_close(ours, zero)


def test_torch() -> None:
    """Two tanh layers are those of torch."""
    rnn, theirs = Layers(Vanilla, 3, 4, 2), nn.RNN(3, 4, 2)
    with torch.no_grad():
        for i, layer in enumerate(rnn.layers):
            getattr(theirs, f"weight_ih_l{i}").copy_(layer.input.weight)
            getattr(theirs, f"weight_hh_l{i}").copy_(layer.recurrent)
            getattr(theirs, f"bias_ih_l{i}").copy_(layer.input.bias)
            getattr(theirs, f"bias_hh_l{i}").zero_()
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(rnn(x)[0], theirs(x)[0])


def test_dropout_is_on_the_outputs_in_training_alone() -> None:
    rnn = Layers(Vanilla, 3, 200, 1, dropout=0.25)
    x = torch.randn(20, 10, 3)
    generators = [torch.Generator().manual_seed(seed) for seed in (1, 1, 2)]
    one, same, other = (rnn(x, generator=generator)[0] for generator in generators)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    still = rnn.eval()(x)[0]
    dropped = one == 0
    assert float(dropped.float().mean()) == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / dropped.numel()) ** 0.5)
    torch.testing.assert_close(one[~dropped], still[~dropped] / 0.75)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden_size": 0}, "hidden_size: expected at least 1, got 0"),
        ({"num_layers": 0}, "num_layers: expected at least 1, got 0"),
        ({"dropout": 1.0}, "dropout: expected a rate from 0 up to, not including, 1, got 1.0"),
    ],
)
def test_bad_arguments(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layers(Vanilla, **{"input_size": 3, "hidden_size": 4} | arguments)
