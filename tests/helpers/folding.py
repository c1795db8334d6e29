"""Networks of linear layers that are folded on one example and compared on others."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import bipolar

BATCH: Tensor = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """Layers to choose from; what they do is given as a function of the network and its arguments."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.a, self.b, self.out, self.aux = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 2)
        self.act = bipolar.BReLU(dim=-1)
        self.pos = nn.Parameter(torch.randn(10, 8))
        self.run = run

    def forward(self, *args: Any) -> Any:
        return self.run(self, *args)


class Recurrent(nn.Module):
    """A recurrent stack between two layers, called by a function of the network and its arguments."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.up, self.rnn, self.out = nn.Linear(4, 8), bipolar.StackedRNN(8, 8, 4, "brelu"), nn.Linear(8, 2)
        self.start, self.run = nn.Parameter(torch.randn(4, 1, 8)), run

    def forward(self, *args: Any) -> Any:
        return self.run(self, *args)


def assert_folds(model: nn.Module, example: Any, *others: Any, training: bool = False) -> bipolar.SymmetryReport:
    """Folds on an example, and compares on others."""
    torch.manual_seed(0)
    plain = bipolar.fold(model.eval(), example)
    for args in (example, *others):
        arguments = args if isinstance(args, tuple) else (args,)
        for mode in (False, True) if training else (False,):
            found, expected = plain.train(mode)(*arguments), model.train(mode)(*arguments)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    report: bipolar.SymmetryReport = plain.fold_report  # type: ignore[assignment]
    return report


def bipolar_modules(model: nn.Module) -> list[str]:
    return [name for name, m in model.named_modules() if type(m).__module__ == "bipolar._activations.modules"]
