r"""The recurrent layers of torch, as LSUV sees them.

A gate squashes its input, so only its input can have unit variance. With :math:`h \sim \mathcal{N}(0, 1)`
as the state, :math:`W_{ih} x` and :math:`W_{hh} h` are made to contribute equally, and both are scaled together until
:math:`W_{ih} x + b_{ih} + W_{hh} h + b_{hh}` has unit variance, as the paper does in one time step. For ``nn.RNN``
with ReLU the variance is taken after the ReLU, where ``at="activation"``.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as tF
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

CELLS = (nn.RNNCell, nn.LSTMCell, nn.GRUCell)
STACKS = (nn.RNN, nn.LSTM, nn.GRU)
RECURRENT_LAYERS = (*STACKS, *CELLS)


class DirectedLayer(NamedTuple):
    """One layer in one direction: the names of its parameters, and its input."""

    weight_ih: str
    weight_hh: str
    biases: tuple[str, ...]
    input: Tensor


def gates_of(module: nn.Module) -> int:
    """The number of matrices that are stacked in a weight."""
    if isinstance(module, (nn.LSTM, nn.LSTMCell)):
        return 4
    return 3 if isinstance(module, (nn.GRU, nn.GRUCell)) else 1


def nonlinearity_of(module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """ReLU, if the layer has it; every other nonlinearity is bounded, and None."""
    return tF.relu if getattr(module, "nonlinearity", None) == "relu" else None


def directed_layers(module: nn.Module, x: Any) -> Iterator[DirectedLayer]:
    """The layers from the lowest up; the input of each is computed with the weights that those below have by then."""
    if isinstance(module, CELLS):
        biases = ("bias_ih", "bias_hh") if module.bias else ()
        yield DirectedLayer("weight_ih", "weight_hh", biases, _rows(x))
        return
    module = cast(nn.RNNBase, module)
    for layer in range(module.num_layers):
        suffixes = [f"_l{layer}{direction}" for direction in ("", "_reverse")[: 1 + module.bidirectional]]
        for suffix in suffixes:
            biases = (f"bias_ih{suffix}", f"bias_hh{suffix}") if module.bias else ()
            yield DirectedLayer(f"weight_ih{suffix}", f"weight_hh{suffix}", biases, _rows(x))
        if layer + 1 < module.num_layers:
            x = _run_layer(module, layer, suffixes, x)


def preactivation(module: nn.Module, layer: DirectedLayer, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """W_ih x and W_hh h, for as many random states as there are inputs."""
    weight_ih, weight_hh = getattr(module, layer.weight_ih), getattr(module, layer.weight_hh)
    device = generator.device if generator is not None else layer.input.device
    state = torch.randn(len(layer.input), weight_hh.size(1), generator=generator, device=device).to(layer.input)
    return layer.input @ weight_ih.mT, state @ weight_hh.mT


def bias(module: nn.Module, layer: DirectedLayer) -> Tensor | None:
    return getattr(module, layer.biases[0]) + getattr(module, layer.biases[1]) if layer.biases else None


def _rows(input: Tensor | PackedSequence) -> Tensor:
    return input.data if isinstance(input, PackedSequence) else input.reshape(-1, input.size(-1))


def _run_layer(module: Any, layer: int, suffixes: list[str], input: Tensor | PackedSequence) -> Any:
    """The output of one layer of a stack, by a stack of that layer alone."""
    options = {"proj_size": module.proj_size} if isinstance(module, nn.LSTM) else {}
    options |= {"nonlinearity": module.nonlinearity} if isinstance(module, nn.RNN) else {}
    base = next(stack for stack in STACKS if isinstance(module, stack))
    single = base(
        _rows(input).size(-1),
        module.hidden_size,
        bias=module.bias,
        batch_first=module.batch_first,
        bidirectional=module.bidirectional,
        device="meta",  # draws no random numbers
        **options,
    )
    for suffix in suffixes:
        for name in [name for name in module._parameters if name.endswith(suffix)]:
            setattr(single, name.replace(f"_l{layer}", "_l0"), getattr(module, name))
    return single.eval()(input)[0]
