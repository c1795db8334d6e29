"""The study of networks without norms: equal lengths, and verdicts either way."""

from typing import Any

import pytest

from bipolar.lab.paper import normfree
from bipolar.lab.reproduce.verdicts import Evidence, Status

CLAIMS = {claim.name: claim for claim in normfree.CLAIMS}


def verdict(claim: str, **errors: Any) -> Status:
    """The verdict where each variant has the same error in three seeds, but for those that are given."""
    names = {name.replace(", ", "_").replace(" ", "_"): name for name in normfree.VARIANTS}
    values = dict.fromkeys(normfree.VARIANTS, 40.0) | {names[key]: value for key, value in errors.items()}
    by_seed = {
        str(seed): {
            name: {"test_error": error if isinstance(error, str) else error + 0.1 * seed}
            for name, error in values.items()
        }
        for seed in (1, 2, 3)
    }
    record = {"scale": "small", "complete": True, "by_seed": by_seed, "results": by_seed["1"]}
    return CLAIMS[claim].verdict(Evidence({"normfree": record})).status


def test_all_runs_are_of_one_length() -> None:
    for scale in ("quick", "small", "paper"):
        runs = normfree.runs(scale)
        assert len({(c.data, c.batch_size, c.length, c.model.depth, c.model.widen_factor) for c in runs.values()}) == 1
        for name, config in runs.items():
            config.check()
            assert (config.model.norm == "batch") is name.startswith("batch norm")
            assert config.pin is ("pinned" in name)
            assert (config.gain is not None) is ("gains" in name)
            assert config.model.centre is ("centred" in name)


@pytest.mark.parametrize(
    ("error", "status"),
    [(30.0, "reproduced"), (38.5, "reproduced"), (50.0, "not reproduced"), ("did not converge", "not reproduced")],
)
def test_the_best_without_norm_decides(error: float | str, status: Status) -> None:
    others = {
        name.replace(", ", "_").replace(" ", "_"): 45.0 for name in normfree.VARIANTS if name.startswith("no norm")
    }
    assert verdict("ahead without norm", **others | {"no_norm_ELU_Muon_pinned": error}) == status


def test_sgd() -> None:
    assert verdict("behind with sgd", no_norm_ReLU_SGD=50.0) == "reproduced"
    assert verdict("behind with sgd", no_norm_ReLU_SGD="did not converge") == "reproduced"
    assert verdict("behind with sgd", no_norm_ReLU_SGD=30.0) == "not reproduced"
