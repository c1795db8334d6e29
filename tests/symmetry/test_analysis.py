"""Analysis of the symmetry: activations that fold, and the nodes that keep others from it."""

import pytest
import torch
from torch import Tensor, nn

import bipolar
from tests.helpers.folding import BATCH, assert_folds
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
