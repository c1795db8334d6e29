"""Muon against the formula, one matrix at a time; Adam against torch's; and what every optimiser of torch can do."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bipolar
from bipolar.optim import Muon, groups
from bipolar.optim._orthogonal import orthogonalised


def slow_newton_schulz(m: Tensor, steps: int) -> Tensor:
    """The iteration from the formula, for one matrix."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = m / m.norm()
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class SlowMuon:
    """Muon from its formula, one weight after another."""

    def __init__(self, weights: list[Tensor], lr: float, momentum: float, decay: float, steps: int, nesterov: bool):
        self.weights, self.buffers = weights, [torch.zeros_like(w) for w in weights]
        self.lr, self.momentum, self.decay, self.steps, self.nesterov = lr, momentum, decay, steps, nesterov

    @torch.no_grad()
    def step(self, gradients: list[Tensor]) -> None:
        for w, b, g in zip(self.weights, self.buffers, gradients, strict=True):
            b.copy_(self.momentum * b + (1 - self.momentum) * g)
            m = self.momentum * b + (1 - self.momentum) * g if self.nesterov else b
            matrix = m.reshape(len(m), -1)
            update = slow_newton_schulz(matrix, self.steps).reshape(w.shape)
            scale = max(1, matrix.size(0) / matrix.size(1)) ** 0.5
            w.copy_((1 - self.lr * self.decay) * w - self.lr * scale * update)


