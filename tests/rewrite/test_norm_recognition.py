"""Norm layers under other names, and norm layers that also activate."""

from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
from bipolar._rewrite.norm_recognition import computes_a_norm
from tests.helpers.networks import head, images, kinds


class NormReLU(nn.BatchNorm2d):
    """A batch norm whose forward also activates."""

    def forward(self, input: Tensor) -> Tensor:
        return tF.relu(super().forward(input))


class BatchNormAct2d(nn.BatchNorm2d):
    """As in timm: it calls the function of torch, then modules of its own."""

    def __init__(self, channels: int, act: nn.Module) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), act

    def forward(self, x: Tensor) -> Tensor:
        training = self.training or self.running_mean is None
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        x = tF.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, training, self.momentum or 0.0, self.eps
        )
        out: Tensor = self.act(self.drop(x))
        return out


class GroupNormAct(nn.GroupNorm):
    def __init__(self, groups: int, channels: int) -> None:
        super().__init__(groups, channels)
        self.act = nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(tF.group_norm(x, self.num_groups, self.weight, self.bias, self.eps))
        return out


class LayerNorm2d(nn.LayerNorm):
    """A layer norm for channels in dimension 1."""

    def forward(self, x: Tensor) -> Tensor:
        y = tF.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return y.permute(0, 3, 1, 2)


