"""Exchange of parameters with ``nn.RNN``, which is a stack of tanh or ReLU layers without skips."""

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from bipolar._rnn.stack import StackedRNN

_NONLINEARITIES = {nn.Tanh: "tanh", nn.ReLU: "relu"}


def merge_biases(rnn: "StackedRNN", state_dict: dict[str, Any], prefix: str, errors: list[str]) -> None:
    """Replaces the two biases of each layer of an ``nn.RNN`` in a state dict by their sum: only the sum acts.

    A stack with skips, or with another activation, adds an error.
    """
    pairs = [(f"{prefix}bias_ih_l{i}", f"{prefix}bias_hh_l{i}") for i in range(rnn.num_layers)]
    if not (rnn.bias and all(name in state_dict for pair in pairs for name in pair)):
        return
    if _has_skips(rnn) or type(rnn.activation) not in _NONLINEARITIES:
        errors.append(
            "these are the parameters of an nn.RNN, which is a StackedRNN with skip_every=None and "
            f"nonlinearity='tanh' or 'relu'; here skip_every={rnn.skip_every}, activation={rnn.activation}"
        )
    for i, (ih, hh) in enumerate(pairs):
        state_dict[f"{prefix}bias_l{i}"] = state_dict.pop(ih) + state_dict.pop(hh)


def as_torch_rnn(rnn: "StackedRNN") -> nn.RNN:
    """The same function as an ``nn.RNN``; refuses a stack that has none."""
    kind = _NONLINEARITIES.get(cast(Any, type(rnn.activation)))
    if kind is None:
        raise ValueError(f"nonlinearity: an nn.RNN has tanh or relu, not {rnn.activation}; see bipolar.fold")
    if _has_skips(rnn):
        raise ValueError(f"skip_every: an nn.RNN has no skips, here skip_every={rnn.skip_every}")
    for name in ("dropout", "recurrent_dropout"):
        if getattr(rnn, name):
            raise ValueError(f"{name}: an nn.RNN has another kind of dropout; here it is {getattr(rnn, name)}")
    like = cast(Tensor, rnn.weight_ih_l0)
    theirs = nn.RNN(
        rnn.input_size,
        rnn.hidden_size,
        rnn.num_layers,
        kind,
        rnn.bias,
        rnn.batch_first,
        device=like.device,
        dtype=like.dtype,
    )
    state = dict(rnn.state_dict())
    for i in range(rnn.num_layers if rnn.bias else 0):
        state[f"bias_ih_l{i}"] = state.pop(f"bias_l{i}")
        state[f"bias_hh_l{i}"] = torch.zeros_like(state[f"bias_ih_l{i}"])
    theirs.load_state_dict(state)
    return theirs.train(rnn.training)


def _has_skips(rnn: "StackedRNN") -> bool:
    return any(rnn.blocks.has_skip(i) for i in range(rnn.num_layers))
