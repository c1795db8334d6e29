"""LSUV brings every layer to unit variance, on any model, in one pass, and leaves no trace but the weights."""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence

import bipolar
import bipolar.functional as F
from bipolar._tools.calling import call


@contextmanager
def measured(model: nn.Module) -> Iterator[dict[str, float]]:
    """The variance of the first output of every module during a forward pass, taken independently of the library."""
    found: dict[str, float] = {}

    def hook(name: str) -> Callable[..., None]:
        def keep(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, Tensor) and name not in found:
                found[name] = output.detach().double().var(correction=0).item()

        return keep

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    yield found
    for handle in handles:
        handle.remove()


def variances(model: nn.Module, batch: Any) -> dict[str, float]:
    """As LSUV runs it: in evaluation mode, batch norm on the statistics of the batch."""
    model = copy.deepcopy(model).eval()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
    with torch.no_grad(), measured(model) as found:
        call(model, batch)
    return found


def mlp(*activations: nn.Module, width: int = 48) -> nn.Sequential:
    layers: list[nn.Module] = []
    for activation in activations:
        layers += [nn.Linear(width, width), activation]
    return nn.Sequential(*layers, nn.Linear(width, 10))


ACTIVATIONS = [name for name in bipolar.list_activations() if name not in ("crelu", "tanh")]