class Doubled(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + input


class RMSNorm(nn.Module):
    """As in Llama and T5."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class BiasedNorm(RMSNorm):
    """As in nanoGPT."""

    def forward(self, x: Tensor) -> Tensor:
        return tF.layer_norm(x, self.weight.shape, self.weight, self.weight, 1e-5)


class Parameterless(nn.Module):
    def __init__(self, run: Any) -> None:
        super().__init__()
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.run(x)
        return out


class Scaled(RMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


def seen(model: nn.Sequential, x: Tensor) -> nn.Sequential:
    """With norms that have seen something."""
    for _ in range(3):
        model.train()(x * 2 + 1)
    return model.eval()


@pytest.mark.parametrize("kind", ["function", "module"])
@pytest.mark.parametrize("trained", [False, True])
def test_a_batch_norm_that_also_activates_keeps_its_activation(kind: str, trained: bool) -> None:
    norm = NormReLU(6) if kind == "function" else BatchNormAct2d(6, nn.PReLU(6))
    x = images()
    model = nn.Sequential(nn.Conv2d(3, 6, 3), norm, nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6), *head(6))
    model.eval()
    if trained:
        seen(model, x)
    plain = bipolar.convert(model, activations={}, remove_norm="batch", example=x)
    assert not {"BatchNorm2d", "NormReLU", "BatchNormAct2d"} & kinds(plain)
    act = nn.ReLU() if kind == "function" else norm.act
    if trained:
        torch.testing.assert_close(plain(x), model(x), atol=1e-5, rtol=1e-5)
    else:
        torch.testing.assert_close(plain(x), model[4:](model[2](act(model[0](x)))))
    converted = bipolar.convert(model, remove_norm="batch", example=x)
    name = "1.activation1" if kind == "function" else "1.act"
    assert converted.get_submodule(name).dim == 1
    assert converted.conversion_report["1.norm"].before == type(norm).__name__
    assert converted.conversion_report[name].after == str(converted.get_submodule(name))
    assert type(model[1]) is type(norm)


def test_other_norms_that_also_activate() -> None:
    x = images()
    model = nn.Sequential(nn.Conv2d(3, 6, 3), GroupNormAct(2, 6), nn.Conv2d(6, 6, 1), LayerNorm2d(6), *head(6))
    converted = bipolar.convert(model, remove_norm="all", example=x)
    assert str(converted[1].act) == "BSiLU(dim=1, inplace=True)"
    assert isinstance(converted[3], nn.Identity)
    expected = model[4:](model[2](bipolar.BSiLU()(model[0](x))))
    torch.testing.assert_close(converted(x), expected)


def test_a_norm_that_does_more_is_left_and_named() -> None:
    x = images()
    model = nn.Sequential(nn.Conv2d(3, 6, 3), Doubled(6), nn.ReLU(), *head(6)).eval()
    converted = bipolar.convert(model, activations={}, remove_norm="batch", example=x)
    assert "more than BatchNorm2d and activations" in converted.conversion_report["1"].note
    assert torch.equal(converted(x), model(x))


def test_each_norm_is_checked_for_itself() -> None:
    """A fresh norm elsewhere, which is dropped, hides nothing."""
    x = images()
    model = nn.Sequential(
        nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6), *head(6)
    )
    seen(model, x)
    model[1].reset_running_stats()
    model[3].forward = lambda x: tF.conv2d(x, model[3].weight)  # its bias is not used
    with pytest.raises(RuntimeError, match=r"without its batch norm 4 the layers there do not compute the same"):
        bipolar.convert(model, remove_norm="batch", example=x, inplace=True)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (RMSNorm(6), True),
        (BiasedNorm(6), True),
        (Parameterless(lambda x: x * x.square().mean(-1, keepdim=True).rsqrt()), True),
        (Parameterless(tF.normalize), False),
        (Parameterless(torch.tanh), False),
        (Parameterless(torch.sign), False),
        (Parameterless(lambda x: x.softmax(-1)), False),
        (Parameterless(lambda x: x - x.mean(-1, keepdim=True)), False),
        (Parameterless(lambda x: x.sum()), False),
        (Scaled(6), False),
        (nn.Sequential(), False),
        (nn.Linear(6, 6), False),
    ],
)
def test_norms_are_known_by_what_they_compute(module: nn.Module, expected: bool) -> None:
    state = torch.get_rng_state()
    assert computes_a_norm(module) is expected
    assert torch.equal(torch.get_rng_state(), state)
    assert module.training


def test_hand_written_norms_go_and_functions_are_named() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.act, self.down = RMSNorm(4), nn.Linear(4, 8), nn.ReLU(True), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.down(self.act(self.up(self.norm(x))))
            return tF.layer_norm(x, (4,))

    model, x = Block(), torch.randn(2, 3, 4)
    converted = bipolar.convert(model, remove_norm="all", example=x)
    assert isinstance(converted.norm, nn.Identity)
    row = converted.conversion_report["(model)"]
    assert (row.before, row.after) == ("layer_norm()", "left")
    assert "call a module" in row.note
    assert isinstance(bipolar.convert(model, remove_norm="batch", example=x).norm, RMSNorm)


def test_a_weight_that_is_standardised_by_a_norm_function_is_no_norm_of_the_signal() -> None:
    class Standardised(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            rows = tF.batch_norm(self.weight.t().clone(), None, None, training=True).t()
            return tF.linear(x, rows, self.bias)

    model = nn.Sequential(Standardised(4, 8), nn.LayerNorm(8), nn.ReLU())
    report = bipolar.convert(model, remove_norm="all", example=torch.randn(3, 4)).conversion_report
    assert [(row.name, row.after) for row in report] == [("1", "Identity"), ("2", "BReLU(dim=-1)")]


def test_a_norm_whose_weight_the_model_reads_stays() -> None:
    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.linear, self.act = nn.LayerNorm(4), nn.LayerNorm(4), nn.Linear(4, 4), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(self.first(x).to(self.norm.weight.dtype))
            out: Tensor = self.act(self.linear(x))
            return out

    model, x = Reading(), torch.randn(3, 4)
    converted = bipolar.convert(model, remove_norm="all", example=x)
    assert isinstance(converted.first, nn.Identity)
    assert isinstance(converted.norm, nn.LayerNorm)
    report = converted.conversion_report
    assert (report["norm"].after, report["norm"].note) == ("left", "the model reads its weight")
    assert torch.equal(bipolar.convert(model, like=report)(x), converted(x))


def test_norms_that_a_model_needs_to_run_are_refused_by_name() -> None:
    class Needing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = nn.LayerNorm(4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            if not isinstance(self.norm, nn.LayerNorm):
                raise TypeError("no norm")
            out: Tensor = self.linear(self.norm(x))
            return out

    with pytest.raises(RuntimeError, match=r"^model: without its norms Needing raises TypeError .*: no norm; leave a"):
        bipolar.convert(Needing(), remove_norm="all", example=torch.randn(3, 4))


def test_norms_of_a_transformer_layer_are_left_and_named() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16), nn.LayerNorm(8))
    report = bipolar.convert(model, remove_norm="all", example=torch.randn(3, 2, 8)).conversion_report
    assert report["0.norm1"].note == "TransformerEncoderLayer reads it in its own fast path"
    assert report["1"].after == "Identity"
