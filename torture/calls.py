"""Random calls of the public API: the right answer, by a slow twin, or a clear error; and no trace left behind."""

import copy
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, cast

import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
import bipolar.functional as F
from bipolar._activations.catalogue import ENTRIES
from bipolar._tools.calling import call
from bipolar.optim import clip_by_unit_
from tests.helpers.definition import CASES, Function, by_definition, is_flipped
from tests.helpers.signals import variances
from torture.draws import FLOATS, SmallModel, a_model, a_pattern, a_shape, a_tensor, mostly
from torture.recurrent import recurrent
from torture.watch import Refusal, are_close, asked, assert_close

NUMBERS = (0.0, -1.0, 1e-3, 0.5, 1.0, 2.0, 100.0, float("inf"), float("nan"))


def a_call(random: Random, directory: Path) -> str:
    """A call of a random function; returns the function and the outcome."""
    names = list(CALLS)
    (name,) = random.choices(names, [CALLS[name][0] for name in names])
    return f"{name}: {CALLS[name][1](random, directory)}"


# Activations


def activation(random: Random, directory: Path) -> str:
    """A bipolar activation, as a function or a module, in place or not, and its gradient."""
    case = CASES[random.choice(list(CASES))]
    x, pattern = a_tensor(random), a_pattern(random)
    dim = _a_dim(random, x)
    inplace = case.inplace and random.random() < 0.3
    options: dict[str, Any] = {"dim": dim, "pattern": pattern} | ({"inplace": True} if inplace else {})
    original = x if x.is_meta or x.numel() > 1 << 24 else x.clone()
    tracked = x.is_floating_point() and not inplace and random.random() < 0.4
    given = x.detach().requires_grad_() if tracked else x

    def act() -> Tensor:
        if random.random() < 0.5 or case.ours is not getattr(F, case.ours.__name__, None):
            return case(given, **options)
        module = case.module(**case.arguments, **options).eval()
        return cast(Tensor, module(given))

    def excuse() -> Tensor:  # torch has no such kernel, or no such memory
        return x.copy_(case.f(x)) if inplace else case.f(x)

    answer = asked(act, () if inplace else (given,), excuse)
    if isinstance(answer, Refusal):
        if not inplace or x.is_meta or x.numel() > 1 << 24:
            return str(answer)
        assert torch.equal(x.nan_to_num(7), original.nan_to_num(7)), "refused, but the input was overwritten"
        return str(answer)
    channel = 0 if x.ndim == 1 and dim == 1 else dim
    twin_input = original.detach().clone().requires_grad_(tracked) if not x.is_meta else original
    twin, whole = (way(case.f, twin_input, channel, pattern) for way in (by_definition, in_one_piece))
    assert_close(answer, twin, "output", or_else=whole)
    if inplace and not x.is_meta:
        assert_close(x, twin, "input, in place", or_else=whole)
    if tracked and not x.is_meta:
        cotangent = torch.randn(answer.shape, dtype=torch.float64).to(answer)
        ours, theirs = torch.autograd.grad(answer, given, cotangent)[0], _gradient(twin, twin_input, cotangent)
        finite = twin_input.detach().isfinite()  # at NaN, torch's own depends on the layout
        assert_close(ours.where(finite, 0), theirs.where(finite, 0), "gradient")
    return "right" if x.is_meta or are_close(twin, whole).all() else "right, where torch's own depends on the layout"


def in_one_piece(f: Function, x: Tensor, dim: int, pattern: str) -> Tensor:
    """The definition as ``by_definition`` has it, but by one call of f for all channels, which lie in one piece.

    Torch's GELU depends on that, the only activation here that was seen to: in float32 and bfloat16 contiguous
    tensors go to oneDNN, which makes NaN of infinity, all others to a kernel of its own, which makes infinity of it
    (https://github.com/pytorch/pytorch/issues/185770). Where torch disagrees with itself, either answer is right.
    """
    channels = x.size(dim)
    if channels == 0:
        return x.clone()

    def flipped(tensor: Tensor) -> Tensor:
        parts = enumerate(tensor.unbind(dim))
        return torch.stack([-part if is_flipped(i, channels, pattern) else part for i, part in parts], dim)

    return flipped(f(flipped(x).contiguous()))


