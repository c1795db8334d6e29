"""Removal of norm layers: a trained batch norm is folded into the layer beside it, all others are dropped."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from bipolar._rewrite.norm_recognition import is_batch_norm
from bipolar._rewrite.outputs import difference
from bipolar._symmetry.recording import Key, Node, Recording
from bipolar._tools.restoring import evaluating


class ChannelAffine(nn.Module):
    r"""A scale and a shift for each channel: :math:`y_c = w_c x_c + b_c`, what is left of a trained batch norm.

    Shape:
        - Input: :math:`(N, C, *)`
        - Output: :math:`(N, C, *)`, same shape as the input.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())

    def forward(self, input: Tensor) -> Tensor:
        shape = (-1, *[1] * (input.ndim - 2))
        return input * self.weight.view(shape) + self.bias.view(shape)

    def extra_repr(self) -> str:
        return str(len(self.weight))


@dataclass(frozen=True)
class Removal:
    """The replacement of a norm layer, and a note for the report."""

    replacement: nn.Module
    note: str


class Neighbours:
    """Producers and consumers of the tensors in a recorded pass in evaluation mode."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.nodes = [node for node in recording.nodes if not node.training]
        self._makers: dict[Key, Node] = {}
        self._takers: dict[Key, list[Node]] = {}
        for node in self.nodes:
            for key in node.inputs:
                self._takers.setdefault(key, []).append(node)
            for key in node.outputs:
                self._makers.setdefault(key, node)

    def maker(self, node: Node) -> Node | None:
        """The node that makes the first input of a node, if no other node takes it."""
        return self._makers.get(node.inputs[0]) if len(self._takers[node.inputs[0]]) == 1 else None

    def taker(self, node: Node) -> Node | None:
        """The node that takes a node's output, if there is only one."""
        takers = self._takers.get(node.outputs[0], [])
        return takers[0] if len(takers) == 1 else None

    def calls_of(self, name: str) -> list[Node]:
        return [node for node in self.nodes if node.module == name]

    def layer(self, node: Node | None) -> nn.Module | None:
        """The linear or convolution layer of a node, if it is called once and nothing else uses its weight."""
        if node is None or len(self.calls_of(node.module)) != 1:
            return None
        module = self.recording.model.get_submodule(node.module)
        weight = module._parameters.get("weight")
        known = type(module) is nn.Linear or type(module).__module__ == "torch.nn.modules.conv"
        if not known or weight is None or module._forward_pre_hooks or node.shape is None:
            return None
        if isinstance(module, nn.Linear) and len(node.shape) != 2:  # its features are not a batch norm's channels
            return None
        uses = sum(key[0] == id(weight) for other in self.nodes for key in other.inputs)
        homes = sum(p is weight for m in self.recording.model.modules() for p in m._parameters.values())
        return module if uses == homes == 1 else None

    def exposed(self, name: str) -> set[int]:
        """The nodes, by id, that would work on memory that others use, if a module passed its input on."""
        own = self.calls_of(name)
        made = {self._memory(key) for node in own for key in node.outputs}
        taken = {self._memory(key) for node in own for key in node.inputs} - made
        others = [node for node in self.nodes if node.module != name]
        if not taken & self.recording.given and not any(self._takes(node, taken) for node in others):
            return set()
        return {id(node) for node in others if self._takes(node, made)}

    def _takes(self, node: Node, memory: set[int]) -> bool:
        return any(self._memory(key) in memory for key in node.inputs)

    def _memory(self, key: Key) -> int:
        return self.recording.storage.get(key, -1)

    def input_of(self, module: nn.Module) -> Tensor | None:
        """The first argument of a module's first call."""
        args, _ = self.recording.arguments[_name(self, module)][0]
        return args[0] if args and isinstance(args[0], Tensor) else None


