"""Random models, folded or unfolded: the same outputs to 1e-12 in double precision, or an honest refusal."""

import copy
from pathlib import Path
from random import Random

import torch
from torch import Tensor, nn

import bipolar
from torture.programs import Program, outputs
from torture.watch import asked, float64

#: By how much outputs may differ, as a share of the largest.
TOLERANCE = 1e-12


class WrongFoldError(Exception):
    """A folded model computes something else; the message shows the source."""


def a_model_folded(random: Random, directory: Path) -> str:
    """A random model, folded on an example and compared on others, in evaluation and in training mode."""
    with float64():
        program = Program(random, bends=random.random() < 0.75)
        program.grow(random.randint(3, 10))
        try:
            return _folded(program, program.model(directory))
        except WrongFoldError:
            raise
        except Exception as error:
            raise WrongFoldError(f"{type(error).__name__}: {error}\n{program.source()}") from error


def _folded(program: Program, model: nn.Module) -> str:
    others = [program.example, _another(program.example, 1.0), _another(program.example, 3.0)]
    expected = {(i, mode): _outputs(model, x, mode) for i, x in enumerate(others) for mode in (False, True)}
    if not all(bool(y.isfinite().all()) for made in expected.values() if made for y in made):
        return "not finite"
    change = bipolar.fold if program.bends else bipolar.unfold
    model.eval()
    folded = asked(lambda: _result(change(model, program.example)), (model, program.example))
    report = bipolar.fold_report(folded)
    for (i, mode), before in expected.items():
        after = _outputs(folded, others[i], mode)
        if before is None or after is None:
            if (before is None) != (after is None):
                raise WrongFoldError(f"only one of the two runs\n{program.source()}")
            continue
        near = _rounding(model, others[i], mode, before)
        for a, b, least in zip(before, after, near, strict=True):
            gap = float((a - b).abs().max())
            if not gap <= least:
                kind = "training" if mode else "evaluation"
                raise WrongFoldError(f"differs by {gap:.3g} in {kind}, input {i}\n{program.source()}")
    if not report.activations:
        return "nothing to fold"
    kept = sum(bool(reason) for reason in report.activations.values())
    return "folded" if not kept else "refused" if kept == len(report.activations) else "folded in part"


def _result(model: nn.Module) -> nn.Module:
    return model


def _another(example: Tensor, scale: float) -> Tensor:
    return scale * torch.randn_like(example) if example.is_floating_point() else torch.randint_like(example, 7)


def _outputs(model: nn.Module, x: Tensor, training: bool) -> list[Tensor] | None:
    """The outputs of a copy, by the same chance every time; None if it raises, as a norm may on one sample."""
    model = copy.deepcopy(model).train(training)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        try:
            return [y.clone() for y in outputs(model(x.clone()))]
        except ValueError:
            return None


def _rounding(model: nn.Module, x: Tensor, training: bool, before: list[Tensor]) -> list[float]:
    """How far rounding may take each output: the tolerance, or what a change of the input's last bits brings about."""
    moved = x * (1 + 4e-16 * torch.randn_like(x)) if x.is_floating_point() else x
    after = _outputs(model, moved, training) or before
    return [
        TOLERANCE * max(1.0, float(a.abs().max())) + 100 * float((a - b).abs().max())
        for a, b in zip(before, after, strict=True)
    ]
