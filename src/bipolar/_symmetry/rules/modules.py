"""Sign rules of modules that are followed as a whole, because torch functions do not show their computations."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from torch import Size, Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from bipolar._activations.channelwise import ChannelActivation
from bipolar._activations.recognition import recognise_module
from bipolar._rnn import StackedRNN
from bipolar._symmetry.recording import Recording, Site, Tag
from bipolar._symmetry.rules.refusal import require_plus

#: Takes a recording, a module, the floating-point tensors in its arguments, and its output, to which it gives signs.
ModuleRule: TypeAlias = Callable[[Recording, Any, Sequence[Tensor], Any], None]
_R = TypeVar("_R", bound=ModuleRule)

_MODULE_RULES: dict[type[nn.Module], ModuleRule] = {}


def sign_rule(*kinds: type[nn.Module]) -> Callable[[_R], _R]:
    """Registers the decorated function as the rule of some classes of modules, and of those derived from them."""

    def register(rule: _R) -> _R:
        _MODULE_RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


def rule_of(module: nn.Module) -> ModuleRule | None:
    """The rule of a module that is followed as a whole."""
    if isinstance(module, nn.TransformerEncoderLayer) and isinstance(module.activation, ChannelActivation):
        return None  # then it computes in Python, function by function
    return next((_MODULE_RULES[kind] for kind in type(module).__mro__ if kind in _MODULE_RULES), None)


#: Modules of torch with activations of their own.
SELF_ACTIVATED = (
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)


@sign_rule(*SELF_ACTIVATED)
def _self_activated(recording: Recording, module: nn.Module, given: Sequence[Tensor], output: Any) -> None:
    require_plus(recording, given, output, f"{type(module).__name__} has activations of its own")


@sign_rule(StackedRNN)
def _stacked_rnn(recording: Recording, module: StackedRNN, given: Sequence[Tensor], output: Any) -> None:
    """The units of all layers have the same signs; a skip around the first block carries those of the input."""
    x, (sequence, state) = given[0], output
    sequence = sequence.data if isinstance(sequence, PackedSequence) else sequence
    hidden, inward = recording.constraints.fresh(module.hidden_size), recording.constraints.fresh(module.input_size)
    signs = recording.constraints.uniform(recording.of(x), range(x.ndim - 1), recording.node).flatten()
    recording.constraints.equate(signs, inward, recording.node)
    if any(module.blocks.has_skip(i) and module.blocks.of(i) == 0 for i in range(module.num_layers)):
        recording.constraints.equate(inward, hidden, recording.node)
    _stacked_weights(recording, module, inward, hidden)
    recognised = recognise_module(module.activation) if isinstance(module.activation, nn.Module) else None
    if recognised is None:
        recording.plus(hidden, f"its activation, {module.activation}, has no bipolar version that is known")
    else:
        site = Site(recording.nodes[-1].module)
        recording.add_activation(site, recognised, hidden, Size((module.hidden_size,)))
    for made in (sequence, state):
        recording.give(made, hidden.view((1,) * (made.ndim - 1) + (-1,)))
    recording.states.append(state)
    recording.initial_states += [(initial, hidden) for initial in given[1:]]


def _stacked_weights(recording: Recording, module: StackedRNN, inward: Tensor, hidden: Tensor) -> None:
    """Rows and columns of every weight have the signs of the units that they belong to."""
    for i, (u, w, bias) in enumerate(module.layers()):
        below = inward if i == 0 else hidden
        for weight, columns in ((u, below), (w, hidden)):
            _tie_weight(recording, weight, (hidden.view(-1, 1), columns.view(1, -1)))
        if bias is not None:
            recording.constraints.equate(recording.of(bias), hidden, recording.node)


def _tie_weight(recording: Recording, weight: Tensor, tag: Tag) -> None:
    """Gives a weight signs, a product of two factors; or equates them, if it is used elsewhere, too."""
    known = recording.weight_of(weight, lambda: tag)
    if known is None or len(known) != 2:
        recording.plus((*tag, *(known or ())), "its weight is used in another way elsewhere")
        return
    for a, b in zip(known, tag, strict=True):
        recording.constraints.equate(a, b, recording.node)
