"""The paper's LSUV for the recurrent stack, against a measurement of its own."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import bipolar


def states(rnn: bipolar.StackedRNN, x: Tensor, seed: int) -> list[Tensor]:
    """Each layer's state after one time step from N(0, 1) states: by the module itself."""
    generator = torch.Generator().manual_seed(seed)
    past = torch.stack([torch.randn(len(x), rnn.hidden_size, generator=generator) for _ in range(rnn.num_layers)])
    with torch.no_grad():
        return list(rnn.eval()(x.unsqueeze(0), past.to(x))[1])


def standardised(*shape: int) -> Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (x - x.mean()) / x.std(correction=0)


@pytest.mark.parametrize("target", ["variance", "second_moment"])
@pytest.mark.parametrize("nonlinearity", ["relu", "brelu", "elu", "belu", "selu", "bgelu", "identity"])
@pytest.mark.parametrize("inputs", [48, 10])
def test_every_state_has_unit_size(target: Any, nonlinearity: str, inputs: int) -> None:
    rnn = bipolar.StackedRNN(inputs, 48, 10, nonlinearity, dropout=0.5, dtype=torch.float64)
    x = standardised(256, inputs)
    report = bipolar.lsuv_rnn_(rnn, x, target=target, generator=torch.Generator().manual_seed(2))
    assert [row.name for row in report][:2] == ["weight_ih_l0", "weight_hh_l0"]
    assert len(report) == 20
    assert all(abs(row.after - 1) <= 1e-3 for row in report)
    assert rnn.training
    # the procedure draws the same states, layer by layer
    for h in states(rnn, x, 2):
        size = h.var(correction=0) if target == "variance" else h.square().mean()
        assert abs(size.item() - 1) < 2e-3


