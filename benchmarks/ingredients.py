"""Ingredients for networks without norms, each alone: the test error on CIFAR-10 after equal steps.

WideResNet-10-1 with ELU, started by ``lsuv_`` on the second moment after each activation, two epochs by Muon, or by SGD
where it says so. Each row adds one thing that the literature, or we, have in place of norms. Those that are
not parts of ``bipolar.optim`` are here, in the few lines that they take.

It trains every row with every seed, about a minute and a half each on one core with instructions for bfloat16. Every
trial is kept; a command that was stopped goes on where it was.
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as tF
from torch import Tensor, nn
from torch.nn.utils import parametrize

import bipolar
from benchmarks.common import machine, markdown_table, record
from bipolar._tools.files import write_json
from bipolar.lab.data.images import ImageSet, load_images
from bipolar.lab.provenance import provenance
from bipolar.lab.reproduce.outcomes import DNC
from bipolar.lab.reproduce.tables import Entry
from bipolar.lab.training.update import OptimizerName, Update
from bipolar.optim import clip_by_unit_, pin

BATCH, EPOCHS, SMOOTHING, MOMENTUM = 250, 2, 0.1, 0.9
RECIPE = Update(recipe="fast")
#: The largest norm of a unit's gradient, as a share of that of its weights: the value of NFNets.
CLIPPING = 0.01
#: called between backward and step, or after it
Hook = Callable[[], object]


class Trial:
    """A network with its optimiser, to which a row adds its ingredient."""

    optimizer: torch.optim.Optimizer

    def __init__(self, data: ImageSet, seed: int) -> None:
        torch.manual_seed(seed)
        self.data, self.generator = data, torch.Generator().manual_seed(seed)
        network: Any = bipolar.models.WideResNet(
            10, 1, len(data.classes), activation="elu", dropout=0.0, in_channels=data.channels
        )
        self.model = network.to(memory_format=torch.channels_last)
        self.before: list[Hook] = []
        self.after: list[Hook] = []

    @property
    def convolutions(self) -> list[nn.Conv2d]:
        return [module for module in self.model.modules() if isinstance(module, nn.Conv2d)]

    def start(self, **options: Any) -> None:
        """By LSUV, with the options of it."""
        chosen = torch.randperm(len(self.data.train), generator=self.generator)[:BATCH]
        batch = self.data.normalised(self.data.train.images[chosen])
        bipolar.lsuv_(
            self.model,
            batch,
            target="second_moment",
            at="activation",
            generator=self.generator,
            **options,
        )

    def by(self, name: OptimizerName, lr: float) -> None:
        self.optimizer = RECIPE.make(name, self.model, lr, momentum=MOMENTUM)

    def train(self) -> float | str:
        """The test error in per cent after all steps."""
        data, model, optimizer = self.data, self.model, self.optimizer
        peaks = [group["lr"] for group in optimizer.param_groups]
        each = len(data.train) // BATCH
        total = EPOCHS * each
        model.train()
        for step in range(total):
            if step % each == 0:
                order = torch.randperm(len(data.train), generator=self.generator)
            chosen = order[(step % each) * BATCH :][:BATCH]
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * RECIPE.factor(step, total)
            logits = self.logits(data.varied(data.train, chosen, self.generator))
            loss = tF.cross_entropy(logits, data.train.labels[chosen], label_smoothing=SMOOTHING)
            if not math.isfinite(float(loss.detach())):
                return DNC
            optimizer.zero_grad()
            loss.backward()
            for hook in self.before:
                hook()
            optimizer.step()
            for hook in self.after:
                hook()
        return self.error()

    def logits(self, images: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits: Tensor = self.model(self.data.normalised(images))
        return logits.float()

    @torch.no_grad()
    def error(self) -> float:
        self.model.eval()
        parts = zip(self.data.test.images.split(500), self.data.test.labels.split(500), strict=True)
        wrong = sum(int((self.logits(images).argmax(1) != labels).sum()) for images, labels in parts)
        return 100 * wrong / len(self.data.test)


class Standardised(nn.Module):
    r"""Scaled weight standardisation (Brock et al., 2021, https://arxiv.org/abs/2101.08692).

    .. math:: \hat W_i = g_i \frac{W_i - \mu_i}{\sigma_i}

    with the mean and the deviation of each filter; the gain starts where :math:`\hat W` has the norm that LSUV chose.
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.gain = nn.Parameter(weight.detach().flatten(1).norm(dim=1))

    def forward(self, weight: Tensor) -> Tensor:
        centred = weight - weight.mean(dim=(1, 2, 3), keepdim=True)
        scale = self.gain / centred.flatten(1).norm(dim=1)
        result: Tensor = centred * scale.view(-1, 1, 1, 1)
        return result


class Scaled(nn.Module):
    """The output of a branch times a scalar that starts at zero (SkipInit: De & Smith, 2020, arXiv 2002.10444)."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch, self.scale = branch, nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.scale * self.branch(x)
        return output


def plain(trial: Trial, **options: Any) -> None:
    trial.start(**options)
    trial.by("muon", 0.05)


def pin_filters(trial: Trial, gain: float | None = None) -> None:
    pin(trial.optimizer, trial.model, gain=gain)


def centred(trial: Trial, **options: Any) -> None:
    """Filters of mean zero and constant norm, but for the first layer: projected gradients as in Huang et al., 2017."""

    @torch.no_grad()
    def project() -> None:
        for weight, norm in zip(weights, norms, strict=True):
            weight -= weight.mean(dim=(1, 2, 3), keepdim=True)
            weight *= norm / weight.flatten(1).norm(dim=1)[:, None, None, None]

    trial.start()
    weights = [layer.weight for layer in trial.convolutions[1:]]
    norms = [torch.ones(len(weight), 1, 1, 1) for weight in weights]
    project()
    trial.start(orthogonal=False, **options)
    norms = [weight.detach().flatten(1).norm(dim=1)[:, None, None, None] for weight in weights]
    trial.by("muon", 0.05)
    trial.after.append(project)


def standardised(trial: Trial) -> None:
    trial.start()
    for layer in trial.convolutions[1:]:
        parametrize.register_parametrization(layer, "weight", Standardised(layer.weight))
    trial.by("muon", 0.05)


def skip_scalars(trial: Trial) -> None:
    trial.start()
    for block in (block for stage in trial.model.stages for block in stage):
        block.conv2 = Scaled(block.conv2)
    trial.by("muon", 0.05)


def clipped(trial: Trial) -> None:
    body = [p for name, p in trial.model.named_parameters() if not name.startswith("head")]
    trial.before.append(lambda: clip_by_unit_(body, CLIPPING))


def by_sgd(trial: Trial) -> None:
    trial.by("sgd", 0.1)


#: The steps that make each row.
ROWS: dict[str, tuple[Callable[[Trial], object], ...]] = {
    "Muon": (plain,),
    "Muon, pinned": (plain, pin_filters),
    "Muon, pinned, learned gains": (plain, lambda trial: pin_filters(trial, 0.2)),
    "Muon, pinned, LSUV per channel": (lambda trial: plain(trial, per_channel=True), pin_filters),
    "Muon, pinned, LSUV with centring": (lambda trial: plain(trial, centre=True), pin_filters),
    "Muon, pinned, learned gains, LSUV with centring": (
        lambda trial: plain(trial, centre=True),
        lambda trial: pin_filters(trial, 0.2),
    ),
    "Muon, centred filters of constant norm": (centred,),
    "Muon, centred filters of constant norm, LSUV with centring": (lambda trial: centred(trial, centre=True),),
    "Muon, scaled weight standardisation": (standardised,),
    "Muon, skip scalars": (skip_scalars,),
    "Muon, pinned, skip scalars": (skip_scalars, pin_filters),
    "Muon, clipped by unit": (plain, clipped),
    "SGD, clipped by unit": (plain, by_sgd, clipped),
    "SGD, scaled weight standardisation, clipped by unit": (standardised, by_sgd, clipped),
}


def error_of(name: str, data: ImageSet, seed: int) -> float | str:
    trial = Trial(data, seed)
    for step in ROWS[name]:
        step(trial)
    return trial.train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each row (default: 3)")
    parser.add_argument("--data-dir", type=Path, help="where CIFAR-10 is (default: as for bipolar train)")
    parser.add_argument("--out", type=Path, default=Path("runs/ingredients.json"), help="the trials, to go on from")
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md too")
    given = parser.parse_args()
    trials = json.loads(given.out.read_text(encoding="utf-8"))["trials"] if given.out.exists() else {}
    data = load_images("cifar10", given.data_dir)
    for seed in range(1, given.seeds + 1):
        for name in ROWS:
            if str(seed) not in trials.setdefault(name, {}):
                trials[name][str(seed)] = error_of(name, data, seed)
                write_json(given.out, {**provenance(), "trials": trials})
                print(f"{name}, seed {seed}: {trials[name][str(seed)]}", flush=True)
    rows = [["WideResNet-10-1", name, Entry(list(trials[name].values())).text(1)] for name in ROWS]
    head = f"{machine()}; bfloat16, batch {BATCH}, {EPOCHS} epochs of CIFAR-10; {given.seeds} seeds."
    text = f"{head}\n\n{markdown_table(['network', 'recipe', 'test error, %'], rows)}"
    print(text)
    if given.record:
        record("ingredients", text)


if __name__ == "__main__":
    main()
