"""The report of LSUV."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import bipolar
from tests.helpers.signals import mlp


def test_the_report_prints_as_a_table() -> None:
    text = str(bipolar.lsuv_(mlp(nn.ReLU()), torch.randn(32, 48)))
    title, _, header, rule, first, second = text.splitlines()
    assert title == "variance, measured at the activation"
    assert header.split() == ["layer", "kind", "before", "after", "scale", "rounds", "at", "note"]
    assert set(rule) == {"-", " "}
    assert first.split()[:2] == ["0", "Linear"]
    assert second.split()[:2] == ["2", "Linear"]


def test_it_is_a_sequence_of_rows() -> None:
    report = bipolar.lsuv_(mlp(nn.ReLU()), torch.randn(32, 48))
    assert (report[0], report[-1], report["2"]) == (report.rows[0], report.rows[1], report.rows[1])
    assert report[:1] == report.rows[:1]
    assert (len(report), list(report)) == (2, report.rows)
    with pytest.raises(KeyError, match="'head' is none of 0, 2"):
        report["head"]


def test_it_names_the_parameters_that_were_scaled() -> None:
    model = nn.Sequential(
        nn.Linear(8, 8),
        parametrizations.weight_norm(nn.Linear(8, 8)),
        parametrizations.orthogonal(nn.Linear(8, 8)),
        nn.Linear(8, 8).requires_grad_(False),
        nn.LayerNorm(8),
        nn.RNN(8, 8),
        Last(),
        bipolar.StackedRNN(8, 8, num_layers=1),
    )
    report = bipolar.lsuv_(model, torch.randn(16, 4, 8))
    originals = "1.parametrizations.weight.original"
    recurrent = ["5.weight_ih_l0", "5.weight_hh_l0"]
    assert report.scaled == ["0.weight", f"{originals}0", f"{originals}1", *recurrent, *names_of_stack("7.")]
    assert set(report.scaled) <= {name for name, _ in model.named_parameters()}
    assert bipolar.lsuv_rnn_(bipolar.StackedRNN(8, 8, num_layers=1), torch.randn(16, 8)).scaled == names_of_stack("")


class Last(nn.Module):
    def forward(self, output: tuple[Tensor, Tensor]) -> Tensor:
        return output[0]


def names_of_stack(prefix: str) -> list[str]:
    names = [name for name, _ in bipolar.StackedRNN(8, 8, num_layers=1).named_parameters()]
    return [f"{prefix}{name}" for name in names if name.startswith("weight")]
