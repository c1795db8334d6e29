"""What modules do to signs that are taken as a whole, because what they compute is not seen, or better known."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bipolar._activations.twins import of_module
from bipolar._rnn import StackedRNN
from bipolar._symmetry.rules import ask_for_plus
from bipolar._symmetry.solver import PLUS
from bipolar._tools.imports import loaded

if TYPE_CHECKING:
    from bipolar._symmetry.trace import Recording


def _stacked_rnn(recording: "Recording", module: StackedRNN, given: Sequence[Tensor], output: Any) -> None:
    """Every layer's units have the same signs; a skip around the first block carries those of the input."""
    x, (sequence, state) = given[0], output
    hidden, inward = recording.constraints.fresh(module.hidden_size), recording.constraints.fresh(module.input_size)
    signs = recording.constraints.uniform(recording.of(x), range(x.ndim - 1), recording.node).flatten()
    recording.constraints.equate(signs, inward, recording.node)
    if any(module.blocks.has_skip(i) and module.blocks.of(i) == 0 for i in range(module.num_layers)):
        recording.constraints.equate(inward, hidden, recording.node)
    for i, (u, w, bias) in enumerate(module.layers()):
        below = inward if i == 0 else hidden
        for weight, columns in ((u, below), (w, hidden)):
            tag = (hidden.view(-1, 1), columns.view(1, -1))
            known = recording.weights.setdefault(weight, tag)  # another, if it is used elsewhere, too
            for a, b in zip(known, tag, strict=True):
                recording.constraints.equate(a, b, recording.node)
        if bias is not None:
            recording.constraints.equate(recording.of(bias), hidden, recording.node)
    name = recording.nodes[-1].module
    twin = of_module(module.activation) if isinstance(module.activation, nn.Module) else None
    if twin is None:
        recording.plus(hidden, f"its activation, {module.activation}, has no bipolar version that is known")
    else:
        if twin.slopes:
            recording.weights.setdefault(twin.options["weight"], (torch.full((1,), PLUS),))
        recording.add_activation(name, twin, hidden, torch.Size((module.hidden_size,)))
    for made in (sequence, state):
        recording.give(made, hidden.view((1,) * (made.ndim - 1) + (-1,)))
    recording.states.append(state)
    recording.initial_states += [(initial, hidden) for initial in given[1:]]


def _oriented_convolution(recording: "Recording", module: Any, given: Sequence[Tensor], output: Tensor) -> None:
    """A feature has one sign, with all its orientations."""
    (x,) = given
    unknowns = recording.constraints.uniform(
        recording.of(x), [d for d in range(x.ndim) if d != x.ndim - 3], recording.node
    )
    channels = unknowns.flatten().expand(module.in_channels).view(module.in_features, module.in_orientations)
    inward = recording.constraints.uniform(channels, [1], recording.node).flatten()
    outward = recording.constraints.fresh(module.out_features)
    by_channel = inward.repeat_interleave(module.in_orientations)
    tag = recording.weight_of(module.weight, lambda: (outward.view(-1, 1, 1, 1), by_channel.view(1, -1, 1, 1)))
    known_outward, known_inward = tag  # type: ignore[misc]
    recording.constraints.equate(known_inward.flatten(), by_channel, recording.node)
    outward = known_outward.flatten()
    if module.bias is not None:
        recording.constraints.equate(recording.of(module.bias), outward, recording.node)
    signs = outward.repeat_interleave(module.orientations)
    recording.give(output, signs.view((1,) * (output.ndim - 3) + (-1, 1, 1)))


def _left_alone(recording: "Recording", module: nn.Module, given: Sequence[Tensor], output: Any) -> None:
    ask_for_plus(recording, given, output, f"{type(module).__name__} has activations of its own")


#: Modules of torch with activations of their own.
LEFT_ALONE = (
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)
MODULES: dict[type[nn.Module], Callable[..., None]] = {
    StackedRNN: _stacked_rnn,
    **dict.fromkeys(LEFT_ALONE, _left_alone),
}


def rule_of(module: nn.Module) -> Callable[..., None] | None:
    """The rule for a module that is taken as a whole."""
    if isinstance(module, loaded("bipolar.models._oriented", "ORConv2d")):
        return _oriented_convolution
    return next((rule for kind, rule in MODULES.items() if isinstance(module, kind)), None)
