"""Any activation in a stack: functions, modules, with parameters, with randomness."""

import pytest
import torch
from torch import Tensor, nn

import bipolar
from bipolar._activations.recognition import kernel_of
from tests.helpers.stacks import FAST


class Swapped(nn.ELU):
    """Derived from an activation, and something else."""

    def forward(self, input: Tensor) -> Tensor:
        return torch.sin(input)


def test_any_activation_is_welcome() -> None:
    scale = torch.rand(5)
    others = (torch.sin, "gelu", "bsilu", "bsoftplus", nn.Hardtanh(), Swapped(), lambda z: z * scale, nn.LayerNorm(5))
    for nonlinearity in others:
        rnn = bipolar.StackedRNN(4, 5, 4, nonlinearity)
        assert kernel_of(rnn.activation) is None
        assert rnn(torch.randn(3, 2, 4))[0].shape == (3, 2, 5)
    assert kernel_of(torch.tanh) is not None
    hooked = nn.ELU()
    hooked.register_forward_hook(lambda module, args, output: 2 * output)
    assert kernel_of(hooked) is None


def test_the_fast_path_takes_activations_whose_derivative_follows_from_their_output() -> None:
    assert all(kernel_of(bipolar.StackedRNN(4, 5, 4, name).activation) is not None for name in FAST)


def test_an_activation_with_parameters_goes_where_the_stack_goes() -> None:
    rnn = bipolar.StackedRNN(4, 5, 3, "bprelu", dtype=torch.float64)
    rnn(torch.randn(3, 2, 4, dtype=torch.float64))[0].sum().backward()
    assert all(p.grad is not None for p in rnn.parameters())
    bipolar.lsuv_rnn_(rnn, torch.randn(64, 4))
    bipolar.lsuv_rnn_(bipolar.StackedRNN(4, 5, 3, "prelu").bfloat16(), torch.randn(64, 4))


def test_a_bipolar_instance_brings_its_pattern() -> None:
    rnn = bipolar.StackedRNN(4, 6, 3, bipolar.BELU(pattern="halves"))
    assert rnn.pattern == "halves"
    x = torch.randn(3, 2, 4)
    fast = rnn(x)[0]
    rnn.backend = "reference"
    torch.testing.assert_close(fast, rnn(x)[0])
    with pytest.raises(ValueError, match="nonlinearity: the units are in dimension -1"):
        bipolar.StackedRNN(4, 6, 3, bipolar.BELU(dim=0))


def test_a_random_activation() -> None:
    rnn = bipolar.StackedRNN(4, 4, 6, nn.Sequential(nn.ELU(), nn.Dropout(0.5)), skip_every=2, dtype=torch.float64)
    x = torch.randn(3, 2, 4, dtype=torch.float64)
    rnn.recompute = True

    def run(x: Tensor) -> Tensor:
        torch.manual_seed(5)
        output: Tensor = rnn(x)[0]
        return output

    with torch.random.fork_rng():
        assert torch.autograd.gradcheck(run, x.clone().requires_grad_())
    assert torch.equal(rnn.step(x[0])[0], rnn.step(x[0])[0])
    bipolar.lsuv_rnn_(rnn, torch.randn(64, 4))
    assert isinstance(rnn.activation, nn.Sequential)
    assert rnn.activation.training
