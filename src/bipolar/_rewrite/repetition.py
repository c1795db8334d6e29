"""Repetition of a conversion from its report: the same structure on another model of the same class."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bipolar._rewrite.activation_choice import ActivationChoice
from bipolar._rewrite.conversion_report import ConversionReport
from bipolar._rewrite.functional_calls import CallEdit, make_edits_
from bipolar._rewrite.norm_recognition import split
from bipolar._rewrite.norms import ChannelAffine, add_bias
from bipolar._rewrite.placing import held_by, put
from bipolar._rewrite.replacement import replaced
from bipolar._rewrite.steps import Step, restored_activation
from bipolar._symmetry.own_source import NotReplaceableError, OwnCall


class Repetition:
    """A model that gets the structure of another one; its weights stay, and new ones are neutral."""

    def __init__(self, model: nn.Module, choice: ActivationChoice) -> None:
        self.model, self.choice = model, choice

    def follow(self, report: ConversionReport) -> None:
        actions: dict[str, Callable[[Step, nn.Module], None]] = {
            "split": self._split,
            "norm": self._norm,
            "bias": lambda _, module: self._bias(module),
            "out of place": lambda _, module: setattr(module, "inplace", False),
            "activation": self._activation,
            "functions": self._functions,
        }
        for step in report.steps:
            actions[step["step"]](step, self._module(step))

    def _module(self, step: Step) -> nn.Module:
        name, was = step["module"], step["was"]
        try:
            module = self.model.get_submodule(name)
        except AttributeError:
            raise ValueError(
                f"like: {type(self.model).__name__} has no module {name!r}; is it another model?"
            ) from None
        if type(module).__name__ != was:
            raise ValueError(
                f"like: {name or 'the model'} was a {was}, and is a {type(module).__name__} here: give the model as it "
                "was before the conversion"
            )
        return module

    def _split(self, step: Step, norm: nn.Module) -> None:
        parts = {
            name: norm.get_submodule(name) if data is None else self._made(data, norm, step["module"])
            for name, data in step["parts"]
        }
        self.model, _ = split(self.model, norm, parts)

    def _norm(self, step: Step, norm: nn.Module) -> None:
        made: nn.Module = nn.Identity()
        if step["channels"] is not None:
            like = next((t for t in (*norm.parameters(), *norm.buffers()) if t.is_floating_point()), torch.empty(()))
            made = ChannelAffine(like.new_ones(step["channels"]), like.new_zeros(step["channels"]))
        self.model = replaced(self.model, norm, made)

    def _bias(self, module: nn.Module) -> None:
        if module._parameters.get("bias") is None:
            add_bias(module)

    def _activation(self, step: Step, module: nn.Module) -> None:
        self.model = put(self.model, module, self._made(step["to"], module, step["module"]))

    def _functions(self, step: Step, owner: nn.Module) -> None:
        edits = [CallEdit(OwnCall(**call["call"]), call["name"]) for call in step["calls"]]
        for edit in edits:
            names = (
                edit.name,
                edit.call.method,
                edit.call.owner,
                edit.call.variable or "x",
                edit.call.attribute or "x",
            )
            if not all(isinstance(name, str) and name.isidentifier() for name in names):
                raise ValueError(f"like: {edit} is not a call that a report can have")
        modules = [self._made(call["to"], owner, step["module"]) for call in step["calls"]]
        try:
            make_edits_(owner, edits, modules)
        except NotReplaceableError as error:
            raise ValueError(f"like: {step['module'] or 'the model'}: {error}; convert it with an example") from None

    def _made(self, data: Step, place: nn.Module, name: str) -> nn.Module:
        made = restored_activation(data, place)
        if made is None and self.choice.activations != "auto":
            dim: Any = data.get("dim", 1)
            made, _ = self.choice.made(held_by(place), type(place), lambda: dim, name)
        if made is None:
            raise ValueError(
                f"like: {name} became a {data['custom']}, which a report cannot store; give activations, too, with "
                "what makes it"
            )
        return made