def _gradient(output: Tensor, input: Tensor, cotangent: Tensor) -> Tensor:
    if not output.requires_grad:  # nothing was computed
        return torch.zeros_like(input)
    return torch.autograd.grad(output, input, cotangent, allow_unused=True, materialize_grads=True)[0]


def relatives(random: Random, directory: Path) -> str:
    """OPLU and CReLU, channel by channel."""
    x, pattern = a_tensor(random), a_pattern(random)
    dim = _a_dim(random, x)
    sorts = random.random() < 0.5

    def act() -> Tensor:
        return F.oplu(x, dim=dim, pattern=pattern) if sorts else F.crelu(x, dim=dim)

    answer = asked(act, (x,), lambda: x.clone())
    if isinstance(answer, Refusal) or x.is_meta:
        return str(answer) if isinstance(answer, Refusal) else "right"
    channels = list(x.unbind(0 if x.ndim == 1 and dim == 1 else dim))
    if not sorts:
        twins = [tF.relu(c) for c in channels] + [tF.relu(-c) for c in channels]
    else:
        half, twins = len(channels) // 2, list(channels)
        for k in range(half):
            i, j = (2 * k, 2 * k + 1) if pattern == "alternate" else (k, k + half)
            twins[i], twins[j] = torch.maximum(channels[i], channels[j]), torch.minimum(channels[i], channels[j])
    if twins:
        assert_close(answer, torch.stack(twins, 0 if x.ndim == 1 and dim == 1 else dim), "output")
    return "right"


def _a_dim(random: Random, x: Tensor) -> Any:
    return mostly(random, range(-x.ndim, x.ndim) or (1,), (1, 7, -9, 1.0, "1", None), 0.1)


# Names, moments and gains


def names(random: Random, directory: Path) -> str:
    """An activation by name: the module has that class, or the name is refused."""
    known = bipolar.list_activations()
    name: Any = random.choice((random.choice(known), random.choice(known).upper(), "belux", "", 3, None))
    options = random.choice(({}, {}, {"dim": -1}, {"pattern": "halves"}, {"alpha": 0.5}, {"nonsense": 1}))

    def plain() -> nn.Module:  # a module that does not take these options says so itself
        entry = ENTRIES[str(name).lower().removeprefix("b" if str(name).lower() not in ENTRIES else "")]
        return (entry.bipolar if str(name).lower() not in ENTRIES else entry.module)(**options)

    answer = asked(lambda: bipolar.get_activation(name, **options), (), plain, draws=True)
    if isinstance(answer, Refusal):
        return str(answer)
    assert repr(answer) == repr(plain()), f"{name!r} makes {answer!r}"
    return "right"


def moments(random: Random, directory: Path) -> str:
    """Moments and gains, against sums over a fine grid."""
    f = random.choice((random.choice(bipolar.list_activations()), torch.exp, torch.sin, nn.Hardtanh(0.0, 2.0)))
    if f in ("crelu", "bprelu", "prelu"):
        f = "relu"
    if random.random() < 0.6:
        std = mostly(random, (1e-3, 0.1, 0.5, 1.0, 2.0, 10.0, 100.0, 3), (*NUMBERS, 1e-12, 1e12, True, "1"), 0.3)
        answer = asked(lambda: bipolar.moments(f, std))
        if isinstance(answer, Refusal):
            return str(answer)
        if not 1e-3 <= float(std) <= 100 or (f in (torch.exp, torch.sin) and float(std) > 2):
            return "right"
        mean, variance, second = _by_grid(f, float(std))
        size = max(abs(mean), math.sqrt(second), 1e-9)
        for found, expected, scale in (
            (answer.mean, mean, size),
            (answer.variance, variance, size**2),
            (answer.second_moment, second, size**2),
        ):
            assert abs(found - expected) < 1e-3 * scale, f"moments of {f}, {std}: {found}, not {expected}"
        return "right"
    keep, stacked = mostly(random, ("variance", "second_moment"), ("mean", 1)), random.random() < 0.3
    answer = asked(lambda: bipolar.gain(f, cast(Any, keep), stacked=stacked))
    if isinstance(answer, Refusal):
        return str(answer)
    if not stacked:
        _, variance, second = _by_grid(f, answer)
        kept = variance if keep == "variance" else second
        assert abs(kept - 1) < 1e-3, f"gain of {f}: leaves a {keep} of {kept}"
    return "right"


