"""No false alarm: networks of others and residual networks, freshly initialised, have no warnings."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar

TOKENS = torch.arange(32).reshape(4, 8)
IMAGES = torch.linspace(-2, 2, 4 * 3 * 16 * 16).reshape(4, 3, 16, 16).sin()


def cross_entropy(logits: Tensor) -> Tensor:
    rows = logits.flatten(0, -2)
    return tF.cross_entropy(rows, torch.arange(len(rows)) % rows.size(-1))


def transformer(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """A small model of transformers, and a batch for it."""
    import transformers

    hf: Any = transformers

    size = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    text, vision = {"vocab_size": 40, **size}, {"image_size": 16, "patch_size": 4, **size}
    special: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    if name == "bert":
        return hf.BertForMaskedLM(hf.BertConfig(**text)), {"input_ids": TOKENS}
    if name == "gpt2":
        config = hf.GPT2Config(vocab_size=40, n_embd=16, n_layer=3, n_head=2, **special)
        return hf.GPT2LMHeadModel(config), {"input_ids": TOKENS}
    if name == "llama":
        return hf.LlamaForCausalLM(hf.LlamaConfig(**text, **special)), {"input_ids": TOKENS}
    if name == "vit":
        return hf.ViTForImageClassification(hf.ViTConfig(num_labels=10, **vision)), {"pixel_values": IMAGES}
    if name == "t5":
        config = hf.T5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
        return hf.T5ForConditionalGeneration(config), {"input_ids": TOKENS, "decoder_input_ids": TOKENS[:, :5]}
    config = hf.CLIPConfig(text_config=text | special, vision_config=vision, projection_dim=8)
    return hf.CLIPModel(config), {"input_ids": TOKENS, "pixel_values": IMAGES}


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "vit", "t5", "clip"])
def test_transformers(name: str) -> None:
    model, batch = transformer(name)
    for training in (True, False):
        result = bipolar.probe(
            model.train(training),
            batch,
            lambda output: cross_entropy(output.logits_per_text if name == "clip" else output.logits),
        )
        assert len(result) > 25
        assert result.warnings() == []


class Block(nn.Module):
    """x plus a branch of two convolutions."""

    def __init__(self, norm: Callable[[], nn.Module], gain: float) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            norm(), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), norm(), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)
        )
        for layer in (self.branch[2], self.branch[5]):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
        with torch.no_grad():
            self.branch[5].weight.mul_(gain)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


def residual(norm: Callable[[], nn.Module] = nn.Identity, gain: float = 1.0, blocks: int = 8) -> nn.Sequential:
    layers = [Block(norm, gain) for _ in range(blocks)]
    head = (norm(), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *layers, *head)


@pytest.mark.parametrize(
    "model",
    [
        lambda: residual(lambda: nn.BatchNorm2d(8)),
        lambda: residual(lambda: nn.GroupNorm(2, 8)),
        lambda: residual(gain=0.3),
        lambda: residual(gain=0.0),  # every branch starts at zero
        lambda: residual(lambda: nn.BatchNorm2d(8), gain=0.0),
    ],
)
def test_residual_networks(model: Callable[[], nn.Module]) -> None:
    assert bipolar.probe(model(), IMAGES, cross_entropy).warnings() == []


def test_a_plain_network_with_pooling_after_lsuv() -> None:
    layers: list[nn.Module] = []
    for i, o in ((3, 8), (8, 8), (8, 16), (16, 16)):
        layers += [nn.Conv2d(i, o, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    bipolar.lsuv_(model, IMAGES, target="second_moment")
    assert bipolar.probe(model, IMAGES, cross_entropy).warnings() == []


class TestBroken:
    """The counterparts, which still are reported."""

    def test_a_residual_network_that_explodes(self) -> None:
        (sentence,) = bipolar.probe(residual(gain=2.0), IMAGES).warnings()
        assert sentence.startswith("variance grows by ")

    def test_gradients_that_explode_from_norm_to_norm(self) -> None:
        layers = [nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()) for _ in range(30)]
        model = nn.Sequential(*layers, nn.Linear(32, 10))
        (sentence,) = bipolar.probe(model, torch.randn(128, 32), cross_entropy).warnings()
        assert sentence.startswith("the gradient grows by 1.2")
        assert sentence.endswith("on its way back from '29.1' to '0.1'")

    def test_gradients_that_vanish_behind_sigmoids(self) -> None:
        layers = [nn.Sequential(nn.Linear(32, 32), nn.Sigmoid()) for _ in range(6)]
        sentences = bipolar.probe(nn.Sequential(*layers), torch.randn(128, 32), cross_entropy).warnings()
        assert any(sentence.startswith("the gradient shrinks by ") for sentence in sentences)

    def test_a_dead_network(self) -> None:
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 4))
        model[0].bias.data[:] = -100.0
        sentences = bipolar.probe(model, torch.randn(64, 8), cross_entropy).warnings()
        assert "no gradient reaches 3 of 5 layers" in sentences
        assert "the output is the same for every sample and unit in 3 of 5 layers" in sentences

    def test_batch_norm_without_statistics(self) -> None:
        model = residual(lambda: nn.BatchNorm2d(8))
        (sentence,) = bipolar.probe(model.eval(), IMAGES, cross_entropy).warnings()
        assert sentence == (
            "batch norm uses running statistics that no batch has set yet in 17 of 54 layers; what follows it cannot "
            "be judged: probe the model in training mode"
        )
        model.train()(IMAGES)
        assert bipolar.probe(model.eval(), IMAGES, cross_entropy).warnings() == []