@pytest.mark.parametrize("nonlinearity", ["relu", "belu"])
@pytest.mark.parametrize("gamma", [0.0, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("inputs", [32, 200])
def test_weights_have_equal_magnitude_up_to_gamma(gamma: float, inputs: int, nonlinearity: str) -> None:
    rnn = bipolar.StackedRNN(inputs, 32, 9, nonlinearity, gamma=gamma, dtype=torch.float64)
    with torch.no_grad():
        rnn.weight_ih_l1.mul_(3)  # whatever they come with
    bipolar.lsuv_rnn_(rnn, standardised(256, inputs))
    for u, w, _ in rnn.layers():
        total = u.square().sum() + w.square().sum()
        assert (w.square().sum() / total).item() == pytest.approx(gamma, abs=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("inputs", "nonlinearity"), [(32, "identity"), (200, "identity"), (32, "relu")])
def test_balance_by_variance_gives_each_weight_its_share(gamma: float, inputs: int, nonlinearity: str) -> None:
    rnn = bipolar.StackedRNN(inputs, 32, 3, nonlinearity, skip_every=None, gamma=gamma, dtype=torch.float64)
    x = standardised(4000, inputs)
    bipolar.lsuv_rnn_(rnn, x, balance="variance")
    for u, w, _ in rnn.layers():
        past = torch.randn(4000, 32, dtype=torch.float64)
        vertical, horizontal = (x @ u.mT).detach(), (past @ w.mT).detach()
        total = vertical.var() + horizontal.var()
        assert (horizontal.var() / total).item() == pytest.approx(gamma, abs=0.05)
        x = rnn.activation(vertical + horizontal)


def test_the_two_balances_differ_for_plain_relu_and_hardly_for_bipolar() -> None:
    def ratio(nonlinearity: str) -> float:
        """std U / std W by equal variances, over the layers of 12 that are fed with activations."""
        rnn = bipolar.StackedRNN(128, 128, 12, nonlinearity)
        bipolar.lsuv_rnn_(rnn, standardised(256, 128).float(), balance="variance")
        return sum((u.std() / w.std()).item() for u, w, _ in rnn.layers()[1:]) / 11

    assert ratio("relu") < 0.9
    assert abs(ratio("brelu") - 1) < 0.05


def test_a_skip_that_leaves_nothing_keeps_the_weights_and_says_so() -> None:
    rnn = bipolar.StackedRNN(32, 32, 8, skip_scale=1.2)
    before = {name: p.clone() for name, p in rnn.named_parameters()}
    report = bipolar.lsuv_rnn_(rnn, torch.randn(256, 32))
    for layer in (3, 7):
        for name in (f"weight_ih_l{layer}", f"weight_hh_l{layer}"):
            assert "the skip alone has" in report[name].note
            assert report[name].scale == 1
            assert report[name].after > 1
            assert torch.equal(getattr(rnn, name), before[name])
    assert not report["weight_ih_l2"].note
    assert "weights kept" in str(report)


def test_tanh_is_scaled_at_its_input() -> None:
    rnn = bipolar.StackedRNN(32, 32, 2, "tanh", skip_every=None)
    report = bipolar.lsuv_rnn_(rnn, torch.randn(256, 32))
    assert {row.at for row in report} == {"input of f"}


def test_the_input_is_standardised() -> None:
    one, two = (bipolar.StackedRNN(16, 16, 4) for _ in range(2))
    two.load_state_dict(one.state_dict())
    x = torch.randn(64, 16)
    bipolar.lsuv_rnn_(one, x, generator=torch.Generator().manual_seed(1))
    bipolar.lsuv_rnn_(two, 5 * x + 7, generator=torch.Generator().manual_seed(1))
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_lsuv_does_it_for_a_model_that_contains_a_stack() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(5, 24)
            self.rnn = bipolar.StackedRNN(24, 24, 4, batch_first=True)
            self.decode = nn.Linear(24, 3)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.decode(self.rnn(self.embed(x))[0])
            return output

    model = Model()
    start = model.rnn.weight_hh_l0.detach().clone()
    report = bipolar.lsuv_(model, torch.randn(32, 6, 5))
    names = [row.name for row in report]
    assert names[0] == "embed"
    assert names[1:3] == ["rnn.weight_ih_l0", "rnn.weight_hh_l0"]
    assert names[-1] == "decode"
    assert len(names) == 10
    assert all(abs(row.after - 1) <= 1e-3 for row in report)
    ratio = model.rnn.weight_hh_l0.detach() / start  # scaled, not made orthogonal
    torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio), rtol=1e-4, atol=0)
    model.rnn.weight_hh_l1.requires_grad_(False)
    assert bipolar.lsuv_(model, torch.randn(32, 6, 5))["rnn"].note == "frozen"


@pytest.mark.parametrize("batch_first", [True, False])
def test_lsuv_does_not_count_padding(batch_first: bool) -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = bipolar.StackedRNN(8, 8, 4, batch_first=batch_first)

        def forward(self, x: Tensor | PackedSequence, lengths: Tensor | None = None) -> Tensor:
            state: Tensor = self.rnn(x, lengths=lengths)[1]
            return state

    def weights_after(batch: Any) -> list[Tensor]:
        torch.manual_seed(1)
        model = Padded()
        bipolar.lsuv_(model, batch, generator=torch.Generator().manual_seed(1))
        return [parameter.detach() for parameter in model.parameters()]

    x, lengths = torch.randn(20, 4, 8), torch.tensor([3, 20, 7, 1])
    inside = torch.arange(20)[:, None] < lengths
    padded = x.masked_fill(~inside[:, :, None], 100.0)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    torch.testing.assert_close(weights_after((packed,)), weights_after((packed.data,)))
    layout = padded.transpose(0, 1) if batch_first else padded
    torch.testing.assert_close(weights_after((layout, lengths)), weights_after((x[inside],)))


