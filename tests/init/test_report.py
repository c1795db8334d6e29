"""The report of LSUV."""

import torch
from torch import nn

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
