"""Sign rule of last resort: a function that is not known to keep signs requires +1 everywhere."""

import re
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from bipolar._activations.catalogue import of_plain_name
from bipolar._symmetry.recording import Recording
from bipolar._symmetry.rules.arguments import floats_in
from bipolar._symmetry.solver import PLUS

NOT_ODD = "not odd: f(-x) != -f(x)"
_REASONS = [
    (r"(adaptive_)?max_pool|amax$|max$|maximum$|topk$|sort$|argmax$|oplu", "it takes a maximum"),
    (r"amin$|min$|minimum$", "it takes a minimum"),
    (r"layer_norm|group_norm", "it takes a mean over channels"),
    (
        r"softmax|log_softmax|sigmoid|exp$|clamp|hardsigmoid|logsumexp",
        NOT_ODD,
    ),
    (r"scaled_dot_product|multi_head|bmm$|einsum$|baddbmm$|bilinear", "it multiplies two signals"),
    (r"alpha_dropout|feature_alpha_dropout", "dropped values become negative"),
]


def refuse(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """Requires +1 for everything that a function takes and makes."""
    name = recording.nodes[-1].function
    entry = of_plain_name(name)
    plain = entry is not None and not entry.odd()
    otherwise = NOT_ODD if plain else f"{name} is not known to keep signs"
    reason = next((why for pattern, why in _REASONS if re.match(pattern, name)), otherwise)
    require_plus(recording, list(floats_in((args, kwargs))), output, reason)


def require_plus(
    recording: Recording, given: Sequence[Tensor], output: Any, reason: str, layout: Tensor | None = None
) -> None:
    """Requires +1 for inputs and outputs; ``layout`` shows which dimension the output's channels are in."""
    unknowns = [recording.of(tensor) for tensor in given]
    for some in unknowns:
        recording.plus(some, reason)
    if layout is None and all((some == PLUS).all() for some in unknowns):  # all from outside, so the output is, too
        for made in floats_in(output):
            recording.give(made, recording.everywhere_plus(made))
        return
    for made in floats_in(output):
        recording.keeps_layout(made, unknowns[0] if layout is None else layout, reason)
