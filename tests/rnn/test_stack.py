"""StackedRNN as a module: its arguments, its input, and its use with autocast, compile, export and torch.func."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import bipolar
from bipolar.lab import depth
from tests.helpers.stacks import gradients


def test_autocast() -> None:
    rnn, x = bipolar.StackedRNN(8, 8, 6), torch.randn(5, 3, 8)
    expected = rnn(x)[0]
    for backend in ("reference", "scan", "wavefront"):
        rnn.backend = backend
        with torch.autocast("cpu", torch.bfloat16):
            output, state = rnn(x)
            rnn(x, state)
        assert output.dtype == state.dtype == torch.bfloat16
        torch.testing.assert_close(output.float(), expected, rtol=0.1, atol=0.1)
        output.float().sum().backward()
        assert gradients(rnn)[0].dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):  # which leaves double precision as it is, as torch's own does
        assert rnn.double()(x.double())[0].dtype == torch.float64
        with pytest.raises(TypeError, match="state: expected a tensor, got tuple"):
            rnn(x.double(), (state,))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # from within torch, at a graph break
def test_compile() -> None:
    rnn, x = bipolar.StackedRNN(8, 8, 4), torch.randn(3, 2, 8)
    compiled = torch.compile(rnn, backend="eager")
    torch.testing.assert_close(compiled(x)[0], rnn(x)[0])


def test_export() -> None:
    rnn, x = bipolar.StackedRNN(8, 8, 4).eval(), torch.randn(3, 2, 8)
    exported = torch.export.export(rnn, (x,)).module()
    torch.testing.assert_close(exported(x)[0], rnn(x)[0], rtol=1e-5, atol=1e-5)


def test_torch_func_and_forward_mode() -> None:
    rnn = bipolar.StackedRNN(4, 4, 3, dtype=torch.float64)
    x, direction = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        return rnn(x)[0].square().sum()

    gradient = torch.func.grad(loss)(x)
    slope = torch.func.jvp(loss, (x,), (direction,))[1]
    torch.testing.assert_close(slope, (gradient * direction).sum())


def test_forward_mode_on_a_weight_of_a_higher_layer() -> None:
    rnn, x = bipolar.StackedRNN(4, 4, 3, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    weight = rnn.weight_hh_l2
    direction = torch.randn_like(weight)
    (gradient,) = torch.autograd.grad(rnn(x)[0].square().sum(), weight)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(weight.detach(), direction)
        output, _ = torch.func.functional_call(rnn, {"weight_hh_l2": dual}, (x,))
        slope = torch.autograd.forward_ad.unpack_dual(output.square().sum()).tangent
    torch.testing.assert_close(slope, (gradient * direction).sum())


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_vmap_over_passes_with_dropout(randomness: str) -> None:
    rnn, x = bipolar.StackedRNN(4, 4, 4, dropout=0.5, recurrent_dropout=0.5), torch.ones(2, 3, 20, 4)
    output = torch.func.vmap(lambda x: rnn(x)[0], randomness=randomness)(x)
    assert torch.equal(output[0], output[1]) == (randomness == "same")


def test_the_meta_device() -> None:
    rnn = bipolar.StackedRNN(4, 6, 5, "bprelu", device="meta")
    assert rnn(torch.randn(3, 2, 4, device="meta"))[0].shape == (3, 2, 6)


def test_a_very_deep_stack_trains() -> None:
    """200 layers in place of the 1,000 in results/depth.json."""
    report = depth.measure(layers=200, width=16, batch=16, window=8, steps=3)
    assert report["largest_deviation_from_unit_variance"] <= 1e-3
    norms = report["gradient_norms_by_step"]
    assert len(norms) == 3
    for step in norms:
        assert all(math.isfinite(norm) and norm > 1e-3 * max(step) for norm in step)
    assert report["losses"][-1] < report["losses"][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden_size": 0}, "hidden_size: expected at least 1, got 0"),
        ({"skip_every": 0}, "skip_every: expected at least 1"),
        ({"skip_every": 2.0}, "skip_every: expected at least 1, or None for no skips, got 2.0"),
        ({"skip_scale": math.nan}, "skip_scale: expected a finite number, got nan"),
        ({"nonlinearity": "crelu"}, "nonlinearity: expected a function that keeps the shape of its input, got 'crelu'"),
        ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
        ({"recurrent_dropout": -0.1}, "recurrent_dropout: expected a probability"),
        ({"block_dropout": 0.1, "skip_every": None}, "block_dropout: only blocks with a skip"),
        ({"gamma": 1.5}, r"gamma: expected a share in \[0, 1\], got 1.5"),
        ({"nonlinearity": "beelu"}, "nonlinearity: no activation is called 'beelu'; did you mean"),
        ({"pattern": "odd"}, "pattern: expected one of"),
        ({"backend": "gpu"}, "backend: expected one of 'auto', 'reference', 'scan', 'wavefront', got 'gpu'"),
        ({"bidirectional": True}, r"bidirectional: .* reads forward only; use two, .* and torch\.cat"),
        (
            {"backend": "wavefront", "nonlinearity": "gelu"},
            "backend: 'wavefront' does not know the derivative of 'gelu'",
        ),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bipolar.StackedRNN(**({"input_size": 4, "hidden_size": 5, "num_layers": 6} | arguments))


@pytest.mark.parametrize("name", ["input_size", "hidden_size", "num_layers"])
@pytest.mark.parametrize("value", ["2", 2.5, None])
def test_sizes_that_are_no_whole_numbers(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name}: expected a whole number, got {value!r}"):
        bipolar.StackedRNN(**({"input_size": 4, "hidden_size": 5, "num_layers": 6} | {name: value}))


@pytest.mark.parametrize("name", ["dropout", "recurrent_dropout", "block_dropout", "skip_scale", "gamma"])
def test_rates_that_are_no_numbers(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name}: expected a number, got '0.5'"):
        bipolar.StackedRNN(4, 5, 6, **{name: "0.5"})


def test_bad_input() -> None:
    rnn = bipolar.StackedRNN(4, 5, 6)
    for x in (torch.randn(3, 2, 5), torch.randn(4), torch.randn(1, 1, 3, 4)):
        with pytest.raises(ValueError, match=r"input: expected \(time, batch, 4\) or \(time, 4\), got shape"):
            rnn(x)
    with pytest.raises(ValueError, match="input: expected at least one time step"):
        rnn(torch.randn(0, 2, 4))
    for state in (torch.zeros(5, 2, 5), torch.zeros(6, 2, 4), torch.zeros(6, 3, 5)):
        with pytest.raises(ValueError, match=r"state: expected \(num_layers, batch, hidden_size\) = \(6, 2, 5\)"):
            rnn(torch.randn(3, 2, 4), state)
    with pytest.raises(ValueError, match=r"input: expected \(batch, time, 4\)"):
        bipolar.StackedRNN(4, 5, 6, batch_first=True)(torch.randn(3, 2, 5))
    with pytest.raises(TypeError, match=r"state: expected torch\.float32 as the input is, got torch\.float64"):
        rnn(torch.randn(3, 2, 4), torch.zeros(6, 2, 5, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"generator: expected a torch\.Generator, got int"):
        rnn(torch.randn(5, 3, 4), generator=1)
    with pytest.raises(TypeError, match="input: expected a tensor or a PackedSequence, got list"):
        rnn([[1.0] * 4])
    for run in (rnn, rnn.step):
        with pytest.raises(TypeError, match=r"input: expected torch\.float32 as the weights are, got torch\.float64"):
            run(torch.randn(3, 4, dtype=torch.float64))
    with pytest.raises(TypeError, match="state: expected a tensor, got tuple"):
        rnn(torch.randn(3, 2, 4), (torch.zeros(6, 2, 5),))
    with pytest.raises(TypeError, match="nonlinearity: expected a name, a function or a module"):
        bipolar.StackedRNN(4, 5, 6, nn.ReLU)
    packed = pack_padded_sequence(torch.randn(3, 2, 4), torch.tensor([3, 2]))
    for call in (rnn.step, lambda given: bipolar.lsuv_rnn_(rnn, given)):
        with pytest.raises(TypeError, match=r"input: expected .* got"):
            call(packed)


def test_representation_copy_and_state() -> None:
    rnn = bipolar.StackedRNN(4, 5, 6, "brelu", dropout=0.1, skip_every=3)
    assert repr(rnn).splitlines()[1].strip() == "4, 5, num_layers=6, nonlinearity=brelu, skip_every=3, dropout=0.1"
    twin = bipolar.StackedRNN(4, 5, 6, "brelu", dropout=0.1, skip_every=3)
    twin.load_state_dict(rnn.state_dict())
    x = torch.randn(3, 2, 4)
    assert torch.equal(copy.deepcopy(rnn).eval()(x)[0], twin.eval()(x)[0])
    assert list(rnn.state_dict())[:3] == ["weight_ih_l0", "weight_hh_l0", "bias_l0"]