def remove(name: str, norm: nn.Module, neighbours: Neighbours) -> Removal | None:
    """Folds a norm layer into a neighbour if possible, and returns its replacement; None if it never ran."""
    calls = neighbours.calls_of(name)
    if not calls:
        return None
    alone = len(calls) == 1
    before = neighbours.layer(neighbours.maker(calls[0])) if alone else None
    if not is_batch_norm(norm) or norm.running_mean is None:
        added = _with_bias(before) if before is not None else ""
        return Removal(nn.Identity(), "dropped: its statistics depend on each input and cannot be folded" + added)
    norm = cast(_BatchNorm, norm)
    if cast(Tensor, norm.running_mean).is_meta:
        raise ValueError(f"model: {name} is on the meta device, and has no statistics that could be folded")
    if not is_folded(norm):
        added = _with_bias(before) if before is not None else ""
        return Removal(nn.Identity(), "dropped: it was fresh" + added)
    scale, shift = _scale_and_shift(norm)
    if before is not None:
        x = neighbours.input_of(before)
        expected = None if x is None else _outputs([before, norm], x)
        _scale_outputs(before, scale, shift)
        _check(name, expected, None if x is None else _outputs([before], x))
        return Removal(nn.Identity(), f"folded into {_name(neighbours, before)}")
    after = neighbours.layer(neighbours.taker(calls[0])) if alone else None
    x = neighbours.input_of(norm)
    if after is not None and _is_unpadded(after):
        expected = None if x is None else _outputs([norm, after], x)
        _scale_inputs(after, scale, shift)
        _check(name, expected, None if x is None else _outputs([after], x))
        return Removal(nn.Identity(), f"folded into {_name(neighbours, after)}")
    affine = ChannelAffine(scale, shift)
    if x is not None:
        _check(name, _outputs([norm], x), _outputs([affine], x))
    return Removal(affine, "its statistics fixed, as a scale and a shift: no layer beside it can take them up")


def is_folded(norm: nn.Module) -> bool:
    """Whether a norm can go without a change of the outputs in evaluation: a batch norm that has seen a batch.

    Some networks set the scale of a fresh one to zero at the end of residual blocks.
    """
    if not is_batch_norm(norm) or norm.running_mean is None:
        return False
    mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
    return mean.is_meta or bool(norm.num_batches_tracked) or bool(mean.any()) or not bool((variance == 1).all())


@torch.no_grad()
def _outputs(layers: list[nn.Module], x: Tensor) -> Tensor:
    """The output of some layers in evaluation mode, one after the other, without their hooks."""
    for layer in layers:
        with evaluating(layer):
            x = layer.forward(x)
    return x


def _check(name: str, expected: Tensor | None, found: Tensor | None) -> None:
    if expected is None or found is None:
        return
    different = difference([expected], [found], 1e-2)
    if different:
        raise RuntimeError(
            f"model: without its batch norm {name} the layers there do not compute the same on the example: "
            f"{different}; leave it out by remove_norm=lambda name, module: name != {name!r}"
        )


@torch.no_grad()
def _scale_and_shift(norm: _BatchNorm) -> tuple[Tensor, Tensor]:
    mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
    scale = (variance + norm.eps).rsqrt()
    if norm.affine:
        scale = scale * norm.weight
    shift = -mean * scale
    return scale, shift + norm.bias if norm.affine else shift


def _with_bias(layer: nn.Module) -> str:
    """Gives a layer a bias, which the norm after it made unnecessary, and returns a note."""
    if getattr(layer, "bias", None) is not None:
        return ""
    add_bias(layer)
    return "; the layer before it has a bias now"


def add_bias(layer: nn.Module) -> None:
    """Gives a linear or convolution layer a bias of zeros."""
    outputs = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
    weight = cast(Tensor, layer.weight)
    layer.bias = nn.Parameter(weight.new_zeros(cast(int, outputs)), requires_grad=weight.requires_grad)


@torch.no_grad()
def _scale_outputs(layer: nn.Module, scale: Tensor, shift: Tensor) -> None:
    _with_bias(layer)
    weight, bias = cast(Tensor, layer.weight), cast(Tensor, layer.bias)
    if isinstance(layer, _ConvTransposeNd):  # (in, out / groups, ...)
        by_group = scale.view(layer.groups, 1, -1).expand(-1, weight.size(0) // layer.groups, -1)
        weight.mul_(by_group.reshape(weight.size(0), weight.size(1), *[1] * (weight.ndim - 2)))
    else:
        weight.mul_(scale.view(-1, *[1] * (weight.ndim - 1)))
    bias.mul_(scale).add_(shift)


def _is_unpadded(layer: nn.Module) -> bool:
    """Whether a shift of the input shifts the output by the same everywhere, which a padded border prevents."""
    if isinstance(layer, nn.Linear):
        return True
    convolution = cast(_ConvNd, layer)
    plain = not isinstance(layer, _ConvTransposeNd) and convolution.groups == 1
    return plain and convolution.padding not in ("same",) and not any(p != 0 for p in convolution.padding)


@torch.no_grad()
def _scale_inputs(layer: nn.Module, scale: Tensor, shift: Tensor) -> None:
    _with_bias(layer)
    weight, bias = cast(Tensor, layer.weight), cast(Tensor, layer.bias)
    bias.add_(weight.flatten(2).sum(2) @ shift if weight.ndim > 2 else weight @ shift)
    weight.mul_(scale.view(1, -1, *[1] * (weight.ndim - 2)))


def _name(neighbours: Neighbours, layer: nn.Module) -> str:
    return next(str(name) for name, module in neighbours.recording.model.named_modules() if module is layer)
