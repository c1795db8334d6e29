"""Analysis of the symmetry: activations that fold, and the nodes that keep others from it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import bipolar
from bipolar._symmetry.rules.table import rule_for
from tests.helpers.folding import BATCH, Net, assert_folds
from tests.helpers.networks import NETWORKS, converted


@pytest.mark.parametrize("name", [name for name, case in NETWORKS.items() if not case.holds])
def test_what_breaks_the_symmetry_is_named(name: str) -> None:
    model, example = converted(name)
    report = bipolar.symmetry(model, example)
    assert not report.holds
    assert NETWORKS[name].because in report.summary()
    assert report.broken_by
    with pytest.raises(bipolar.FoldingError, match=r"shown for \d of \d activation"):
        bipolar.fold(model, example, strict=True)


def test_shared_weights_that_need_two_signs() -> None:
    class Twice(nn.Module):
        """One layer, before a bipolar activation and before a plain one."""

        def __init__(self) -> None:
            super().__init__()
            self.layer, self.act, self.head = nn.Linear(4, 4), bipolar.BReLU(), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.act(self.layer(torch.relu(self.layer(x)))))
            return out

    model, x = Twice(), torch.randn(3, 4)
    report = bipolar.symmetry(model, x)
    assert not report.holds
    assert "relu" in report.activations["act"]
    assert torch.equal(bipolar.fold(model, x)(x), model(x))


def test_nothing_to_fold() -> None:
    plain = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    assert bipolar.symmetry(nn.Linear(4, 2)).summary().startswith("No activation here")
    assert not bipolar.fold(plain, strict=True).fold_report.activations  # nothing stays bipolar


def test_as_many_as_go_together() -> None:
    """Of two activations that meet, the one that is flipped nowhere there may be folded."""

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.out = nn.Linear(4, 1), nn.Linear(4, 2), nn.Linear(1, 2)
            self.single, self.pair = bipolar.BReLU(), bipolar.BReLU()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            single = self.single(self.one(x))  # one channel, which is never flipped
            return self.out(single), self.pair(self.two(x)).amax(1, keepdim=True) + single

    report = assert_folds(Part(), BATCH)
    assert {name: not reason for name, reason in report.activations.items()} == {"single": True, "pair": False}


@pytest.mark.parametrize("function", [bipolar.symmetry, bipolar.fold, bipolar.unfold])
def test_what_is_no_model_is_named(function: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"model: expected a torch\.nn\.Module, not 'x' of type str"):
        function("x")


def test_an_example_that_does_not_fit_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 6), bipolar.BReLU(), nn.Linear(6, 2))
    for function in (bipolar.symmetry, bipolar.fold):
        with pytest.raises(ValueError, match="example: Sequential raises RuntimeError when it is called with it: mat1"):
            function(model, torch.randn(3, 5))


def test_rows_of_a_report() -> None:
    report = bipolar.symmetry(nn.Sequential(nn.Linear(4, 6), bipolar.BReLU(), nn.Linear(6, 2)), BATCH)
    assert report[0] is report.rows[0]
    assert report[-1].function == "the model's output"
    assert report[:2] == report.rows[:2]
    assert [row.function for row in report["1"]] == ["brelu"]
    with pytest.raises(KeyError, match="'3' is no module that ran"):
        report["3"]
    with pytest.raises(IndexError):
        report[99]


def test_code_that_no_tracer_could_follow_is_folded() -> None:
    class Untraceable(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            scale = torch.as_tensor([float(len(x))]).numpy()
            out: Tensor = self.down(bipolar.functional.brelu(self.up(x), dim=-1) * float(scale[0]))
            return out

    model = Untraceable()
    assert bipolar.symmetry(model, BATCH).activations["the model, call 1 of an activation"] == ""
    torch.testing.assert_close(bipolar.fold(model, BATCH, strict=True)(BATCH[:3]), model(BATCH[:3]))


def test_a_call_that_no_rule_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def unprepared(*_: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(
        "bipolar._symmetry.trace.rule_for", lambda name: unprepared if name == "flip" else rule_for(name)
    )
    model = Net(lambda n, x: n.out(n.act(n.a(x)).flip(1)))
    report = assert_folds(model, BATCH)
    assert "flip is called in a way that is not known" in report.activations["act"]