def _by_grid(f: Any, std: float) -> tuple[float, float, float]:
    """Mean, variance and second moment under a normal input, by sums over 400,001 points."""
    z = torch.linspace(-12, 12, 400_001, dtype=torch.float64)
    weight = torch.exp(-(z**2) / 2)
    weight /= weight.sum()
    f = bipolar.get_activation(f).eval() if isinstance(f, str) else f
    with torch.no_grad():
        y = f((std * z)[:, None].repeat(1, 2)).mean(1), f((std * z)[:, None].repeat(1, 2)).square().mean(1)
    mean, second = float(weight @ y[0]), float(weight @ y[1])
    return mean, second - mean**2, second


# Models


def _a_batch(random: Random, model: SmallModel) -> Any:
    """A batch for a model: its example, or one that is wrong somehow."""
    x = model.example
    return mostly(
        random,
        (x, (x,)),
        (
            x.double(),
            x.half(),
            x[:0],
            x[:1],
            torch.full_like(x, float("nan")),
            torch.zeros_like(x),
            x.long(),
            a_tensor(random),
            "text",
            None,
            [],
            {},
        ),
        0.25,
    )


def _runs(model: nn.Module, batch: Any) -> Callable[[], object]:
    """The excuse that the model itself fails on the batch."""

    def run() -> object:
        twin = copy.deepcopy(model).eval()
        for module in twin.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.train()
        with torch.no_grad():
            return call(twin, batch)

    return run


def lsuv(random: Random, directory: Path) -> str:
    """LSUV: what the report says is there, and after an error nothing has changed."""
    model = a_model(random, random.choice(FLOATS))
    batch = _a_batch(random, model)
    options: dict[str, Any] = {
        "target": mostly(random, ("variance", "variance", "second_moment"), ("mean", None)),
        "at": mostly(random, ("activation", "output"), ("input", None)),
        "orthogonal": random.random() < 0.7,
        "per_channel": random.random() < 0.2,
        "centre": random.random() < 0.2,
        "tol": mostly(random, (1e-3, 1e-3, 1e-2), (0.0, float("nan"), "1")),
        "max_iter": mostly(random, (40, 40, 1), (0, 1.5, "40")),
        "generator": torch.Generator().manual_seed(random.getrandbits(31)),
    }
    if random.random() < 0.2:
        options[random.choice(("include", "exclude"))] = random.choice(("0", "*", nn.Linear, "nothing"))
    untouched = copy.deepcopy(model.module)
    mutable: Any = asked(
        lambda: bipolar.lsuv_(model.module, batch, **options),
        [batch] if isinstance(batch, Tensor) else [],
        _runs(untouched, batch),
    )
    if isinstance(mutable, Refusal):
        for (name, old), new in zip(untouched.named_parameters(), model.module.parameters(), strict=True):
            assert torch.equal(old.nan_to_num(7), new.nan_to_num(7)), f"refused, but {name} has changed"
        return str(mutable)
    assert [m.training for m in untouched.modules()] == [m.training for m in model.module.modules()]
    for (name, before), after in zip(untouched.named_buffers(), model.module.buffers(), strict=True):
        assert torch.equal(before, after), f"buffer {name} has changed"
    if model.example.dtype in (torch.float32, torch.float64):
        _check_sizes(model.module, batch, mutable, options)
    return "right"


def _check_sizes(model: nn.Module, batch: Any, report: Any, options: dict[str, Any]) -> None:
    """Every layer that LSUV scaled gives out what its row says, itself or after the activation that follows."""
    found = variances(model, batch, options["target"])
    following = {name: after for (name, _), (after, _) in pairwise(model.named_children())}
    for row in report:
        if row.rounds and "centred" not in row.note:
            kept = found[row.name if row.at == "output" else following[row.name]]
            size = f"{row.name} has a {options['target']} of {kept} at the {row.at}"
            assert abs(kept - row.after) < 5 * options["tol"] * max(1.0, row.after), f"{size}, not {row.after}"
            assert row.at != "output" or abs(kept - 1) < 5 * options["tol"], size


