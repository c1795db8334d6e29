"""Modules known by what they compute on random inputs: norms and activations that somebody wrote by hand."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bipolar._tools.restoring import evaluating, restored


def computes_a_norm(module: nn.Module) -> bool:
    r"""Whether a module takes the scale out of its input, as a hand-written RMSNorm does.

    On random inputs a norm f keeps the shape, has :math:`f(2x) = f(x)` and :math:`f(-x) - f(0) = -(f(x) - f(0))`, and
    each element of its output depends on others of its input.
    """
    parameters = dict(module.named_parameters(recurse=False))
    sizes = {p.shape for p in parameters.values()}
    if not _is_small(module) or len(sizes) > 1 or any(len(size) != 1 for size in sizes):
        return False
    channels = next(iter(sizes)).numel() if sizes else 8
    shapes = ((2, 3, channels), (2, channels, 3, 3))
    return any(_holds(module, partial(_takes_the_scale_out, module, shape)) for shape in shapes)


def _takes_the_scale_out(module: nn.Module, shape: Sequence[int]) -> bool:
    ones = {name: torch.ones_like(p) for name, p in module.named_parameters()}
    like = next(iter(ones.values()), torch.empty(()))
    x = 10 * torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(like)

    def f(x: Tensor) -> Tensor:
        made: Tensor = functional_call(module, ones, (x,))
        return made

    y, other = f(x), x.clone()
    if not isinstance(y, Tensor) or y.shape != x.shape:
        return False
    centre = torch.nan_to_num(f(torch.zeros_like(x)))
    other.view(-1)[0] *= 10
    near = 1e-2 * float((y - centre).abs().max())
    scaled = torch.allclose(f(2 * x), y, atol=near)
    odd = torch.allclose(f(-x) - centre, centre - y, atol=near)
    mixing = bool(((f(other) - y).flatten()[1:].abs() > near).any())
    unit = bool(ones) or 0.5 < float(y.square().mean()) < 2  # not a vector of length one, as for cosine similarity
    return near > 0 and scaled and odd and mixing and unit


def computes_an_activation(module: nn.Module) -> bool:
    """Whether a module is an activation of the ReLU family, such as a GELU written by hand.

    It has no weights, treats each element for itself, passes large values on and holds back negative ones.
    """
    if any(True for _ in module.parameters()) or any(True for _ in module.buffers()):
        return False
    return _is_small(module) and _holds(module, lambda: _is_like_relu(module))


def _is_like_relu(module: nn.Module) -> bool:
    x = torch.linspace(-8, 8, 64)
    mixed = x.roll(13).view(2, 4, 8)
    y, again = module.forward(x.clone()), module.train().forward(mixed.clone())
    if not isinstance(y, Tensor) or y.shape != x.shape or again.shape != mixed.shape:
        return False
    elementwise = torch.allclose(y.roll(13).view(2, 4, 8), again, atol=1e-5)
    return elementwise and abs(float(y[-1]) - 8) < 0.5 and abs(float(y[0])) < 4


def _is_small(module: nn.Module) -> bool:
    """Whether a module is not torch's, has no others in it, takes one input, and has values."""
    if type(module).__module__.startswith("torch.nn.") or any(module.children()):
        return False
    if any(p.is_meta for p in module.parameters()) or type(module).forward is nn.Module.forward:
        return False
    parameters = inspect.signature(module.forward).parameters.values()
    required = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return len(required) == 1


def _holds(module: nn.Module, condition: Callable[[], bool]) -> bool:
    with restored(module), evaluating(module), torch.no_grad(), torch.random.fork_rng([]):
        try:
            return condition()
        except Exception:  # whatever a module says to an input that it is not for
            return False