#: Square, lying and standing, as wide as pays for the Gram matrix and not; convolutions; some share a smaller side.
SHAPES = [(6, 6), (6, 6), (6, 8), (8, 6), (6, 20), (20, 6), (6, 2, 3, 3), (4, 4, 3), (12, 2, 3), (2, 7)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("nesterov", [True, False])
def test_steps_are_those_of_the_formula(dtype: torch.dtype, nesterov: bool) -> None:
    weights = [nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in SHAPES]
    options: dict[str, Any] = {"momentum": 0.9, "nesterov": nesterov, "weight_decay": 0.1, "ns_steps": 5}
    ours = Muon(weights, 0.03, **options)
    twin = SlowMuon([w.detach().double().clone() for w in weights], 0.03, 0.9, 0.1, 5, nesterov)
    for _ in range(4):
        gradients = [torch.randn_like(w) for w in weights]
        for w, g in zip(weights, gradients, strict=True):
            w.grad = g.clone()
        ours.step()
        twin.step([g.double() for g in gradients])
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    for w, expected in zip(weights, twin.weights, strict=True):
        torch.testing.assert_close(w.detach().double(), expected, rtol=0, atol=tolerance)


def test_singular_values_come_close_to_one() -> None:
    for shape in [(16, 16), (16, 64), (64, 16)]:
        (result,) = orthogonalised([1e-12 * torch.randn(shape)], steps=5)
        values = torch.linalg.svdvals(result)
        assert result.shape == shape
        assert values.min() > 0.1
        assert values.max() < 1.3
        assert values.median() > 0.6


def test_a_gradient_of_zero_moves_nothing() -> None:
    for shape in [(4, 4), (4, 30)]:
        w = nn.Parameter(torch.randn(shape))
        before = w.detach().clone()
        w.grad = torch.zeros_like(w)
        Muon([w], 0.1).step()
        assert torch.equal(w, before)


@pytest.mark.parametrize("columns", [8, 32])
def test_the_iteration_may_run_in_another_type(columns: int) -> None:
    m = torch.randn(8, columns)
    (exact,), (rough,) = orthogonalised([m], 5), orthogonalised([m], 5, torch.bfloat16)
    assert rough.dtype == torch.float32
    assert 0 < (exact - rough).abs().max() < 0.1
    (half,) = orthogonalised([m.to(torch.bfloat16)], 5)  # half precision comes in and goes out, single in between
    assert half.dtype == torch.bfloat16
    assert (exact - half).abs().max() < 0.05


def small_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.ELU(),
        nn.Conv2d(8, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.Flatten(),
        nn.Linear(8 * 4, 16),
        nn.ELU(),
        nn.Linear(16, 5),
    )


def train(model: nn.Module, optimizer: Any, steps: int, start: int = 0) -> None:
    for i in range(start, start + steps):
        x = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(i))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def test_the_rest_is_trained_as_by_adamw_of_torch() -> None:
    params = [nn.Parameter(torch.randn(shape)) for shape in [(5,), (), (1, 7), (7, 1, 1)]]
    twins = [nn.Parameter(p.detach().clone()) for p in params]
    ours = Muon(params, adam_lr=0.01, betas=(0.8, 0.9), eps=1e-6, adam_weight_decay=0.1)
    theirs = torch.optim.AdamW(twins, lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1)
    for _ in range(3):
        for p, q in zip(params, twins, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        ours.step()
        theirs.step()
    assert [group["method"] for group in ours.param_groups] == ["adam"]
    torch.testing.assert_close([*params], [*twins], rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    "given",
    [
        lambda model: model.parameters(),
        lambda model: model.named_parameters(),
        lambda model: [{"params": model[0].parameters(), "lr": 0.3}, {"params": [model[7].weight]}],
        lambda model: [{"params": model[0].weight, "method": "muon"}],
    ],
)
def test_parameters_come_as_for_any_optimizer(given: Callable[[nn.Module], Any]) -> None:
    model = small_model()
    optimizer = Muon(given(model), lr=0.1, adam_lr=0.2)
    expected = {p for g in copy.copy(list(given(model))) for p in _tensors(g)}
    assert {p for group in optimizer.param_groups for p in group["params"]} == expected
    for group in optimizer.param_groups:
        for p in group["params"]:
            assert (group["method"] == "muon") == (p.ndim > 1)
    train(model, optimizer, 2)


def _tensors(given: Any) -> list[Tensor]:
    given = given["params"] if isinstance(given, dict) else [given]
    return [p[1] if isinstance(p, tuple) else p for p in ([given] if isinstance(given, Tensor) else given)]


def test_a_group_keeps_its_own_options() -> None:
    layers = [nn.Linear(3, 3) for _ in range(4)]
    optimizer = Muon(
        [
            {"params": layers[0].parameters(), "lr": 0.3, "weight_decay": 0.01},
            {"params": layers[1].parameters(), "adam_lr": 0.4, "adam_weight_decay": 0.02},
            {"params": layers[2].weight, "method": "adam", "lr": 0.5},
            {"params": layers[3].parameters()},
        ],
        lr=0.1,
    )
    assert [(g["method"], g["lr"], g["weight_decay"]) for g in optimizer.param_groups] == [
        ("muon", 0.3, 0.01),
        ("adam", 2e-3, 0.0),
        ("muon", 0.1, 0.0),
        ("adam", 0.4, 0.02),
        ("adam", 0.5, 0.0),
        ("muon", 0.1, 0.0),
        ("adam", 2e-3, 0.0),
    ]


def pickled(x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))  # noqa: S301 - made here


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_a_state_goes_on_where_it_was(copied: Callable[[Any], Any]) -> None:
    model = small_model()
    optimizer = Muon(groups(model), 0.05, weight_decay=0.01)
    train(model, optimizer, 3)
    other = small_model()
    other.load_state_dict(model.state_dict())
    resumed = Muon(groups(other), 7.0)
    resumed.load_state_dict(copied(optimizer.state_dict()))
    train(model, optimizer, 3, start=3)
    train(other, resumed, 3, start=3)
    torch.testing.assert_close(model.state_dict(), other.state_dict(), rtol=0, atol=0)
    duplicate = copied(optimizer)
    new = [("a", nn.Parameter(torch.randn(3, 3))), ("b", nn.Parameter(torch.randn(3)))]
    duplicate.add_param_group({"params": new})
    assert [group["lr"] for group in duplicate.param_groups[-2:]] == [0.05, 2e-3]


def test_it_goes_up_when_asked() -> None:
    down, up = ([nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3))] for _ in range(2))
    for params, maximize in ((down, False), (up, True)):
        for p in params:
            p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(0))
        Muon(params, maximize=maximize).step()
    for p, q in zip(down, up, strict=True):
        torch.testing.assert_close(p - 1, 1 - q)
        assert not torch.equal(p, q)