def probe(random: Random, directory: Path) -> str:
    """The probe against sums over the outputs that hooks keep."""
    model = a_model(random, random.choice(FLOATS))
    batch = _a_batch(random, model)
    model.module.train(random.random() < 0.3)
    loss: Any = mostly(random, (None, lambda y: y.float().square().mean()), (lambda y: y, "loss", lambda y: 1.0))
    outputs: dict[str, Tensor] = {}
    gradients: dict[str, Tensor] = {}
    twin = copy.deepcopy(model.module)
    answer = asked(
        lambda: bipolar.probe(model.module, batch, loss),
        [model.module, *([batch] if isinstance(batch, Tensor) else [])],
        lambda: _as_it_is(copy.deepcopy(twin), batch),
        draws=True,
    )
    if isinstance(answer, Refusal) or model.module.training:
        return str(answer) if isinstance(answer, Refusal) else "right"

    def keep(name: str, y: Tensor) -> None:
        outputs[name] = y.detach().double()
        if y.requires_grad:
            y.register_hook(lambda gradient: gradients.update({name: gradient.double()}))

    for name, layer in twin.named_children():
        layer.register_forward_hook(lambda m, a, y, name=name: keep(name, y))
    output = call(twin, batch)
    if loss is not None:
        loss(output).backward()
    for row in answer.layers:
        if row.name in gradients:
            size = float(gradients[row.name].square().mean().sqrt())
            same = math.isclose(row.gradient, size, rel_tol=1e-2, abs_tol=1e-7) or not math.isfinite(size)
            assert same, f"{row.name}: a gradient of {row.gradient}, not {size}"
        y = outputs[row.name]
        near = 1e-3 * max(1.0, float(y.square().mean()))
        for found, expected in ((row.mean, float(y.mean())), (row.variance, float(y.var(correction=0)))):
            same = abs(found - expected) <= near or (math.isnan(found) and not math.isfinite(expected))
            assert same, f"{row.name}: {found}, not {expected}"
    return "right"


def _as_it_is(model: nn.Module, batch: Any) -> object:
    return call(model, batch)


class _ByDefinition(nn.Module):
    """A bipolar activation, slow and obvious."""

    def __init__(self, f: nn.Module, dim: int, pattern: str) -> None:
        super().__init__()
        self.f, self.dim, self.pattern = f, dim, pattern

    def forward(self, x: Tensor) -> Tensor:
        return by_definition(self.f, x, self.dim, self.pattern)


def convert(random: Random, directory: Path) -> str:
    """A converted model computes what one with activations by definition does."""
    dtype = random.choice((torch.float32, torch.float64))
    model = a_model(random, dtype)
    pattern: Any = a_pattern(random)
    options: dict[str, Any] = {"pattern": pattern, "inplace": random.random() < 0.2}
    if random.random() < 0.5:
        options["example"] = _a_batch(random, model)
    if random.random() < 0.2:
        options["dim"] = mostly(random, (1, -1, 0), ("1", 1.5))
    plain = copy.deepcopy(model.module)
    changes = options["inplace"]
    answer = asked(
        lambda: bipolar.convert(model.module, **options),
        () if changes else (model.module,),
        lambda: call(plain.eval(), options["example"]),
    )
    if isinstance(answer, Refusal):
        return str(answer)
    twin = copy.deepcopy(plain)
    for name, module in plain.named_children():
        entry = next((e for e in ENTRIES.values() if e.module is type(module)), None)
        if entry is None or not entry.relu_family(**entry.options_of_module(module)):
            continue
        dim = options.get("dim", model.channels[name])
        if isinstance(module, nn.PReLU) and module.num_parameters > 1:
            if options.get("dim", 1) != 1:
                return "right"  # a dimension that its slopes do not have; the model says so when it is called
            dim = 1
            setattr(twin, name, bipolar.BPReLU(module.num_parameters, dim=dim, pattern=pattern).to(dtype))
        else:
            setattr(twin, name, _ByDefinition(module, dim, pattern))
    with torch.no_grad():
        x = model.example
        assert_close(answer.eval()(x), twin.eval()(x), "output", 1e-4 if dtype == torch.float32 else 1e-10)
    return "right"


