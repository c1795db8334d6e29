"""Random models as Python source, made of the operations that the sign rules know, and of some that they do not.

A line is proposed, tried on an example, and kept if it works. So the file of a model that fails reads as if somebody
had written it.
"""

import importlib.util
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeAlias, cast

import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
import bipolar.functional as F

HEADER = '''"""A random model."""

import torch
import torch.nn.functional as tF
from torch import nn

import bipolar
import bipolar.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{parts}

    def forward(self, x0):
{lines}
'''
#: The most values that a signal may have.
MOST = 2000
BIPOLAR = ("brelu", "belu", "bleaky_relu", "bselu", "bcelu", "bgelu", "bsilu", "bsoftplus", "bmish", "bhardswish")
ODD = ("tanh", "softsign", "hardtanh", "tanhshrink", "softshrink", "hardshrink", "identity")
PLAIN = ("relu", "elu", "leaky_relu", "selu", "gelu", "silu", "softplus", "mish", "relu6", "celu", "hardswish")
OTHERS = ("sigmoid", "logsigmoid", "hardsigmoid")


class Program:
    """A model that grows line by line.

    Args:
        random: the draws
        bends: whether its activations are bipolar, or plain
    """

    def __init__(self, random: Random, bends: bool) -> None:
        self.random, self.bends = random, bends
        self.pattern = random.choice(("alternate", "alternate", "halves"))
        #: the share of lines that are not a layer or an activation in its place
        self.wild = random.choice((0.1, 0.3, 0.6))
        #: the dimension of the channels of each signal, as far as its layer tells
        self.channels = {"x0": -1}
        self._made = 0
        self.parts: list[str] = []
        self.lines: list[str] = []
        self._self = nn.Module()
        self.names = {"self": self._self, "torch": torch, "nn": nn, "tF": tF, "F": F, "bipolar": bipolar}
        self.signals: list[str] = ["x0"]
        batch, width = random.choice((2, 3, 4)), random.choice((2, 4, 6))
        shapes = ((batch, width), (batch, width), (batch, 3, width), (batch, width, 8), (batch, width, 6, 6))
        shape = random.choice(shapes)
        self.example = torch.randn(shape, dtype=torch.float64)
        if random.random() < 0.1:
            self.example = torch.randint(7, shape[:2])
        self.names["x0"] = self.example.clone()
        if not self.example.is_floating_point():
            self.add(f"{self.part(f'nn.Embedding(7, {width})')}(x0)")

    def part(self, code: str) -> str:
        """Adds a module or parameter; returns how the forward calls it."""
        self._made += 1
        name = f"self.part{self._made}"
        exec(f"{name} = {code}", cast(dict[str, Any], self.names))  # noqa: S102 - our own text
        self._self.double().eval()
        self.parts.append(f"{name} = {code}")
        return name

    def parameter(self, *shape: int) -> str:
        return self.part(f"nn.Parameter(torch.randn{shape})")

    def value(self, name: str) -> Tensor:
        return cast(Tensor, self.names[name])

    def signal(self) -> str:
        """A signal, most often the last, and hardly ever the input."""
        if self.random.random() < 0.75:
            return self.signals[-1]
        return self.random.choice(self.signals if self.random.random() < 0.05 else self.signals[1:] or self.signals)

    def like(self, name: str) -> str:
        """A signal of the same shape as another, which it may be itself."""
        same = [other for other in self.signals if self.value(other).shape == self.value(name).shape]
        return self.random.choice(same)

    def add(self, expression: str) -> bool:
        """Adds a line that makes a new signal, if it works and makes a usable one; else nothing."""
        channel = 1 if "Conv" in "".join(self.parts[-1:]) else -1 if "Linear" in "".join(self.parts[-1:]) else 0
        channel = channel if "self.part" in expression else 0
        name = f"x{len(self.lines) + 1}"
        statement = f"{name} = {expression}"
        versions = [self.value(other)._version for other in self.signals]
        try:
            with torch.no_grad():
                exec(statement, cast(dict[str, Any], self.names))  # noqa: S102 - our own text
            made = self.names[name]
            usable = isinstance(made, Tensor) and made.is_floating_point() and 0 < made.numel() <= MOST
            usable = usable and bool(cast(Tensor, made).abs().max() < 1e6)
        except Exception:  # whatever torch says to a wrong shape
            usable = False
        if usable:
            self.lines.append(statement)
            self.signals.append(name)
            source = next((s for s in reversed(self.signals[:-1]) if re.search(rf"\b{s}\b", expression)), "x0")
            self.channels[name] = channel or self.channels[source]
        elif versions != [self.value(other)._version for other in self.signals]:
            raise RuntimeError(f"a line that does not work has changed a signal: {statement}")
        return usable

    def grow(self, length: int) -> None:
        """Adds so many lines, and an output."""
        target, tries = len(self.lines) + length, 0
        while len(self.lines) < target and tries < 20 * length:  # the first line is a layer
            tries += 1
            wild = self.random.random() < self.wild
            kinds: dict[Proposal, float] = {layer: 1} if len(self.lines) == 0 else WILD if wild else SOUND
            (kind,) = self.random.choices(list(kinds), list(kinds.values()))
            parts = len(self.parts)
            expression = kind(self)
            if expression is None or not self.add(expression):
                del self.parts[parts:]
        last = self.signals[-1]
        flat = f"{last}.flatten(1)" if self.value(last).ndim > 1 else f"{last}.reshape(1, -1)"
        if self.random.random() < 0.9:
            flat = f"{self.part(f'nn.Linear({self.value_of(flat).size(1)}, 3)')}({flat})"
        also = self.random.choice(self.signals[1:]) if len(self.signals) > 2 and self.random.random() < 0.1 else ""
        self.lines.append(f"return {flat}, {also}" if also else f"return {flat}")

    def value_of(self, expression: str) -> Tensor:
        return cast(Tensor, eval(expression, cast(dict[str, Any], self.names)))  # noqa: S307 - our own text

    def source(self) -> str:
        parts, lines = (["        " + line for line in some] for some in (self.parts or ["pass"], self.lines))
        return HEADER.format(parts="\n".join(parts), lines="\n".join(lines))

    def model(self, directory: Path) -> nn.Module:
        """The model, from its file in a directory: to replace functions takes the source."""
        path = directory / "random_model.py"
        path.write_text(self.source(), encoding="utf-8")
        spec = importlib.util.spec_from_file_location("random_model", path)
        if spec is None or spec.loader is None:
            raise RuntimeError(f"{path} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model: nn.Module = module.Model().double()
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                if tensor.is_floating_point():
                    tensor.add_(0.3 * torch.rand_like(tensor))  # biases, shifts and statistics that are not zero
        return model


# Proposals: each an expression that may or may not work

Proposal: TypeAlias = Callable[[Program], str | None]


def _dim(program: Program, x: Tensor) -> int:
    return program.random.randrange(-x.ndim, x.ndim) if x.ndim else 0


def layer(program: Program) -> str | None:
    """A layer with weights, whose channels are where torch has them."""
    random, name = program.random, program.signal()
    x = program.value(name)
    bias = random.random() < 0.7
    new = random.choice((2, 4, 6))
    if x.ndim in (3, 4) and random.random() < 0.7:
        width, space = x.size(1), x.ndim - 2
        groups = random.choice([g for g in (1, 1, 2, width) if width % g == 0 and new % g == 0] or [1])
        kind = random.choice((f"nn.Conv{space}d", f"nn.Conv{space}d", f"nn.ConvTranspose{space}d"))
        options = f"groups={groups}, bias={bias}"
        if "Transpose" in kind:
            options += f", stride={random.choice((1, 2))}"
        else:
            mode = random.choice(("zeros", "zeros", "circular", "reflect", "replicate"))
            options += f", padding={random.choice((0, 1))}, padding_mode={mode!r}, stride={random.choice((1, 1, 2))}"
        made = f"{kind}({width}, {new}, {random.choice((1, 2, 3))}, {options})"
        if random.random() < 0.1:
            made = f"nn.utils.parametrizations.weight_norm({made})"
        return f"{program.part(made)}({name})"
    if x.ndim == 3 and random.random() < 0.2:
        f = random.choice(BIPOLAR[:5] if program.bends else PLAIN[:4])
        skip = random.choice((None, 1, 2))
        rnn = f"bipolar.StackedRNN({x.size(-1)}, {new}, 2, {f!r}, bias={bias}, skip_every={skip})"
        return f"{program.part(rnn)}({name})[0]"
    if not x.ndim:
        return None
    way = random.random()
    if way < 0.7:
        made = f"nn.Linear({x.size(-1)}, {new}, bias={bias})"
        if random.random() < 0.1:
            made = f"nn.utils.parametrizations.weight_norm({made})"
        return f"{program.part(made)}({name})"
    weight = program.parameter(x.size(-1), new)
    if way < 0.8:
        return f"{name} @ {weight}"
    if way < 0.9:
        return f"tF.linear({name}, {weight}.t(){random.choice(('', '.abs()', ' * 2', '.contiguous()'))})"
    return f"torch.addmm({program.parameter(new)}, {name}, {weight})"


def norm(program: Program) -> str | None:
    random, name = program.random, program.signal()
    x = program.value(name)
    if x.ndim < 2:
        return None
    width, last = x.size(1), x.size(-1)
    affine = random.random() < 0.7
    choices = [f"nn.LayerNorm({last}, elementwise_affine={affine})", f"nn.RMSNorm({last}, elementwise_affine={affine})"]
    if x.ndim in (2, 3, 4):
        space = max(1, x.ndim - 2)
        choices += [f"nn.BatchNorm{space}d({width}, affine={affine})"] * 3
        choices += [f"nn.GroupNorm({random.choice((1, width))}, {width}, affine={affine})"]
        if x.ndim > 2:
            choices.append(f"nn.InstanceNorm{space}d({width}, affine={affine})")
    return f"{program.part(random.choice(choices))}({name})"


def activation(program: Program) -> str | None:
    """An activation, as a module or a function, most often with its channels where they are."""
    random, name = program.random, program.signal()
    x = program.value(name)
    if not x.ndim:
        return None
    kind = random.choices((BIPOLAR if program.bends else PLAIN, ODD, PLAIN, OTHERS), (20, 2, 0.5, 0.5))[0]
    f = random.choice(kind)
    if kind is not BIPOLAR:
        if f == "identity" or random.random() < 0.6:
            return f"{program.part(f'bipolar.get_activation({f!r})')}({name})"
        return f"torch.tanh({name})" if f == "tanh" else f"tF.{f}({name})"
    dim = random.choice((1, -1, 0)) if random.random() < program.wild / 4 else program.channels[name]
    pattern = random.choice(("alternate", "halves")) if random.random() < program.wild / 4 else program.pattern
    if x.ndim < 2:
        dim = -1
    options = f"dim={dim}, pattern={pattern!r}"
    way = random.random()
    if way < 0.1:
        return f"{program.part(f'bipolar.BPReLU({random.choice((1, x.size(dim)))}, {options})')}({name})"
    if way < 0.2:
        return f"{program.part(f'bipolar.Bipolar(torch.exp, {options})')}({name}.clamp(-3, 3))"
    if way < 0.3 and f[1:] in ("relu", "elu", "leaky_relu", "selu", "celu", "silu"):
        return f"F.{f}({name}.clone(), inplace=True, {options})"
    if way < 0.5 and hasattr(F, f):
        return f"F.{f}({name}, {options})"
    return f"{program.part(f'bipolar.get_activation({f!r}, {options})')}({name})"


def elementwise(program: Program) -> str | None:
    random, name = program.random, program.signal()
    x = program.value(name)
    number = random.choice(("2", "0.5", "-1.5", "3"))
    forms = [
        f"-{name}",
        f"{name}.neg()",
        f"torch.erf({name})",
        f"torch.atan({name})",
        f"torch.asinh({name})",
        f"torch.sinh({name}.clamp(-2, 2))",
        f"torch.sin({name})",
        f"torch.sign({name})",
        f"torch.reciprocal({name} * {name} * {name} + {name})",
        f"tF.normalize({name}, dim={_dim(program, x)})",
        f"{name}.abs()",
        f"torch.square({name})",
        f"{name} ** {random.choice((2, 3, 0, 1, 2.0))}",
        f"{name}.pow({random.choice((2, 3))})",
        f"{name} * {number}",
        f"{number} * {name}",
        f"{name} / {number}",
        f"{number} - {name}",
        f"{name} + {number}",
        f"torch.add({name}, 0)",
        f"tF.dropout({name}, 0.3, self.training)",
        f"{name}.detach()",
        f"{name}.contiguous()",
        f"{name}.double()",
        f"{name}.clone().neg_()",
        f"{name}.clone().mul_({number})",
        f"torch.where({name} > 0, {name}, {name})",
        f"torch.softmax({name}, {_dim(program, x)})",
        f"torch.clamp({name}, -1, 1)",
        f"torch.cumsum({name}, {_dim(program, x)})",
    ]
    return random.choice(forms)


def with_parameter(program: Program) -> str | None:
    """A scale, a shift, or a table of positions."""
    random, name = program.random, program.signal()
    x = program.value(name)
    if not x.ndim:
        return None
    shape = [size if random.random() < 0.5 else 1 for size in x.shape]
    weight = program.parameter(*shape[random.randrange(x.ndim) :])
    table = program.parameter(x.size(0) + 3, *x.shape[1:])
    forms = [
        f"{name} * {weight}",
        f"{name} + {weight}",
        f"{weight} - {name}",
        f"{name} * torch.exp({weight})",
        f"{name} * {weight}.abs()",
        f"{name} + {table}[:{x.size(0)}]",
        f"{name} + {weight}.unsqueeze(0).squeeze(0)",
        f"torch.cat([{name}, {weight}.expand({tuple(x.shape)})], {_dim(program, x)})",
    ]
    return random.choice(forms)


def two_alike(program: Program) -> str | None:
    """A residual connection."""
    a = program.signal()
    return f"{a} + {program.like(a)}"


def two(program: Program) -> str | None:
    """Two signals: sums, products, choices, matrix products."""
    random, a = program.random, program.signal()
    b, x = program.like(a), program.value(a)
    forms = [
        *[f"{a} + {b}"] * 4,
        f"{a} - {b}",
        f"torch.add({a}, {b}, alpha=0.5)",
        *[f"{a} * {b}"] * 2,
        f"{a} / ({b} * {b} + 1)",
        f"{a}.clone().add_({b})",
        f"{a}.clone().mul_({b})",
        f"torch.where({program.like(a)} > 0, {a}, {b})",
        f"torch.maximum({a}, {b})",
        f"{a} * torch.sigmoid({b})",
        f"torch.lerp({a}, {b}, 0.3)",
        f"torch.stack([{a}, {b}], {_dim(program, x)})",
        *[f"torch.cat([{a}, {b}], {_dim(program, x)})"] * 3,
        f"torch.hstack([{a}, {b}])",
        f"torch.vstack([{a}, {b}])",
        f"torch.dstack([{a}, {b}])",
        f"{a} @ {b}.mT",
        f"{a}.mT @ {b}",
        f"torch.bmm({a}, {b}.transpose(1, 2))",
        f"tF.scaled_dot_product_attention({a}, {b}, {program.like(a)})",
        f"torch.einsum('...i,...i->...', {a}, {b})",
        f"(lambda y: y.copy_({b}))({a}.clone())",
    ]
    return random.choice(forms)


def move(program: Program) -> str | None:
    random, name = program.random, program.signal()
    x = program.value(name)
    if not x.ndim:
        return f"{name}.reshape(1, 1)"
    d, e = _dim(program, x), _dim(program, x)
    size = x.size(d)
    order = random.sample(range(x.ndim), x.ndim)
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    k = random.choice(divisors)
    places = [random.randrange(size) for _ in range(random.randint(1, size + 1))]
    flat = math.prod(x.shape)
    rows = random.choice([n for n in range(1, flat + 1) if flat % n == 0])
    forms = [
        f"{name}.reshape({rows}, -1)",
        f"{name}.reshape({tuple(x.shape[:1])} + (-1,))",
        f"{name}.flatten({random.choice((0, 1, -2))})",
        f"{name}.unflatten({d}, ({k}, {size // k}))",
        f"{name}.unsqueeze({d})",
        f"{name}.squeeze()",
        f"{name}.squeeze({d})",
        f"{name}.transpose({d}, {e})",
        f"{name}.swapaxes({d}, {e})",
        f"{name}.mT",
        f"{name}.t()",
        f"{name}.permute({tuple(order)})",
        f"{name}.movedim({d}, {e})",
        f"{name}.repeat_interleave(2, {d})",
        f"{name}.repeat({', '.join(str(random.choice((1, 1, 2))) for _ in x.shape)})",
        f"{name}.tile(2)",
        f"{name}.expand(2, *{name}.shape)",
        f"{name}.roll({random.randint(1, 3)}, {d})",
        f"{name}.flip({d})",
        f"torch.rot90({name}, 1, ({d}, {e}))",
        f"{name}.narrow({d}, {random.randrange(size)}, 1)",
        f"{name}.select({d}, {random.randrange(size)})",
        f"{name}.index_select({d}, torch.tensor({places}))",
        f"torch.take_along_dim({name}, torch.zeros_like({name}, dtype=torch.long), {d})",
        f"torch.gather({name}, {d}, torch.zeros_like({name}, dtype=torch.long))",
        f"torch.gather({name}, {d}, {name}.argsort({d}))",
        f"{name}.chunk(2, {d})[{random.choice((0, -1))}]",
        f"{name}.split({k}, {d})[-1]",
        f"torch.tensor_split({name}, 2, {d})[0]",
        f"{name}.unbind({d})[{random.choice((0, -1))}]",
        f"{name}[..., {places}]",
        f"{name}[{places[0] % x.size(0)}]",
        f"{name}[:, ::2]",
        f"{name}[..., None, 0]",
        f"{name}[:, -1:]",
        f"{name}[{name}.argmax(0).flatten() % {x.size(0)}]",
        f"tF.pixel_shuffle({name}, 2)",
        f"tF.pixel_unshuffle({name}, 2)",
        f"tF.channel_shuffle({name}, {random.choice((2, 3))})",
        f"{name}.unfold({d}, {random.choice((1, 2))}, {random.choice((1, 2))})",
        f"tF.unfold({name}, 2, padding={random.choice((0, 1))})",
        f"{name}.diagonal(0, {d}, {e})",
        f"torch.atleast_3d({name})",
        f"{name}.view_as({name})",
        f"{name}.expand_as({program.signal()})",
        f"torch.broadcast_to({name}, {(2, *x.shape)})",
    ]
    return random.choice(forms)


def reduce(program: Program) -> str | None:
    random, name = program.random, program.signal()
    x = program.value(name)
    if not x.ndim:
        return None
    d, keep = _dim(program, x), random.choice((True, False))
    dims = tuple(sorted(random.sample(range(x.ndim), random.randint(1, x.ndim))))
    forms = [
        f"{name}.mean({d}, {keep})",
        f"{name}.mean({dims}, keepdim={keep})",
        f"{name}.sum({dims})",
        f"{name}.sum({d}, keepdim=True)",
        f"{name} - {name}.mean({d}, keepdim=True)",
        f"{name}.var({d}, correction=0, keepdim={keep})",
        f"{name} / ({name}.std({d}, correction=0, keepdim=True) + 0.1)",
        f"torch.var_mean({name}, {d}, correction=0, keepdim=True)[{random.choice((0, 1))}]",
        f"{name} / (torch.linalg.vector_norm({name}, dim={d}, keepdim=True) + 0.1)",
        f"{name}.norm(dim={d}, keepdim=True)",
        f"{name}.amax({d}, keepdim=True)",
        f"{name}.nansum({d})",
        f"tF.avg_pool1d({name}, 2)",
        f"tF.avg_pool2d({name}, 2, padding=1)",
        f"tF.adaptive_avg_pool2d({name}, 1)",
        f"tF.adaptive_avg_pool1d({name}, 2)",
        f"tF.max_pool2d({name}, 2)",
        f"tF.interpolate({name}, scale_factor=2, mode={random.choice(('nearest', 'linear', 'bilinear', 'bicubic'))!r})",
    ]
    return random.choice(forms)


def pad(program: Program) -> str | None:
    random, name = program.random, program.signal()
    x = program.value(name)
    count = random.randint(1, max(1, x.ndim))
    widths = [random.choice((0, 0, 1, 2, -1)) for _ in range(2 * count)]
    mode = random.choice(("'constant'", "'constant', 0.0", "'constant', 0.5", "'reflect'", "'replicate'", "'circular'"))
    if mode == "'circular'":  # where such a width is negative, torch leaves memory as it found it
        widths = [max(0, width) for width in widths]
    return f"tF.pad({name}, {widths}, {mode})"


def write(program: Program) -> str | None:
    """A value written into a copy, directly or through a view."""
    random, name = program.random, program.signal()
    other = program.signal()
    forms = [
        f"(lambda y: [y.__setitem__((slice(None), 0), 0.0), y][1])({name}.clone())",
        f"(lambda y: [y.__setitem__((slice(None), 0), 0.7), y][1])({name}.clone())",
        f"(lambda y: [y.__setitem__(0, {other}[0]), y][1])({name}.clone())",
        f"(lambda y: [y[:, :1].mul_(2), y][1])({name}.clone())",
        f"(lambda y: [y[:, :1].neg_(), y][1])({name}.clone())",
        f"(lambda y: [y.view(-1).add_(1), y][1])({name}.clone())",
        f"(lambda y: [y.__setitem__(y < 0, 0.0), y][1])({name}.clone())",
        f"torch.zeros_like({name})",
        f"torch.cat([{name}, torch.zeros_like({name})], 1)",
        f"{name} + torch.ones_like({name})",
        f"{name} + {name}.new_zeros({name}.shape)",
        f"{name}.masked_fill({name} > 1, 0.0)",
    ]
    return random.choice(forms)


def decide(program: Program) -> str | None:
    """Values that decide what runs."""
    a = program.signal()
    b = program.like(a)
    return f"({a} if {program.signal()}.sum() > 0 else {b})"


SOUND: dict[Proposal, float] = {layer: 8, activation: 9, two_alike: 1.5}
WILD: dict[Proposal, float] = {
    norm: 2,
    elementwise: 2.5,
    with_parameter: 1,
    two: 3,
    move: 3,
    reduce: 1.2,
    pad: 0.5,
    write: 0.5,
    decide: 0.1,
}


def outputs(made: Any) -> Sequence[Tensor]:
    return made if isinstance(made, tuple) else (made,)
