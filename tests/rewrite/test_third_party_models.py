"""Conversion, symmetry, LSUV, folding and training of models from the transformers library."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar

transformers = pytest.importorskip("transformers")


Build = Callable[[], nn.Module]


def pixels(count: int = 4) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(count, 3, 32, 32)}


def tokens() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(50, (4, 8))}


def resnet(layer_type: str) -> nn.Module:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[2, 1], layer_type=layer_type, num_labels=4
    )
    return transformers.ResNetForImageClassification(config)


def convnext() -> nn.Module:
    config = transformers.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=4)
    return transformers.ConvNextForImageClassification(config)


def regnet() -> nn.Module:
    config = transformers.RegNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=4, num_labels=4
    )
    return transformers.RegNetForImageClassification(config)


def mobilenet() -> nn.Module:
    config = transformers.MobileNetV1Config(depth_multiplier=0.25, num_labels=4)
    return transformers.MobileNetV1ForImageClassification(config)


def vit() -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8,
        num_labels=4,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def gpt2(activation: str) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2, activation_function=activation, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


#: the model, its input, how many activations are converted, and how many of them can be folded away
MODELS: dict[str, tuple[Build, Callable[[], dict[str, Tensor]], int, int]] = {
    # max pooling after the stem pins the stream of the first stage down
    "ResNet, basic": (lambda: resnet("basic"), pixels, 7, 4),
    "ResNet, bottleneck": (lambda: resnet("bottleneck"), pixels, 10, 7),
    "ConvNeXt": (convnext, pixels, 2, 2),
    "RegNet": (regnet, pixels, 9, 9),
    "MobileNet": (mobilenet, pixels, 27, 27),
    "ViT": (vit, pixels, 2, 2),
    "GPT-2 with ReLU": (lambda: gpt2("relu"), tokens, 2, 2),
}


def logits(model: nn.Module, example: dict[str, Tensor]) -> Tensor:
    return model(**example).logits


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, dict[str, Tensor], int, int]:
    torch.manual_seed(0)
    build, example, converted, folded = MODELS[request.param]
    return build().eval(), example(), converted, folded


def test_from_conversion_to_folding(case: Any) -> None:
    model, example, count, foldable = case
    converted = bipolar.convert(model, example=example)
    assert len(converted.conversion_report.changed) == count, converted.conversion_report
    assert list(converted.state_dict()) == list(model.state_dict())
    report = bipolar.symmetry(converted, example)
    assert len(report.activations) == count
    assert sum(not reason for reason in report.activations.values()) == foldable, report
    plain = bipolar.fold(converted, example)
    torch.testing.assert_close(logits(plain, example), logits(converted, example), atol=1e-6, rtol=1e-6)
    if "relu" in str(model).lower():
        assert torch.equal(logits(plain, example), logits(converted, example))
    scaled = [row for row in bipolar.lsuv_(converted, example) if row.after is not None]
    assert scaled
    assert all(abs(row.after - 1) < 0.01 for row in scaled)
    _reduces_its_loss(converted, example)


def _reduces_its_loss(model: nn.Module, example: dict[str, Tensor]) -> None:
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    labels = torch.randint(4, logits(model, example).shape[:-1])
    losses = []
    for _ in range(6):
        loss = tF.cross_entropy(logits(model, example).flatten(0, -2), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert min(losses[1:]) < losses[0], losses


@pytest.mark.parametrize("build", [lambda: resnet("basic"), regnet, mobilenet], ids=["ResNet", "RegNet", "MobileNet"])
def test_without_batch_norm(build: Build) -> None:
    torch.manual_seed(0)
    model, example = build(), pixels(8)
    with torch.no_grad():
        for _ in range(3):
            model.train()(**example)
    model.eval()
    same = bipolar.convert(model, activations={}, remove_norm="batch", example=example)
    assert not [m for m in same.modules() if isinstance(m, nn.BatchNorm2d)]
    torch.testing.assert_close(logits(same, example), logits(model, example), atol=1e-3, rtol=1e-3)
    converted = bipolar.convert(model, remove_norm="batch", example=example)
    assert all(abs(row.after - 1) < 0.01 for row in bipolar.lsuv_(converted, example) if row.after is not None)
    _reduces_its_loss(converted, example)


@pytest.mark.parametrize("name", ["gelu_new", "quick_gelu"])
def test_a_gelu_of_several_functions_is_known_by_what_it_computes(name: str) -> None:
    model = gpt2(name).eval()
    converted = bipolar.convert(model, example=tokens())
    act = model.transformer.h[0].mlp.act
    found = converted.transformer.h[0].mlp.act
    x = torch.randn(2, 3, 4)
    assert torch.equal(found(x), bipolar.Bipolar(act, dim=-1)(x))
    plain = bipolar.fold(converted, tokens())
    assert type(plain.transformer.h[0].mlp.act) is type(act)
    torch.testing.assert_close(plain(**(example := tokens())).logits, converted(**example).logits)


def llama() -> nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        intermediate_size=32, max_position_embeddings=16, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config)


@pytest.mark.parametrize("build", [llama, t5], ids=["Llama", "T5"])
def test_their_own_norms_go(build: Build) -> None:
    example = tokens()
    if build is t5:
        example |= {"decoder_input_ids": example["input_ids"]}
    converted = bipolar.convert(build(), remove_norm="all", example=example)
    assert not [m for m in converted.modules() if "Norm" in type(m).__name__]
    logits(converted, example)


class BipolarResNet(transformers.ResNetForImageClassification):  # type: ignore[misc, name-defined]  # it has no types
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        bipolar.convert(self, like=config.bipolar, inplace=True)


def test_a_converted_model_is_saved_and_loaded(tmp_path: Path) -> None:
    """Weights that the plain model does not have, of biases and of scales and shifts, come along."""
    torch.manual_seed(0)
    model, example = resnet("basic"), pixels()
    with torch.no_grad():
        for _ in range(3):
            model.train()(**example)
    converted = bipolar.convert(model.eval(), remove_norm="batch", example=example)
    converted.config.bipolar = converted.conversion_report.to_dict()
    converted.save_pretrained(tmp_path)
    loaded = BipolarResNet.from_pretrained(tmp_path).eval()
    assert str(loaded.resnet) == str(converted.resnet)
    assert torch.equal(logits(loaded, example), logits(converted, example))
