"""LSUV of attention: q, k and v have unit variance, each by itself, however they are stored."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar


class Fused(nn.Module):
    """q, k and v from one layer, taken apart by ``split``."""

    def __init__(self, split: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.qkv, self.split = nn.Linear(16, 48), split

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.qkv(x))
        return tF.scaled_dot_product_attention(q, k, v)


SPLITS: list[Callable[[Tensor], Any]] = [
    lambda y: y.split(16, dim=-1),
    lambda y: y.split([16, 16, 16], dim=-1),
    lambda y: torch.chunk(y, 3, -1),
    lambda y: y.view(*y.shape[:-1], 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0),
]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("orthogonal", [True, False])
def test_parts_of_one_layer(split: Callable[[Tensor], Any], orthogonal: bool) -> None:
    model, x = Fused(split), torch.randn(8, 9, 16)
    nn.init.zeros_(model.qkv.bias)
    with torch.no_grad():
        model.qkv.weight[:16] *= 7  # q alone is large
    report = bipolar.lsuv_(model, x, orthogonal=orthogonal)
    assert report[0].note == "its 3 parts each by itself"
    assert report[0].after == pytest.approx(1.0, abs=1e-3)
    for part in model.qkv(x).chunk(3, -1):
        assert part.var().item() == pytest.approx(1.0, abs=0.01)
    for block in model.qkv.weight.detach().chunk(3):
        gram = block @ block.T
        assert torch.allclose(gram / gram[0, 0], torch.eye(16), atol=1e-4) is orthogonal


def test_a_split_of_samples_is_none_of_channels() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            first, second = self.linear(x).chunk(2)
            return first + second

    assert bipolar.lsuv_(Outer(), torch.randn(8, 16))["linear"].note == ""


def test_the_linear_layer_of_gpt2() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=1)
    model, tokens = GPT2LMHeadModel(config), torch.arange(40).reshape(4, 10)
    report = bipolar.lsuv_(model, {"input_ids": tokens, "use_cache": False})
    kinds = {row.name.split(".")[-1]: (row.kind, row.note) for row in report}
    assert kinds == {
        "c_attn": ("Conv1D", "its 3 parts each by itself"),
        "c_proj": ("Conv1D", ""),
        "c_fc": ("Conv1D", ""),
        "lm_head": ("Linear", "tied to 'transformer.wte'"),
    }
    assert len(report.scaled) == 8
    found: dict[str, Tensor] = {}
    attention = model.transformer.h[1].attn
    attention.c_attn.register_forward_hook(lambda module, args, output: found.update(qkv=output))
    attention.c_proj.register_forward_hook(lambda module, args, output: found.update(out=output))
    model.eval()(input_ids=tokens)
    for part in (*found["qkv"].chunk(3, -1), found["out"]):
        assert part.var(correction=0).item() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("options", [{}, {"kdim": 12, "vdim": 20}, {"bias": False}])
def test_multihead_attention(options: dict[str, Any]) -> None:
    attention = nn.MultiheadAttention(16, 4, batch_first=True, **options)
    if attention.in_proj_bias is not None:
        nn.init.normal_(attention.in_proj_bias, std=0.1)
    query = torch.randn(8, 5, 16)
    key, value = (3 * torch.randn(8, 7, options.get(name, 16)) for name in ("kdim", "vdim"))
    report = bipolar.lsuv_(attention, {"query": query, "key": key, "value": value})
    stored = ["in_proj_weight"] if "kdim" not in options else ["q_proj_weight", "k_proj_weight", "v_proj_weight"]
    assert report.scaled == [*stored, "out_proj.weight"]
    assert [row.name for row in report] == [f"MultiheadAttention.{name}" for name in stored] + ["out_proj"]
    parts = attention.in_proj_weight.chunk(3) if len(stored) == 1 else [getattr(attention, name) for name in stored]
    biases = [None] * 3 if attention.in_proj_bias is None else attention.in_proj_bias.chunk(3)
    for x, weight, bias in zip((query, key, value), parts, biases, strict=True):
        assert tF.linear(x, weight, bias).var(correction=0).item() == pytest.approx(1.0, abs=1e-3)
    assert attention(query, key, value)[0].var(correction=0).item() == pytest.approx(1.0, abs=2e-3)
    kept = bipolar.lsuv_(attention, (query, key, value), orthogonal=False)
    assert [row.scale for row in kept] == pytest.approx([1.0] * len(kept), abs=1e-3)


def test_attention_that_is_frozen_or_excluded_stays() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    layer.self_attn.in_proj_weight.requires_grad_(False)
    before, x = layer.self_attn.in_proj_weight.clone(), torch.randn(4, 5, 16)
    assert bipolar.lsuv_(layer, x)["self_attn"].note == "frozen"
    assert torch.equal(layer.self_attn.in_proj_weight, before)
    layer.self_attn.in_proj_weight.requires_grad_(True)
    report = bipolar.lsuv_(layer, x, exclude="self_attn*")
    assert [row.name for row in report] == ["linear1", "linear2"]
    assert torch.equal(layer.self_attn.in_proj_weight, before)