def fold(random: Random, directory: Path) -> str:
    """Folded, unfolded or only looked at, a model computes the same, and keeps what it was given."""
    dtype = random.choice(FLOATS)
    model = a_model(random, dtype)
    bent = bipolar.convert(model.module, example=model.example, pattern=random.choice(("alternate", "halves")))
    bent = bent.train(random.random() < 0.5)
    example = random.choice((None, *(model.example,) * 3, _a_batch(random, model)))
    excuse = _runs(copy.deepcopy(bent), example)
    if random.random() < 0.3:
        report = asked(lambda: bipolar.symmetry(bent, example), (bent,), excuse)
        if isinstance(report, Refusal):
            return str(report)
        str(report), report.summary()
        strict = asked(lambda: bipolar.fold(bent, example, strict=True), (bent,))
        assert report.holds == (not isinstance(strict, Refusal)), "symmetry and fold disagree"
        return "right"
    folded = asked(lambda: bipolar.fold(bent, example), (bent,), excuse)
    if isinstance(folded, Refusal):
        return str(folded)
    back = asked(lambda: bipolar.unfold(folded, model.example), (folded,))
    with torch.no_grad():
        expected = bent.eval()(model.example)
        for made in (folded, back):
            if not isinstance(made, Refusal):
                assert_close(made.eval()(model.example), expected, "output")
    return "right"


def clip(random: Random, directory: Path) -> str:
    """Clipping unit by unit, one unit at a time."""
    parameter = nn.Parameter(torch.randn(a_shape(random, 1, 3)).to(random.choice(FLOATS)))
    parameter.grad = torch.randn_like(parameter) * random.choice((0.0, 1.0, 100.0))
    clipping: Any = random.choice((0.01, 0.1, 1.0, 0.0, -1.0, float("nan"), float("inf")))
    gradient = parameter.grad.clone()
    answer = asked(lambda: clip_by_unit_([parameter], clipping))
    if isinstance(answer, Refusal):
        assert torch.equal(gradient, parameter.grad), "refused, but the gradient has changed"
        return str(answer)
    triple = (parameter.detach(), gradient, parameter.grad)
    for weights, before, after in [triple] if parameter.ndim < 2 else zip(*triple, strict=True):
        norms = [float(part.double().norm()) for part in (weights, before)]
        share = min(1.0, clipping * max(norms[0], 1e-3) / norms[1]) if norms[1] else 1.0
        near = 2e-2 if parameter.dtype in (torch.float16, torch.bfloat16) else 1e-4
        torch.testing.assert_close(after.double(), before.double() * share, rtol=near, atol=1e-6)
    return "right"


def onnx(random: Random, directory: Path) -> str:
    """An exported model computes the same on another input, in onnxruntime."""
    import onnxruntime

    model = a_model(random)
    bent = bipolar.convert(model.module, example=model.example).eval()
    path = directory / "model.onnx"
    answer = asked(lambda: bipolar.export_onnx(bent, model.example, path), (bent, model.example))
    if isinstance(answer, Refusal):
        assert not path.exists(), "refused, but a file was written"
        return str(answer)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (name,) = [node.name for node in session.get_inputs()]
    x = torch.randn_like(model.example)
    with torch.no_grad():
        expected = bent(x)
    assert_close(torch.from_numpy(session.run(None, {name: x.numpy()})[0]), expected, "output", 1e-3)
    return "right"


#: The calls, each with its weight in the draw: exports and LSUV take longer than activations.
CALLS: dict[str, tuple[float, Callable[[Random, Path], str]]] = {
    "activation": (40, activation),
    "relatives": (5, relatives),
    "get_activation": (3, names),
    "moments and gain": (6, moments),
    "lsuv_": (12, lsuv),
    "probe": (8, probe),
    "convert": (8, convert),
    "fold, unfold, symmetry": (8, fold),
    "StackedRNN": (10, recurrent),
    "clip_by_unit_": (2, clip),
    "export_onnx": (0.3, onnx),
}
