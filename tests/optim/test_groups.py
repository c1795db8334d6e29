"""Roles of parameters in models of all kinds."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import bipolar
from bipolar.optim import groups


def to_muon(model: nn.Module, **options: object) -> list[str]:
    """The names that Muon gets; all parameters are in one group or the other."""
    found = {group["method"]: dict(group["params"]) for group in groups(model, **options)}
    both = found.get("muon", {}) | found.get("adam", {})
    assert both.keys() == dict(model.named_parameters()).keys()
    assert sum(map(len, found.values())) == len(both)
    return list(found.get("muon", {}))


def test_models_of_the_library() -> None:
    network = bipolar.models.WideResNet(10, 1, norm="batch")
    expected = [name for name, p in network.named_parameters() if p.ndim == 4]
    assert to_muon(network) == expected
    assert len(expected) == 9
    text = bipolar.models.CharRNN(5, 8, 3)
    assert to_muon(text) == [f"rnn.weight_{kind}_l{i}" for i in range(3) for kind in ("ih", "hh")]
    assert len(to_muon(text.rnn)) == 6


def test_embeddings_norms_vectors_and_a_last_layer_are_for_adam() -> None:
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(10, 4),
            "hidden": nn.Linear(4, 4),
            "norm": nn.LayerNorm((3, 4)),  # whose parameters are matrices by shape
            "gains": nn.ParameterList([torch.ones(4, 1, 1), torch.ones(1, 1, 4), torch.ones(())]),
            "head": nn.Linear(4, 10),
        }
    )
    assert to_muon(model) == ["hidden.weight"]


def test_a_head_that_is_the_embedding_leaves_the_hidden_layers_hidden() -> None:
    model = nn.ModuleDict({"embedding": nn.Embedding(10, 4), "hidden": nn.Linear(4, 4), "head": nn.Linear(4, 10)})
    model["head"].weight = model["embedding"].weight
    assert to_muon(model) == ["hidden.weight"]


def test_a_last_layer_may_have_one_output() -> None:
    assert to_muon(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1))) == ["0.weight", "1.weight"]


def test_last_layers_can_be_named() -> None:
    model = nn.ModuleDict({"head": nn.Linear(4, 2), "a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    assert to_muon(model) == ["head.weight", "a.weight"]
    assert to_muon(model, last="head") == ["a.weight", "b.weight"]
    assert to_muon(model, last=("head", "b*")) == ["a.weight"]
    assert to_muon(model, last=()) == ["head.weight", "a.weight", "b.weight"]
    with pytest.raises(ValueError, match="last: 'tail' matches no module of ModuleDict"):
        groups(model, last="tail")


def test_a_parametrised_layer_is_hidden_or_last_as_any_other() -> None:
    model = nn.Sequential(*(parametrizations.weight_norm(nn.Linear(4, 4)) for _ in range(2)))
    assert to_muon(model) == ["0.parametrizations.weight.original1"]  # the direction; its gains are a vector


def test_a_model_without_matrices_or_parameters() -> None:
    assert [group["method"] for group in groups(nn.PReLU())] == ["adam"]
    with pytest.raises(ValueError, match="there is no parameter in ReLU"):
        groups(nn.ReLU())
    with pytest.raises(ValueError, match="run a batch through it first"):
        groups(nn.LazyLinear(3))
    with pytest.raises(TypeError, match="model: expected a module, got list"):
        groups([torch.ones(2, 2)])
