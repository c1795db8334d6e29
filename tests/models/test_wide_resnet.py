"""Wide residual networks, plain and oriented: sizes, the recipe of a block, symmetry, files, compilation."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bipolar
from bipolar.models import OrientedResponseNet, WideResNet
from bipolar.models._wide_resnet import Block
from tests.helpers.networks import SMALL, small_images

NETWORKS = pytest.mark.parametrize("network", [WideResNet, OrientedResponseNet])


@pytest.mark.parametrize(
    ("network", "depth", "widen_factor", "millions"),
    [(WideResNet, 28, 10, 36.5), (WideResNet, 40, 4, 8.9), (OrientedResponseNet, 28, 10, 18.2)],
)
@pytest.mark.parametrize("norm", ["batch", None])
def test_published_sizes(network: Any, depth: int, widen_factor: int, millions: float, norm: Any) -> None:
    with torch.device("meta"):
        model = network(depth, widen_factor, norm=norm)
    size = sum(p.numel() for p in model.parameters()) / 1e6
    assert abs(size - millions) < 0.08
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == depth + 1  # counted in the depth are two of the three projections


@pytest.mark.parametrize("norm", ["batch", None])
def test_a_block_against_its_formula(norm: Any) -> None:
    model: Any = WideResNet(10, 2, activation="elu", norm=norm, dropout=0.0)
    first: Any = model.stages[1][0]
    x = torch.randn(2, 32, 8, 8)
    a = nn.functional.elu(first.norm1(x))
    y = nn.functional.elu(first.norm2(first.conv1(a)))
    expected = first.projection(a) + first.conv2(y)
    torch.testing.assert_close(first(x), expected)
    assert first(x).shape == (2, 64, 4, 4)
    assert (first.conv1.bias is None) == (norm is not None)


@NETWORKS
def test_a_rectified_shortcut_is_what_an_activation_in_place_does(network: Any) -> None:
    model = network(**SMALL | {"depth": 16}, activation="relu", shortcut="rectified")
    clean = network(**SMALL | {"depth": 16}, activation="relu")
    clean.load_state_dict(model.state_dict())
    x = small_images()
    assert not torch.allclose(model(x), clean(x))
    for module in clean.modules():
        if isinstance(module, Block) and module.projection is None:
            activation: Any = module.activation1
            relu = activation if isinstance(activation, nn.ReLU) else activation.activation
            relu.inplace = True  # as in the released code, whose norm is gone
    torch.testing.assert_close(model(x), clean(x))


@pytest.mark.parametrize("pattern", ["alternate", "halves"])
def test_whole_feature_maps_are_flipped(pattern: Any) -> None:
    model: Any = WideResNet(**SMALL, activation="brelu", pattern=pattern)
    x = torch.randn(2, 16, 4, 4)
    block: Any = model.stages[0][0]
    flip = bipolar._activations.patterns.signs(16, pattern).view(-1, 1, 1)
    torch.testing.assert_close(block.activation1(x), flip * torch.relu(flip * x))


@pytest.mark.parametrize("norm", ["batch", None])
def test_a_bipolar_network_is_the_plain_one_with_flipped_signs(norm: Any) -> None:
    torch.manual_seed(0)
    model = WideResNet(16, 1, activation="brelu", dropout=0.0, norm=norm).double()
    plain = WideResNet(16, 1, activation="relu", dropout=0.0, norm=norm).double()
    with torch.no_grad():
        for (name, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
            q.copy_(p)
            for dim in range(min(p.ndim, 2)):
                outside = (dim == 0 and name.startswith("head")) or (dim == 1 and name.startswith("stem"))
                if not outside and not (".norm" in f".{name}" and name.endswith("weight")):
                    q.mul_(bipolar._activations.patterns.signs(p.size(dim)).view(-1, *[1] * (p.ndim - 1 - dim)))
    x = small_images(dtype=torch.float64)
    assert torch.equal(model(x), plain(x))


@NETWORKS
@pytest.mark.parametrize("at", ["output", "activation"])
def test_lsuv_reaches_every_layer(network: Any, at: Any) -> None:
    torch.manual_seed(0)
    model = network(**SMALL, activation="brelu")
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                p.normal_(std=0.1)
    x = small_images(16)
    report = bipolar.lsuv_(model, x, at=at)
    rows = {row.name: row for row in report}
    assert len(rows) == 10
    assert all(row.after == pytest.approx(1, abs=2e-3) for row in report)
    assert rows["stages.1.0.conv1"].at == ("brelu" if at == "activation" else "output")
    assert rows["stages.1.0.conv2"].at == "output"
    # measured by hand, on the way
    seen: list[float] = []
    block = model.stages[1][0]
    module = block.activation2 if at == "activation" else block.conv1
    module.register_forward_hook(lambda m, args, output: seen.append(output.var(correction=0).item()))
    model.eval()(x)
    assert seen == [pytest.approx(1, abs=2e-3)]


@NETWORKS
def test_files(network: Any, tmp_path: Path) -> None:
    model = network(**SMALL, activation="belu", num_classes=7, pattern="halves").eval()
    model.save_pretrained(tmp_path)
    twin = network.from_pretrained(tmp_path).eval()
    assert torch.equal(model(small_images()), twin(small_images()))
    assert twin.head.out_features == 7
    assert twin.activation.extra_repr() == model.activation.extra_repr()


@NETWORKS
def test_channels_last_copies_export_and_half_precision(network: Any) -> None:
    model = network(**SMALL).eval()
    x = small_images()
    expected = model(x)
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    torch.testing.assert_close(last(x.to(memory_format=torch.channels_last)), expected, rtol=1e-4, atol=1e-5)
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: batch},)).module()
    torch.testing.assert_close(exported(small_images(6)), model(small_images(6)), rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x).dtype == torch.bfloat16
    assert model.to(torch.bfloat16)(x.bfloat16()).isfinite().all()


def test_weights_start_as_published() -> None:
    torch.manual_seed(0)
    model = WideResNet(10, 4)
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            assert not p.any()
        elif p.ndim == 4 and p.numel() > 10_000:
            assert p.var().item() == pytest.approx(2 / (p.size(0) * p[0, 0].numel()), rel=0.1), name


@NETWORKS
def test_built_without_memory_and_given_weights(network: Any) -> None:
    model = network(**SMALL)
    with torch.device("meta"):
        twin = network(**SMALL)
    twin.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(twin.eval()(small_images()), model.eval()(small_images()))


@NETWORKS
def test_compiled(network: Any) -> None:
    torch.manual_seed(0)
    model = network(**SMALL)
    x = small_images()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    results = []
    for run in (model, compiled):
        run(x).square().sum().backward()
        results.append([p.grad.clone() for p in model.parameters()])
        model.zero_grad()
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_dropout_is_between_the_convolutions_of_a_block() -> None:
    model: Any = WideResNet(10, 1, dropout=0.3)
    assert [m.p for m in model.modules() if isinstance(m, nn.Dropout)] == [0.3] * 3
    block: Any = model.stages[0][0]
    seen: list[Tensor] = []
    block.conv2.register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    block.dropout.p = 1.0
    block(torch.randn(2, 16, 4, 4))
    assert not seen[0].any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 27}, "depth: expected 6n \\+ 4"),
        ({"widen_factor": 0}, "widen_factor: expected at least 1, got 0"),
        ({"norm": "layer"}, "norm: expected None or 'batch', got 'layer'"),
        ({"activation": "rrelu6"}, "activation: no activation is called 'rrelu6'"),
        ({"pattern": "thirds"}, "pattern: expected one of"),
        ({"activation": None}, "activation: expected a string"),
        ({"activation": "crelu"}, "activation: expected one that keeps the number of channels, got 'crelu'"),
        ({"dropout": float("nan")}, "dropout: expected 0 to 1, got nan"),
        ({"in_channels": 0}, "in_channels: expected at least 1, got 0"),
        ({"num_classes": 0}, "num_classes: expected at least 1, got 0"),
        ({"shortcut": "none"}, "shortcut: expected one of 'clean', 'rectified', got 'none'"),
        ({"shortcut": "rectified", "norm": "batch"}, "without a norm"),
    ],
)
@NETWORKS
def test_bad_arguments(network: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        network(**arguments)
