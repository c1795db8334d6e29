"""Exchange of parameters with nn.RNN."""

import pytest
import torch
from torch import nn

import bipolar


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("bias", [True, False])
def test_without_skips_it_loads_and_equals_an_rnn(nonlinearity: str, bias: bool) -> None:
    theirs = nn.RNN(5, 6, num_layers=3, nonlinearity=nonlinearity, batch_first=True, bias=bias)
    ours = bipolar.StackedRNN(5, 6, 3, nonlinearity, skip_every=None, batch_first=True, bias=bias)
    given = theirs.state_dict()
    assert not any(ours.load_state_dict(given))  # nothing missing, nothing unexpected
    assert ("bias_ih_l0" in given) == bias  # what was given is as it was
    x, state = torch.randn(4, 7, 5), torch.randn(3, 4, 6)
    torch.testing.assert_close(ours(x, state), theirs(x, state), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours(x[0], state[:, 0])[0], theirs(x[0], state[:, 0])[0], rtol=1e-5, atol=1e-5)


def test_within_a_model() -> None:
    theirs, ours = (
        nn.ModuleDict({"rnn": m}) for m in (nn.RNN(5, 6), bipolar.StackedRNN(5, 6, 1, "tanh", skip_every=None))
    )
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours["rnn"].bias_l0, theirs["rnn"].bias_ih_l0 + theirs["rnn"].bias_hh_l0)


def test_what_would_compute_something_else_is_refused() -> None:
    theirs = nn.RNN(5, 6, num_layers=8)
    for options in ({"skip_every": None}, {"nonlinearity": "tanh"}):
        with pytest.raises(RuntimeError, match="which is a StackedRNN with skip_every=None and nonlinearity="):
            bipolar.StackedRNN(5, 6, 8, **options).load_state_dict(theirs.state_dict())
