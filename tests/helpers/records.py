"""Records of items, as ``bipolar reproduce`` would write them."""

from typing import Any

from bipolar.lab.paper import ITEMS
from bipolar.lab.reproduce.outcomes import DNC

DIVERGED = f"{DNC}: the loss is not finite (step 3)"


def record(item: str, *seeds: dict[str, Any], scale: str = "small", **more: Any) -> dict[str, Any]:
    by_seed = {str(i + 1): results for i, results in enumerate(seeds)}
    head = {"item": item, "title": ITEMS[item].title, "scale": scale, "complete": True, "seconds": 100.0}
    origin = {"commit": "abc", "machine": "a machine", "versions": {}}
    return {**head, **origin, "published": {}, "results": seeds[0], "by_seed": by_seed, "runs": {}, **more}


def bpc(value: float | str) -> dict[str, Any]:
    return {"valid_bpc": value, "test_bpc": 2.0, "last_train_bpc": 2.0, "width": 64, "seconds": 1.0}


def table1_results(**values: float | str) -> dict[str, Any]:
    names = {"relu": 2.0, "brelu": 1.9, "elu": 1.9, "belu": 1.9, "selu": 1.9, "bselu": 1.9} | values
    return {depth: {name: bpc(value) for name, value in names.items()} for depth in ("4", "36")}