@pytest.mark.parametrize(
    ("input", "message"),
    [
        (torch.full((8, 16), float("nan")), "input: there is NaN or infinity in it"),
        (torch.ones(8, 16), "input: all its values are the same"),
    ],
)
def test_bad_values_leave_the_weights_alone(input: Tensor, message: str) -> None:
    rnn = bipolar.StackedRNN(16, 16, 4)
    before = [p.clone() for p in rnn.parameters()]
    with pytest.raises(bipolar.LSUVError, match=message):
        bipolar.lsuv_rnn_(rnn, input)
    assert all(torch.equal(a, b) for a, b in zip(before, rnn.parameters(), strict=True))


def test_a_dead_or_broken_layer_is_named_and_everything_put_back() -> None:
    for fill, message in ((0.0, "layer 2 is dead: its U x"), (float("inf"), "layer 2: its U x gives NaN or infinity")):
        rnn = bipolar.StackedRNN(16, 16, 4)
        nn.init.constant_(rnn.weight_ih_l2, fill)
        before = [p.clone() for p in rnn.parameters()]
        with pytest.raises(bipolar.LSUVError, match=message):
            bipolar.lsuv_rnn_(rnn, torch.randn(32, 16))
        assert all(torch.equal(a, b) for a, b in zip(before, rnn.parameters(), strict=True))


def test_layers_that_are_not_lsuvs_to_change() -> None:
    rnn = bipolar.StackedRNN(16, 16, 6, skip_every=None)
    rnn.weight_hh_l1.requires_grad_(False)
    rnn.weight_hh_l3 = rnn.weight_hh_l2
    nn.utils.parametrizations.spectral_norm(rnn, "weight_hh_l4")
    before = {name: p.clone() for name, p in rnn.named_parameters()}
    report = bipolar.lsuv_rnn_(rnn, torch.randn(128, 16))
    notes = [report[f"weight_ih_l{i}"].note for i in range(6)]
    assert notes == [
        "",
        "frozen",
        "tied to 'weight_hh_l3'",
        "tied to 'weight_hh_l2'",
        "its weights are parametrised",
        "",
    ]
    unchanged = [f"weight_ih_l{i}" for i in (1, 2, 3, 4)]
    assert all(torch.equal(dict(rnn.named_parameters())[name], before[name]) for name in unchanged)
    assert not torch.equal(rnn.weight_ih_l5, before["weight_ih_l5"])


def test_bad_arguments() -> None:
    rnn = bipolar.StackedRNN(16, 16, 4)
    with pytest.raises(ValueError, match="max_iter: expected at least 1, got 0"):
        bipolar.lsuv_rnn_(rnn, torch.randn(8, 16), max_iter=0)
    with pytest.raises(bipolar.LSUVError, match="input: its values are too large"):
        bipolar.lsuv_rnn_(rnn, torch.randn(8, 16) * 1e25)
    with pytest.raises(ValueError, match=r"input: expected \(time, batch, 16\)"):
        bipolar.lsuv_(rnn, torch.randn(3, 8, 32))
    for x in (torch.randn(8, 15), torch.randn(3, 8, 16), torch.randn(0, 16)):
        with pytest.raises(ValueError, match=r"input: expected \(batch, 16\), got shape"):
            bipolar.lsuv_rnn_(rnn, x)
    with pytest.raises(ValueError, match="target: expected 'variance' or 'second_moment'"):
        bipolar.lsuv_rnn_(rnn, torch.randn(8, 16), target="mean")
    with pytest.raises(ValueError, match="balance: expected 'magnitude' or 'variance', got 'norm'"):
        bipolar.lsuv_rnn_(rnn, torch.randn(8, 16), balance="norm")
    with pytest.raises(ValueError, match="tol: expected a positive number"):
        bipolar.lsuv_rnn_(rnn, torch.randn(8, 16), tol=0.0)
    with pytest.raises(TypeError, match="rnn: expected a StackedRNN, got RNN"):
        bipolar.lsuv_rnn_(nn.RNN(16, 16), torch.randn(8, 16))