def test_closures_schedulers_and_gradients_that_are_not_there() -> None:
    model = small_model()
    optimizer = Muon(groups(model), 0.1, adam_lr=0.2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    frozen = model[0].weight.requires_grad_(False)
    before = frozen.detach().clone()

    def closure() -> float:
        optimizer.zero_grad()
        loss = model(torch.ones(4, 3, 6, 6)).square().mean()
        loss.backward()
        return loss.item()

    first = optimizer.step(closure)
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.1]
    assert isinstance(first, float)
    assert optimizer.step(closure) != first
    assert torch.equal(frozen, before)


def test_a_rate_may_be_a_tensor() -> None:
    models = [small_model(), small_model()]
    models[1].load_state_dict(models[0].state_dict())
    train(models[0], Muon(groups(models[0]), 0.1, weight_decay=0.1), 2)
    train(models[1], Muon(groups(models[1]), torch.tensor(0.1), adam_lr=torch.tensor(2e-3), weight_decay=0.1), 2)
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())


def test_channels_last_changes_nothing_but_the_order_in_memory() -> None:
    models: list[Any] = [small_model().double() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    models[1].to(memory_format=torch.channels_last)
    for model in models:
        optimizer = Muon(groups(model), 0.1)
        for i in range(3):
            x = torch.randn(4, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(i))
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())
    assert models[1][2].weight.is_contiguous(memory_format=torch.channels_last)


def test_a_compiled_step_is_the_same_step() -> None:
    models = [nn.Sequential(nn.Linear(4, 6), nn.ELU(), nn.Linear(6, 6), nn.ELU(), nn.Linear(6, 2)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [Muon(groups(model), 0.1) for model in models]
    steps = [optimizers[0].step, torch.compile(optimizers[1].step, backend="aot_eager")]
    for i in range(3):
        for model, step in zip(models, steps, strict=True):
            model.zero_grad()
            model(torch.randn(5, 4, generator=torch.Generator().manual_seed(i))).square().mean().backward()
            step()
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())
    torch.compiler.reset()


def test_a_bipolar_network_and_its_fold_take_the_same_steps() -> None:
    """Flipped signs are orthogonal matrices on both sides, which the iteration commutes with; momentum flips along."""
    model = nn.Sequential(nn.Linear(6, 8), bipolar.BELU(), nn.Linear(8, 8), bipolar.BELU(), nn.Linear(8, 3)).double()
    x = torch.randn(16, 6, dtype=torch.float64)
    optimizer = Muon(groups(model), 0.05)
    bent = copy.deepcopy((model, optimizer))

    def steps(model: nn.Module, optimizer: Muon) -> Tensor:
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return model(x)

    steps(*bent)
    plain = bipolar.fold(bent[0], x, optimizer=bent[1])
    steps(model, optimizer)
    torch.testing.assert_close(steps(plain, bent[1]), steps(model, optimizer), rtol=0, atol=1e-12)
    assert any(isinstance(module, nn.ELU) for module in plain.modules())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr: expected 0 or more, got -1.0"),
        ({"lr": float("nan")}, "lr: expected 0 or more, got nan"),
        ({"momentum": 1.0}, "momentum: expected 0 or more and less than 1, got 1.0"),
        ({"betas": (0.9, 1.0)}, r"betas: expected 0 or more and less than 1, got \(0.9, 1.0\)"),
        ({"weight_decay": -0.1}, "weight_decay: expected 0 or more, got -0.1"),
        ({"adam_lr": -0.1}, "lr: expected 0 or more, got -0.1"),
        ({"ns_steps": 0}, "ns_steps: expected at least 1, got 0"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Muon(small_model().parameters(), **options)


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(ValueError, match="method: expected 'muon' or 'adam', got 'sgd'"):
        Muon([{"params": [nn.Parameter(torch.ones(2, 2))], "method": "sgd"}])
    with pytest.raises(ValueError, match=r"two rows and two columns or more, got shape \(3,\)"):
        Muon([{"params": [nn.Parameter(torch.ones(3))], "method": "muon"}])
    with pytest.raises(ValueError, match="got a complex one"):
        Muon([nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))])
    with pytest.raises(TypeError, match="pairs of name and parameter, got int"):
        Muon([1])
    embedding = nn.Embedding(4, 3, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="a gradient is sparse"):
        Muon(embedding.parameters()).step()
