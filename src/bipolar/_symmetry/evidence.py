"""Counter-examples: numbers of a pass which show that a node does not let signs through.

An activation with the signs S stays bipolar because of a node f that its signs reach. The statement that is refuted is
that f lets them through: that there are signs T with f(S x) = T f(x) for all x. The counter-example is the node's own
input x in a pass on the example: if the sizes of f(S x) and f(x) differ anywhere, there is no such T. Signs of other
inputs of the node that are still open are all tried, if they are few. Nothing is refuted if f has weights of its own
that could take up signs, but for scale and shift of a norm and the bias of a layer: a scale changes the sign of the
output alone, and what is added cancels in differences between examples of a batch, which are compared instead.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from bipolar._symmetry.recording import Node, Recording, Site
from bipolar._symmetry.rules.arguments import named
from bipolar._symmetry.solver import ForcedSigns
from bipolar._symmetry.trace import MODEL_OUTPUT, FunctionCall, record
from bipolar._tools.nested import tensors_in

#: The most signs that are left open, and tried both ways.
_MOST_OPEN = 4
#: The share of the largest value by which sizes differ in a counter-example: rounding stays far below.
_DIFFERENCE = 1e-2
#: Functions whose own weights scale and shift each channel, after the rest; and layers, of which the bias does.
_AFFINE = ("layer_norm", "group_norm")
_LAYERS = ("linear", "conv1d", "conv2d", "conv3d")


@dataclass(frozen=True)
class Question:
    """Whether a node lets through the signs that reach it."""

    number: int
    node: Node
    signs: ForcedSigns


def counter_examples(model: nn.Module, example: Any, questions: Mapping[Site, Question]) -> dict[Site, str]:
    """For each question whose node does not let the signs through, a counter-example in words."""
    by_node: dict[int, list[Site]] = defaultdict(list)
    for key, question in questions.items():
        by_node[question.number].append(key)
    found: dict[Site, str] = {}

    def look(recording: Recording, call: FunctionCall) -> None:
        for key in by_node.get(recording.node, ()):
            same = recording.nodes[-1].function == questions[key].node.function  # unless chance decides what runs
            answer = same and _counter_example(recording, call, questions[key].signs)
            if answer:
                found[key] = answer

    if by_node:
        trains = any(question.node.training for question in questions.values())
        record(model, example, look, (False, True) if trains else (False,))
    return found


def _counter_example(recording: Recording, call: FunctionCall, forced: ForcedSigns) -> str:
    """The values of an output before and after its inputs change their signs, in words; empty if these may cancel."""
    node = recording.nodes[-1]
    if any(t.is_meta for t in call.tensors):
        return ""
    unknowns = _signs_that_matter(recording, call)
    if unknowns is None:
        return ""
    still_open = sorted(set().union(*(forced.open(some) for some in unknowns.values())))
    if len(still_open) > _MOST_OPEN:
        return ""
    shifted = node.function in (*_AFFINE, *_LAYERS)
    if shifted and not _has_batch(node.function, call):
        return ""

    def outputs(sign: Callable[[Tensor], Tensor]) -> list[Tensor]:
        def changed(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return value * sign(unknowns[id(value)]).to(value) if id(value) in unknowns else value.clone()

        with torch.random.fork_rng([t.device for t in call.tensors if t.is_cuda]):
            made = tensors_in(call.function(*tree_map(changed, call.args), **tree_map(changed, call.kwargs)))
            return [t - t.roll(1, 0) if shifted else t for t in made]  # what is added to all of a batch cancels

    try:
        before = outputs(torch.ones_like)
        answers = []
        for signs in itertools.product((1, -1), repeat=len(still_open)):
            chosen = dict(zip(still_open, signs, strict=True))
            after = outputs(lambda some, chosen=chosen: forced.of(some, chosen))  # type: ignore[misc]  # the default
            answers.append(_difference(before, after, bool(node.function == MODEL_OUTPUT)))
    except Exception:  # whatever a function says to a call with other values
        return ""
    return f"on the example, its signs turn {answers[0]} at {node}" if all(answers) else ""


def _has_batch(function: str, call: FunctionCall) -> bool:
    """Whether the first dimension of a norm's or a layer's input is one of several examples."""
    x, other = named(call.args, call.kwargs, "input", "normalized_shape" if function == "layer_norm" else "weight")
    if function == "layer_norm":
        batched = x.ndim > len(other)
    else:
        batched = x.ndim > 1 if function in ("linear", "group_norm") else x.ndim == other.ndim
    return bool(batched and x.size(0) > 1)


def _signs_that_matter(recording: Recording, call: FunctionCall) -> dict[int, Tensor] | None:
    """The unknowns of the signals that a function takes, by id; None if weights could take up signs."""
    function = recording.nodes[-1].function
    found = {}
    for place, tensor in enumerate(call.tensors):
        if not tensor.is_floating_point():
            continue
        if recording.is_weight(tensor):
            if function in _AFFINE or (function in _LAYERS and place == 2):
                continue
            return None
        unknowns = recording.of(tensor)
        if function in _LAYERS and place == 1:  # the same along its inputs, so that its signs are those of the output
            if unknowns.numel() != unknowns.size(0):
                return None
            continue
        found[id(tensor)] = unknowns
    return found


def _difference(before: list[Tensor], after: list[Tensor], signed: bool) -> str:
    """The place where two outputs differ most, in size or with ``signed`` in value; empty if they do not."""
    for a, b in zip(before, after, strict=True):
        if a.is_complex():
            a, b = a.abs(), b.abs()
        if not a.is_floating_point():
            if not torch.equal(a, b):
                return f"{int((a != b).sum())} of {a.numel()} values to others"
            continue
        a, b = a.double().flatten(), b.double().flatten()
        difference = (a - b if signed else a.abs() - b.abs()).abs().nan_to_num(0, 0, 0)
        finite = a[a.isfinite()].abs()
        if difference.numel() and float(difference.max()) > _DIFFERENCE * float(finite.max() if len(finite) else 0):
            place = int(difference.argmax())
            return f"{float(a[place]) + 0.0:.3g} into {float(b[place]) + 0.0:.3g}"  # -0 is 0
    return ""