class TestUnitVariance:
    @pytest.mark.parametrize("name", ACTIVATIONS)
    def test_after_every_activation(self, name: str) -> None:
        model, x = mlp(*(bipolar.get_activation(name) for _ in range(3))), torch.randn(64, 48)
        report = bipolar.lsuv_(model, x)
        found = variances(model, x)
        after = ("0", "2", "4") if name == "identity" else ("1", "3", "5")
        for layer in (*after, "6"):
            assert found[layer] == pytest.approx(1.0, abs=1e-3)
        assert [row.name for row in report] == ["0", "2", "4", "6"]
        assert all(row.after == pytest.approx(1.0, abs=1e-3) for row in report)

    @pytest.mark.parametrize("name", ["relu", "brelu", "elu", "gelu"])
    def test_of_the_output_itself(self, name: str) -> None:
        model, x = mlp(*(bipolar.get_activation(name) for _ in range(3))), torch.randn(64, 48)
        bipolar.lsuv_(model, x, at="output")
        found = variances(model, x)
        assert [found[layer] for layer in ("0", "2", "4", "6")] == pytest.approx([1.0] * 4, abs=1e-4)

    @pytest.mark.parametrize("at", ["activation", "output"])
    def test_of_the_second_moment(self, at: Any) -> None:
        model, x = mlp(nn.ReLU(), nn.ELU()), torch.randn(64, 48)
        bipolar.lsuv_(model, x, target="second_moment", at=at)
        for end in (2, 4) if at == "activation" else (1, 3):
            assert model[:end](x).square().mean().item() == pytest.approx(1.0, abs=1e-3)

    def test_what_it_measures_is_what_bipolarity_changes(self) -> None:
        """Plain ReLU with unit variance has a second moment of 1.47, bipolar ReLU of 1 (for many units)."""
        x = torch.randn(512, 256)
        second = {}
        for activation in (nn.ReLU(), bipolar.BReLU()):
            model = nn.Sequential(nn.Linear(256, 256, bias=False), activation)
            bipolar.lsuv_(model, x)
            second[activation] = model(x).square().mean().item()
        assert list(second.values()) == pytest.approx([1.467, 1.0], abs=0.02)

    @pytest.mark.parametrize("call_", [F.brelu, tF.relu, torch.relu, Tensor.relu, lambda x: tF.relu(x, inplace=True)])
    def test_after_functional_activations(self, call_: Callable[[Tensor], Tensor]) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

            def forward(self, x: Tensor) -> Tensor:
                y = self.first(x)
                assert y.shape[0] == len(y)  # looking at the shape is not using the values
                return self.second(call_(y))

        model, x = Model(), torch.randn(64, 32)
        bipolar.lsuv_(model, x)
        assert call_(model.first(x)).var().item() == pytest.approx(1.0, abs=2e-3)
        assert model(x).var().item() == pytest.approx(1.0, abs=2e-3)

    def test_where_something_else_follows_first(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.add, self.norm, self.pool = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
                self.squash, self.twice = (nn.Conv2d(4, 4, 1) for _ in range(2))
                self.bn = nn.BatchNorm2d(4)

            def forward(self, x: Tensor) -> Tensor:
                x = tF.relu(x + self.add(x))
                x = tF.relu(self.bn(self.norm(x)))
                x = tF.relu(tF.max_pool2d(self.pool(x), 2))
                x = torch.tanh(self.squash(x))
                return torch.cat([self.twice(x), x], dim=1)

        model, x = Model(), torch.randn(16, 4, 8, 8)
        bipolar.lsuv_(model, x)
        found = variances(model, x)
        for name in ("add", "norm", "pool", "squash", "twice"):
            assert found[name] == pytest.approx(1.0, abs=1e-3)

    def test_dropout_in_between_is_looked_through(self) -> None:
        model = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.5), nn.Identity(), nn.ELU(), nn.Linear(32, 4))
        x = torch.randn(64, 32)
        bipolar.lsuv_(model, x)
        assert model.eval()[:4](x).var().item() == pytest.approx(1.0, abs=2e-3)

    @pytest.mark.parametrize(
        "reshape", [lambda y: y.flatten(1), lambda y: y.contiguous(), lambda y: y.t().swapaxes(0, 1)]
    )
    def test_a_reshape_that_changes_nothing(self, reshape: Callable[[Tensor], Tensor]) -> None:
        class Flat(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(12, 24)

            def forward(self, x: Tensor) -> Tensor:
                return torch.relu(reshape(self.layer(x)))

        (row,) = bipolar.lsuv_(Flat(), torch.randn(64, 12))
        assert row.at == "relu"

    @pytest.mark.parametrize("use", ["the view", "both", "the whole first", "a copy", "the result"])
    def test_a_reshape_in_between_is_looked_through(self, use: str) -> None:
        """The activation sees the output in another shape, which decides what it flips."""

        class Reshaping(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer, self.last = nn.Linear(12, 24), nn.Linear(24, 4)
                nn.init.normal_(self.layer.bias)

            def forward(self, x: Tensor) -> Any:
                y = self.layer(x)
                if use == "a copy":
                    return self.last(bipolar.functional.belu(y.unflatten(1, (4, 6)).mT.reshape(-1, 24)))
                view = y.unflatten(1, (2, 12))
                if use == "the result":
                    return view
                first = y.sum() if use == "the whole first" else 0.0
                out = bipolar.functional.belu(view, dim=1).flatten(1)
                then = y.sum() if use == "both" else 0.0
                return self.last(out) + first + then

        model, x = Reshaping(), torch.randn(256, 12)
        row = next(iter(bipolar.lsuv_(model, x)))
        y = model.layer(x)
        expected = y
        if use in ("the view", "both"):
            assert row.at == "belu"
            expected = bipolar.functional.belu(y.unflatten(1, (2, 12)), dim=1)
        else:
            assert row.at == "output"
        assert expected.var(correction=0).item() == pytest.approx(1.0, abs=2e-3)

    @pytest.mark.parametrize(
        ("layer", "shape"),
        [
            (nn.Linear(6, 8), (16, 6)),
            (nn.Linear(6, 8), (4, 5, 6)),
            (nn.Conv1d(6, 8, 3), (4, 6, 12)),
            (nn.Conv2d(6, 8, 3, groups=2), (4, 6, 8, 8)),
            (nn.Conv2d(6, 6, 3, groups=6), (4, 6, 8, 8)),
            (nn.Conv2d(6, 8, 3), (6, 8, 8)),  # without a batch dimension
            (nn.Conv3d(6, 8, 3), (2, 6, 5, 5, 5)),
            (nn.ConvTranspose1d(6, 8, 3), (4, 6, 12)),
            (nn.ConvTranspose2d(6, 8, 3, stride=2), (4, 6, 5, 5)),
            (nn.ConvTranspose3d(6, 8, 3), (2, 6, 4, 4, 4)),
        ],
    )
    @pytest.mark.parametrize("orthogonal", [True, False])
    def test_of_every_kind_of_layer_with_its_bias_in_place(
        self, layer: nn.Module, shape: tuple[int, ...], orthogonal: bool
    ) -> None:
        layer = copy.deepcopy(layer)
        bias = nn.init.normal_(layer.bias, std=0.5).detach().clone()
        weight = layer.weight.detach().clone()
        x = torch.randn(shape) + 0.3
        report = bipolar.lsuv_(layer, x, orthogonal=orthogonal)
        assert layer(x).var(correction=0).item() == pytest.approx(1.0, abs=1e-3)
        assert torch.equal(layer.bias, bias)
        if not orthogonal:
            torch.testing.assert_close(layer.weight, report.rows[0].scale * weight)

    def test_channels_last_and_other_dtypes(self) -> None:
        x = torch.randn(8, 3, 16, 16)
        for dtype, tolerance in ((torch.float64, 1e-4), (torch.float32, 1e-3), (torch.bfloat16, 2e-2)):
            model = nn.Sequential(nn.Conv2d(3, 16, 3), bipolar.BReLU(), nn.Conv2d(16, 16, 3), nn.ReLU()).to(dtype)
            model[2].weight.data = model[2].weight.data.contiguous(memory_format=torch.channels_last)
            batch = x.to(dtype).contiguous(memory_format=torch.channels_last)
            bipolar.lsuv_(model, batch)
            assert model[2].weight.is_contiguous(memory_format=torch.channels_last)
            assert model[2].weight.dtype == dtype
            for end in (2, 4):
                assert model[:end](batch).double().var().item() == pytest.approx(1.0, abs=tolerance)

    def test_orthogonal_weights(self) -> None:
        model = nn.Sequential(nn.Linear(20, 20, bias=False))
        bipolar.lsuv_(model, torch.randn(64, 20), orthogonal=True)
        gram = model[0].weight @ model[0].weight.T
        torch.testing.assert_close(gram / gram[0, 0], torch.eye(20), atol=1e-5, rtol=0)


class TestAnyModel:
    def test_in_the_order_of_execution_not_of_registration(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.last, self.middle, self.first = (nn.Linear(16, 16) for _ in range(3))

            def forward(self, *, x: Tensor, scale: float) -> Tensor:
                return self.last(tF.relu(self.middle(tF.relu(self.first(x * scale)))))

        model, batch = Model(), {"x": torch.randn(64, 16), "scale": 7.0}
        report = bipolar.lsuv_(model, batch)
        assert [row.name for row in report] == ["first", "middle", "last"]
        assert model(**batch).var().item() == pytest.approx(1.0, abs=2e-3)

    def test_modules_used_twice_or_never_frozen_or_tied(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embed = nn.Embedding(10, 16)
                self.twice, self.never, self.frozen = (nn.Linear(16, 16) for _ in range(3))
                self.one, self.other = nn.Linear(16, 16), nn.Linear(16, 16)
                self.decode = nn.Linear(16, 10)
                self.other.weight = self.one.weight
                self.decode.weight = self.embed.weight
                self.frozen.weight.requires_grad_(False)

            def forward(self, tokens: Tensor) -> Tensor:
                x = self.twice(tF.elu(self.twice(self.embed(tokens))))
                return self.decode(self.other(self.one(self.frozen(x))))

        model, tokens = Model(), torch.randint(0, 10, (32, 7))
        before = copy.deepcopy(model.state_dict())
        report = bipolar.lsuv_(model, (tokens,))
        notes = {row.name: row.note for row in report}
        assert notes == {
            "twice": "called 2 times, scaled at the first",
            "frozen": "frozen",
            "one": "",
            "other": "tied to 'one'",
            "decode": "tied to 'embed'",
            "never": "never called",
        }
        changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
        assert changed == {"twice.weight", "one.weight", "other.weight"}
        assert model.twice(model.embed(tokens)).var().item() != pytest.approx(1.0, abs=0.1)  # measured after the elu
        assert tF.elu(model.twice(model.embed(tokens))).var().item() == pytest.approx(1.0, abs=2e-3)
        assert variances(model, tokens)["one"] == pytest.approx(1.0, abs=1e-3)

    def test_parametrised_weights(self) -> None:
        model = nn.Sequential(
            parametrizations.weight_norm(nn.Linear(16, 16)),
            nn.ReLU(),
            parametrizations.orthogonal(nn.Linear(16, 16)),
            nn.ReLU(),
            parametrizations.spectral_norm(nn.Linear(16, 16)),
        )
        x = torch.randn(64, 16)
        report = bipolar.lsuv_(model, x)
        assert [row.kind for row in report] == ["Linear"] * 3
        assert [row.note for row in report] == [""] + ["its parametrisation fixes the scale"] * 2
        assert model[:2](x).var().item() == pytest.approx(1.0, abs=2e-3)

    @pytest.mark.parametrize("mode", ["RNN", "RNN relu", "LSTM", "GRU"])
    @pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"batch_first": True, "bias": False}])
    def test_recurrent_layers(self, mode: str, options: dict[str, Any]) -> None:
        if mode == "RNN relu":
            options = options | {"nonlinearity": "relu"}
        rnn: Any = getattr(nn, mode.split()[0])(12, 20, num_layers=3, **options)
        x = 3 * torch.randn(30, 16, 12)
        report = bipolar.lsuv_(rnn, x)
        suffixes = ["", "_reverse"][: 1 + rnn.bidirectional]
        names = [f"{kind}_l{i}{s}" for i in range(3) for s in suffixes for kind in ("weight_ih", "weight_hh")]
        assert [row.name for row in report] == [f"{type(rnn).__name__}.{name}" for name in names]
        vertical = x.reshape(-1, 12) @ rnn.weight_ih_l0.T
        horizontal = torch.randn(4000, 20) @ rnn.weight_hh_l0.T
        bias = rnn.bias_ih_l0 + rnn.bias_hh_l0 if rnn.bias else torch.zeros(())
        gates = vertical[:400] + horizontal[:400] + bias
        assert vertical.var().item() == pytest.approx(horizontal.var().item(), rel=0.1)
        measured_at = torch.relu(gates) if mode == "RNN relu" else gates
        assert measured_at.var().item() == pytest.approx(1.0, abs=0.1)
        rnn(x)

    def test_recurrent_cells_projections_and_packed_sequences(self) -> None:
        cell = nn.LSTMCell(6, 5)
        assert len(bipolar.lsuv_(cell, torch.randn(64, 6))) == 2
        projected = nn.LSTM(6, 8, num_layers=2, proj_size=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch: projections are not supported with oneDNN
            assert len(bipolar.lsuv_(projected, torch.randn(9, 4, 6))) == 4
        packed = pack_padded_sequence(torch.randn(9, 4, 6), torch.tensor([9, 7, 4, 2]))
        assert len(bipolar.lsuv_(nn.GRU(6, 8, num_layers=2), packed)) == 4

    def test_a_resnet_a_transformer_and_an_lstm_of_others(self) -> None:
        from transformers import ResNetConfig, ResNetModel

        resnet = ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic"))
        images = {"pixel_values": torch.randn(4, 3, 32, 32)}
        report = bipolar.lsuv_(resnet, images)
        found = variances(resnet, images)
        assert len(report) == 10
        for row in report:  # a norm follows each convolution
            assert found[row.name] == pytest.approx(1.0, abs=1e-3)

        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        tokens = torch.randn(8, 5, 32)
        report = bipolar.lsuv_(encoder, tokens)
        assert {row.note for row in report} == {"", "never called"}  # attention uses its out_proj without calling it
        for row in report:
            if not row.note:
                assert row.after == pytest.approx(1.0, abs=1e-3)

        class Tagger(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.lstm, self.out = nn.LSTM(16, 32, num_layers=2, batch_first=True), nn.Linear(32, 5)

            def forward(self, x: Tensor) -> Tensor:
                return self.out(self.lstm(x)[0])

        tagger, x = Tagger(), torch.randn(16, 9, 16)
        bipolar.lsuv_(tagger, x)
        assert tagger(x).var().item() == pytest.approx(1.0, abs=2e-3)

    def test_include_and_exclude(self) -> None:
        def names(**selection: Any) -> list[str]:
            model = nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.Conv1d(1, 2, 3), "c": nn.Linear(8, 8)})
            model.forward = lambda x: model["c"](
                model["b"](model["a"](x).unsqueeze(1)).sum(dim=(1, 2), keepdim=True) + x
            )
            return [row.name for row in bipolar.lsuv_(model, torch.randn(16, 8), **selection)]

        assert names() == ["a", "b", "c"]
        assert names(include="a") == ["a"]
        assert names(include=["a", nn.Conv1d]) == ["a", "b"]
        assert names(exclude=nn.Linear) == ["b"]
        assert names(exclude="[ab]") == ["c"]
        assert names(include=nn.Linear, exclude=lambda name, module: name == "a") == ["c"]
        with pytest.raises(ValueError, match="include: 'z' matches none of the layers a, b, c"):
            names(include="z")

    def test_a_hundred_layers_cost_two_forward_passes(self) -> None:
        calls = 0

        class Counted(nn.Linear):
            def forward(self, input: Tensor) -> Tensor:
                nonlocal calls
                calls += 1
                return super().forward(input)

        model = nn.Sequential(*[layer for _ in range(100) for layer in (Counted(16, 16), bipolar.BELU())])
        report = bipolar.lsuv_(model, torch.randn(32, 16))
        assert calls == 200  # one to measure, one to make sure
        assert max(row.rounds for row in report) <= 8

    def test_no_activation_outlives_its_use(self) -> None:
        alive = most = 0

        class Watched(nn.Linear):
            def forward(self, input: Tensor) -> Tensor:
                nonlocal alive, most
                output = super().forward(input)
                alive += 1
                most = max(most, alive)
                weakref_finalize(output)
                return output

        def weakref_finalize(tensor: Tensor) -> None:
            import weakref

            def gone() -> None:
                nonlocal alive
                alive -= 1

            weakref.finalize(tensor, gone)

        model = nn.Sequential(*[layer for _ in range(50) for layer in (Watched(16, 16), nn.ReLU())])
        bipolar.lsuv_(model, torch.randn(32, 16))
        assert most <= 3

    def test_a_weight_that_is_used_again_before_its_first_output_is(self) -> None:
        class Siamese(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.encode, self.twin, self.head = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(96, 1)
                self.twin.weight = self.encode.weight

            def forward(self, a: Tensor, b: Tensor) -> Tensor:
                return self.head(torch.cat([self.encode(a), self.encode(b), self.twin(b)], 1))

        model, pair = Siamese(), (10 * torch.randn(64, 32), 10 * torch.randn(64, 32))
        report = bipolar.lsuv_(model, pair)
        assert model.encode(pair[0]).var().item() == pytest.approx(1.0, abs=2e-3)
        assert model(*pair).var(correction=0).item() == pytest.approx(1.0, abs=2e-3)
        assert report["twin"].note == "tied to 'encode'"

    def test_a_layer_whose_output_is_not_seen_in_use_is_left_alone(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated
            scripted = torch.jit.script(nn.ReLU())
        model = nn.Sequential(nn.Linear(32, 32), scripted, nn.Linear(32, 32))
        weight, x = model[0].weight.detach().clone(), 10 * torch.randn(64, 32)
        report = bipolar.lsuv_(model, x)
        assert report["0"].note == "its output was not seen in use"
        assert torch.equal(model[0].weight, weight)

    def test_outputs_in_any_container_are_the_networks_own(self) -> None:
        @dataclass
        class Output:
            logits: Tensor

        class Model(nn.Linear):
            def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
                super().__init__(8, 8)
                self.inner, self.wrap = nn.Linear(8, 8), wrap

            def forward(self, x: Tensor) -> Any:
                return self.wrap(self.inner(x))

        for wrap in (Output, lambda y: {"a": [y]}, lambda y: (None, y)):
            model, x = Model(wrap), torch.randn(32, 8)
            assert bipolar.lsuv_(model, x, include="inner")["inner"].after == pytest.approx(1.0, abs=1e-3)

    def test_a_layer_that_does_more_than_its_weight_says(self) -> None:
        class Standardised(nn.Linear):
            def forward(self, input: Tensor) -> Tensor:
                weight = self.weight - self.weight.mean(1, keepdim=True)
                return tF.linear(input, weight / weight.std(1, keepdim=True), self.bias)

        class WithShortcut(nn.Linear):
            def forward(self, input: Tensor) -> Tensor:
                return super().forward(input) + 0.5 * input

        model, x = nn.Sequential(WithShortcut(32, 32), nn.ReLU(), Standardised(32, 32)), torch.randn(64, 32)
        report = bipolar.lsuv_(model, x)
        assert model[:2](x).var().item() == pytest.approx(1.0, abs=2e-3)
        assert report["2"].note == "its output does not follow the scale of its weight"

    def test_a_bias_that_dominates(self) -> None:
        layer, x = nn.Linear(32, 32), 1e-3 * torch.randn(64, 32)
        nn.init.constant_(layer.bias, 1e4)
        bipolar.lsuv_(layer, x)
        assert layer(x).double().var(correction=0).item() == pytest.approx(1.0, abs=2e-3)

    def test_recurrent_layers_that_are_subclassed_parametrised_or_tied(self) -> None:
        class Mine(nn.LSTM):
            def __init__(self, width: int) -> None:
                super().__init__(width, width, num_layers=2)

        x = torch.randn(5, 4, 8)
        assert len(bipolar.lsuv_(Mine(8), x)) == 4
        assert len(bipolar.lsuv_(nn.GRU(8, 8), {"hx": torch.zeros(1, 4, 8), "input": x})) == 2

        class Pair(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.a, self.b, self.c = nn.RNN(8, 8), nn.RNN(8, 8), nn.RNN(8, 8)
                self.b.weight_ih_l0, self.b.weight_hh_l0 = self.a.weight_ih_l0, self.a.weight_hh_l0
                parametrizations.weight_norm(self.c, "weight_hh_l0")

            def forward(self, x: Tensor) -> Tensor:
                return self.c(self.b(self.a(x)[0])[0])[0]

        report = bipolar.lsuv_(Pair(), x)
        assert report["b"].note == "tied to 'a'"
        assert report["c"].note == "its weights are parametrised"

    def test_frozen_parametrised_layers_stay(self) -> None:
        frozen = parametrizations.weight_norm(nn.Linear(16, 16)).requires_grad_(False)
        model, before = nn.Sequential(frozen, nn.ReLU(), nn.Linear(16, 4)), frozen.weight.clone()
        assert bipolar.lsuv_(model, torch.randn(32, 16))["0"].note == "frozen"
        assert torch.equal(frozen.weight, before)

    def test_a_bounded_activation_is_not_waited_for(self) -> None:
        model = nn.Sequential(nn.Linear(32, 32), bipolar.Bipolar(nn.Tanh()), nn.Linear(32, 4))
        x = torch.randn(64, 32)
        report = bipolar.lsuv_(model, x)
        assert model[0](x).var().item() == pytest.approx(1.0, abs=2e-3)
        assert [row.at for row in report] == ["output", "output"]

    @pytest.mark.parametrize("bias", [-10.0, -100.0, 10.0])
    def test_a_relu_that_is_shut_or_open_at_first(self, bias: float) -> None:
        model, x = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)), torch.randn(64, 32)
        nn.init.constant_(model[0].bias, bias)
        report = bipolar.lsuv_(model, x)
        assert model[:2](x).var().item() == pytest.approx(1.0, abs=2e-3)
        assert report["0"].at == "relu"


class TestNoTrace:
    def test_a_buffer_that_the_forward_replaces(self) -> None:
        class Counting(nn.Linear):
            count: Tensor

            def __init__(self) -> None:
                super().__init__(8, 8)
                self.register_buffer("count", torch.zeros(()))

            def forward(self, input: Tensor) -> Tensor:
                self.count = self.count + 1
                return super().forward(input)

        model = Counting()
        buffer = model.count
        bipolar.lsuv_(model, torch.randn(16, 8))
        bipolar.probe(model, torch.randn(16, 8))
        assert model.count is buffer
        assert buffer.item() == 0

    def test_everything_but_the_weights_is_as_before(self) -> None:
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.Linear(288, 4),
        )
        model[3].eval()
        model[0].bias.requires_grad_(False)
        model[0].register_forward_hook(lambda *_: None)
        x = torch.randn(8, 3, 8, 8)
        state, training = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
        hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
        grads = [p.requires_grad for p in model.parameters()]
        rng, batch = torch.get_rng_state(), x.clone()
        bipolar.lsuv_(model, x, generator=torch.Generator().manual_seed(3))
        assert torch.equal(torch.get_rng_state(), rng)
        assert [m.training for m in model.modules()] == training
        assert [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()] == hooks
        assert [p.requires_grad for p in model.parameters()] == grads
        assert torch.equal(x, batch)
        changed = {name for name, value in model.state_dict().items() if not torch.equal(value, state[name])}
        assert changed == {"0.weight", "5.weight"}
        assert model[0].weight.grad_fn is None

    def test_batch_norm_runs_on_the_statistics_of_the_batch(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3))
        model[1].running_var.fill_(100.0)
        x = torch.randn(8, 3, 8, 8)
        bipolar.lsuv_(model, x)
        assert variances(model, x)["2"] == pytest.approx(1.0, abs=1e-3)
        assert model[1].running_var.tolist() == [100.0] * 8

    def test_a_generator_makes_it_repeatable(self) -> None:
        base, x = mlp(nn.ELU()), torch.randn(32, 48)
        one, two = copy.deepcopy(base), copy.deepcopy(base)
        for model in (one, two):
            torch.rand(1)
            bipolar.lsuv_(model, x, generator=torch.Generator().manual_seed(7))
        torch.testing.assert_close(one.state_dict(), two.state_dict(), rtol=0, atol=0)

    def test_recurrent_layers_take_random_numbers_from_the_generator_only(self) -> None:
        rnn, rng = nn.LSTM(4, 5, num_layers=2), torch.get_rng_state()
        bipolar.lsuv_(rnn, torch.zeros(3, 2, 4) + torch.arange(4.0), generator=torch.Generator().manual_seed(0))
        assert torch.equal(torch.get_rng_state(), rng)

    def test_nothing_is_printed(self, capsys: pytest.CaptureFixture[str]) -> None:
        bipolar.lsuv_(mlp(nn.ReLU()), torch.randn(32, 48))
        assert capsys.readouterr() == ("", "")

    def test_a_compiled_model_is_reached_through_its_wrapper(self) -> None:
        model = mlp(nn.ReLU())
        report = bipolar.lsuv_(torch.compile(model), torch.randn(32, 48))
        assert len(report) == 2
