"""``convert``, ``lsuv_``, ``probe``, ``symmetry``, ``fold`` and ``unfold`` on models of transformers and timm.

The models are small and their weights fresh, moved a little at random so that no bias is zero and no scale is one. A
model, or a step, that fails does not stop the others: its row says how. timm is no dependency of this library; its
models are skipped where it does not import.
"""

import argparse
import importlib
import importlib.metadata
import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import bipolar
from benchmarks.common import machine, markdown_table, record
from bipolar._activations.channelwise import ChannelActivation
from bipolar._rewrite.outputs import outputs_of
from bipolar._tools.nested import tensors_in_objects

#: The largest difference of outputs, as a share of their largest value, that rounding explains in float32.
ROUNDING = 1e-5
WIDTH, LAYERS, HEADS, INNER, VOCABULARY, LENGTH = 32, 2, 4, 64, 64, 16
#: The names that most configurations of transformers share.
SIZES = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
}
TOKENS = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = SIZES | TOKENS | {"max_position_embeddings": 2 * LENGTH}
DECODER = TEXT | {"num_key_value_heads": 2}
PIXELS = SIZES | {"image_size": 32, "patch_size": 8}
SEQ2SEQ = TOKENS | {
    "d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS, "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER, "decoder_start_token_id": 1,
}  # fmt: skip
STAGES = {"depths": [1, 1, 2, 1], "hidden_sizes": [16, 24, 32, 48]}

Example = dict[str, Tensor]
Case = tuple[Callable[[], nn.Module], Callable[[], Any]]


def tokens() -> Example:
    return {"input_ids": torch.randint(3, VOCABULARY, (4, LENGTH))}


def two_texts() -> Example:
    return tokens() | {"decoder_input_ids": torch.randint(3, VOCABULARY, (4, LENGTH))}


def pixels() -> Example:
    return {"pixel_values": images()}


def images(size: int = 32) -> Tensor:
    return torch.randn(4, 3, size, size)


def hugging_face(name: str, head: str, **settings: Any) -> Callable[[], nn.Module]:
    """A model of transformers by the name of its configuration and of its class."""

    def build() -> nn.Module:
        model: nn.Module = getattr(transformers, head)(getattr(transformers, f"{name}Config")(**settings))
        return model

    return build


def timm(name: str, **settings: Any) -> Callable[[], nn.Module]:
    """A model of timm by its name there, with ten classes."""

    def build() -> nn.Module:
        try:
            library = importlib.import_module("timm")
        except ImportError as error:
            raise SkippedError(f"timm does not import here: {error}") from None
        model: nn.Module = library.create_model(name, pretrained=False, num_classes=10, **settings)
        return model

    return build


MODELS: dict[str, Case] = {
    "GPT-2": (
        hugging_face("GPT2", "GPT2LMHeadModel", n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=32, **TOKENS),
        tokens,
    ),
    "GPT-Neo": (
        hugging_face(
            "GPTNeo", "GPTNeoForCausalLM", hidden_size=WIDTH, num_layers=LAYERS, num_heads=HEADS,
            attention_types=[[["global", "local"], 1]], max_position_embeddings=32, **TOKENS,
        ),
        tokens,
    ),
    "OPT": (
        hugging_face("OPT", "OPTForCausalLM", ffn_dim=INNER, word_embed_proj_dim=WIDTH, **TEXT),
        tokens,
    ),
    "Llama": (hugging_face("Llama", "LlamaForCausalLM", **DECODER), tokens),
    "Mistral": (hugging_face("Mistral", "MistralForCausalLM", **DECODER), tokens),
    "Gemma": (hugging_face("Gemma", "GemmaForCausalLM", head_dim=8, **DECODER), tokens),
    "Qwen2": (hugging_face("Qwen2", "Qwen2ForCausalLM", **DECODER), tokens),
    "Mamba": (
        hugging_face("Mamba", "MambaForCausalLM", hidden_size=WIDTH, num_hidden_layers=LAYERS, state_size=8, **TOKENS),
        tokens,
    ),
    "T5": (
        hugging_face(
            "T5", "T5ForConditionalGeneration", d_model=WIDTH, d_kv=8, d_ff=INNER, num_layers=LAYERS, num_heads=HEADS,
            vocab_size=VOCABULARY, decoder_start_token_id=0,
        ),
        two_texts,
    ),
    "BART": (
        hugging_face("Bart", "BartForConditionalGeneration", max_position_embeddings=32, **SEQ2SEQ),
        two_texts,
    ),
    "BERT": (hugging_face("Bert", "BertForSequenceClassification", **TEXT), tokens),
    "RoBERTa": (hugging_face("Roberta", "RobertaForMaskedLM", **TEXT), tokens),
    "ALBERT": (hugging_face("Albert", "AlbertForMaskedLM", embedding_size=16, **TEXT), tokens),
    "DistilBERT": (
        hugging_face(
            "DistilBert", "DistilBertForSequenceClassification", vocab_size=VOCABULARY, dim=WIDTH, n_layers=LAYERS,
            n_heads=HEADS, hidden_dim=INNER, max_position_embeddings=32,
        ),
        tokens,
    ),
    "ELECTRA": (hugging_face("Electra", "ElectraForPreTraining", embedding_size=16, **TEXT), tokens),
    "DeBERTa": (
        hugging_face("DebertaV2", "DebertaV2ForMaskedLM", relative_attention=True, pos_att_type=["p2c", "c2p"], **TEXT),
        tokens,
    ),
    "ViT": (hugging_face("ViT", "ViTForImageClassification", **PIXELS), pixels),
    "DeiT": (hugging_face("DeiT", "DeiTForImageClassification", **PIXELS), pixels),
    "Swin": (
        hugging_face(
            "Swin", "SwinForImageClassification", image_size=32, patch_size=2, embed_dim=16, depths=[1, 2],
            num_heads=[2, 4], window_size=4,
        ),
        pixels,
    ),
    "ConvNeXt": (hugging_face("ConvNext", "ConvNextForImageClassification", **STAGES), pixels),
    "ResNet": (
        hugging_face("ResNet", "ResNetForImageClassification", embedding_size=16, **STAGES),
        pixels,
    ),
    "CLIP": (
        hugging_face("CLIP", "CLIPModel", text_config=TEXT, vision_config=PIXELS, projection_dim=16),
        lambda: tokens() | pixels(),
    ),
    "wav2vec2": (
        hugging_face(
            "Wav2Vec2", "Wav2Vec2ForCTC", conv_dim=[16, 16], conv_kernel=[10, 8], conv_stride=[5, 4],
            num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, **SIZES, **TOKENS,
        ),
        lambda: {"input_values": torch.randn(4, 800)},
    ),
    "Whisper": (
        hugging_face(
            "Whisper", "WhisperForConditionalGeneration", num_mel_bins=16, max_source_positions=32,
            max_target_positions=32, **SEQ2SEQ,
        ),
        lambda: {"input_features": torch.randn(4, 16, 64), "decoder_input_ids": two_texts()["decoder_input_ids"]},
    ),
    **{
        f"timm {name}": (timm(name, **settings), lambda size=size: images(size))  # type: ignore[misc]
        for name, size, settings in (
            ("resnet18", 32, {}),
            ("resnetv2_50", 32, {}),
            ("nf_resnet26", 32, {}),
            ("densenet121", 32, {}),
            ("efficientnet_b0", 32, {}),
            ("mobilenetv3_small_100", 32, {}),
            ("regnety_002", 32, {}),
            ("convnext_atto", 32, {}),
            ("vit_tiny_patch16_224", 32, {"img_size": 32, "depth": 4}),
            ("mixer_s32_224", 64, {"img_size": 64}),
        )
    },
}  # fmt: skip


class SkippedError(Exception):
    """A model is not available here; the message says why."""


@dataclass
class Row:
    """The cells of a model, each empty until its step is done, and sentences on what was refused or failed."""

    model: str
    cells: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    skipped: bool = False
    wrong: bool = False

    def attempt(self, step: str, run: Callable[[], Any]) -> Any:
        """The result of a step, or None if it failed or was skipped; the row says so."""
        try:
            return run()
        except SkippedError as error:
            self.skipped = True
            self.refused.append(f"skipped: {error}")
        except Exception as error:  # whatever a step raises belongs into the table
            self.wrong = True
            self.refused.append(f"{step}: {type(error).__name__}: {first_sentence(str(error))}")
        return None

    def line(self, columns: Sequence[str]) -> list[str]:
        return [self.model, *(self.cells.get(column, "") for column in columns)]


COLUMNS = (
    "parameters", "activations", "converted", "norms", "removed", "lsuv_: scaled", "probe: warnings", "folded",
    "fold: difference", "unfolded", "unfold: difference", "seconds",
)  # fmt: skip


def first_sentence(text: str, longest: int = 160) -> str:
    text = re.sub(r"[^\s(]*site-packages/", "", text)  # where a library is installed is nobody's concern
    sentence = re.split(r"(?<=[a-z)])[.;](?:\s|$)", " ".join(text.split()), maxsplit=1)[0]
    return sentence if len(sentence) <= longest else sentence[: longest - 1] + "…"


def counted(reasons: Sequence[tuple[str, str]], heading: str) -> list[str]:
    """A sentence with the number of refusals and the first reason."""
    if not reasons:
        return []
    name, reason = reasons[0]
    return [f"{len(reasons)} {heading}: {name}: {first_sentence(reason)}"]


@torch.no_grad()
def stir_(model: nn.Module) -> None:
    """Moves all parameters at random, so that an error in the sign of a bias or of a norm's shift shows."""
    for parameter in model.parameters():
        parameter.add_(0.05 * torch.randn_like(parameter))


def difference(before: Sequence[Tensor], after: Sequence[Tensor]) -> float:
    """The largest difference of outputs, as a share of the largest value of each."""
    shares = [(a - b).abs().max() / a.abs().max() for a, b in zip(before, after, strict=True)]
    return max(float(share) for share in shares)


def squares(output: Any) -> Tensor:
    """A loss for any output: the mean square of its first tensor with gradients."""
    return next(t for t in tensors_in_objects(output) if t.requires_grad).square().mean()


def activations_in(rows: Sequence[Any]) -> int:
    """The number of activations in rows of a conversion's report; functions of one module share a row."""
    return sum(max(1, row.before.count("()")) if row.before.endswith("()") else 1 for row in rows)


def through(name: str, case: Case) -> Row:
    """A model through all steps."""
    row = Row(name)
    torch.manual_seed(0)
    made = row.attempt("model", lambda: (case[0]().eval(), case[1]()))
    if made is None:
        return row
    model, example = made
    start = time.perf_counter()  # the first model of a library waits for its import
    stir_(model)
    row.cells["parameters"] = f"{sum(p.numel() for p in model.parameters()):,}"
    converted = row.attempt("convert", lambda: bipolar.convert(model, example=example))
    if converted is not None:
        report = converted.conversion_report
        row.cells["activations"] = str(activations_in(report.rows))
        row.cells["converted"] = str(activations_in(report.changed))
        row.refused += counted([(r.before, r.note) for r in report.left], "left")
        row.attempt("symmetry and fold", lambda: folded(row, converted, example))
    bare = row.attempt("remove_norm", lambda: bipolar.convert(model, remove_norm="all", example=example))
    if bare is not None and converted is not None:
        without_norms(row, bare, {(r.name, r.before) for r in converted.conversion_report})
        row.attempt("lsuv_", lambda: scaled(row, bare, example))
        row.attempt("probe", lambda: probed(row, bare, example))
    row.cells["seconds"] = f"{time.perf_counter() - start:.1f}"
    return row


def without_norms(row: Row, bare: nn.Module, activations: set[tuple[str, str]]) -> None:
    report = bipolar.conversion_report(bare)
    removed = sum(step["step"] == "norm" for step in report.steps)
    left = [r for r in report.left if (r.name, r.before) not in activations]
    row.cells["norms"], row.cells["removed"] = str(removed + len(left)), str(removed)
    row.refused += counted([(r.before, r.note) for r in left], "norms left")


def scaled(row: Row, model: nn.Module, example: Any) -> None:
    report = bipolar.lsuv_(model, example)
    done = [r for r in report if r.rounds]
    row.cells["lsuv_: scaled"] = f"{len(done)} of {len(report)}"
    row.refused += counted([(r.name, r.note) for r in report if not r.rounds], "not scaled")


def probed(row: Row, model: nn.Module, example: Any) -> None:
    found = bipolar.probe(model, example, loss=squares).warnings()
    row.cells["probe: warnings"] = str(len(found))
    row.refused += [f"probe: {first_sentence(found[0])}"] if found else []


def folded(row: Row, converted: nn.Module, example: Any) -> None:
    report = bipolar.symmetry(converted, example)
    refusals = {name: reason for name, reason in report.activations.items() if reason}
    row.cells["folded"] = f"{len(report.activations) - len(refusals)} of {len(report.activations)}"
    row.refused += counted(list(refusals.items()), "not folded")
    before = outputs_of(converted, example)
    plain = bipolar.fold(converted, example)
    back = bipolar.unfold(plain, example)
    flipped = sum(isinstance(module, ChannelActivation) for module in back.modules())
    row.cells["unfolded"] = f"{flipped} of {sum(isinstance(m, ChannelActivation) for m in converted.modules())}"
    for cell, other in (("fold: difference", plain), ("unfold: difference", back)):
        share = difference(before, outputs_of(other, example))
        row.cells[cell] = f"{share:.1g}"
        if not share <= ROUNDING:
            row.wrong = True
            row.refused.append(f"{cell}: more than rounding explains")


def versions() -> str:
    """The versions of the libraries, and whether timm has torchvision."""
    found = [f"transformers {transformers.__version__}"]
    try:
        found.append(f"timm {importlib.metadata.version('timm')}")
        importlib.metadata.version("torchvision")
    except importlib.metadata.PackageNotFoundError as error:
        found.append("without its torchvision parts" if error.name == "torchvision" else "no timm")
    return " ".join([found[0] + ",", *found[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md too")
    parser.add_argument("--only", default="", help="the models whose name contains this (default: all)")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of the models' libraries
    rows = []
    for name, case in MODELS.items():
        if arguments.only.lower() in name.lower():
            rows.append(through(name, case))
            print(name, *rows[-1].cells.values(), *rows[-1].refused, sep=" | ", flush=True)
    skipped, wrong = sum(row.skipped for row in rows), sum(row.wrong for row in rows)
    head = f"{machine()}; {versions()}; float32; {len(rows)} models, {skipped} skipped, {wrong} with an error."
    table = markdown_table(["model", *COLUMNS], [row.line(COLUMNS) for row in rows])
    notes = "\n".join(f"- {row.model}: {'; '.join(row.refused)}." for row in rows if row.refused)
    text = f"{head}\n\n{table}\n\nLeft, refused or failed, with the first reason of each kind:\n\n{notes}"
    print(text)
    if arguments.record:
        record("models", text)


if __name__ == "__main__":
    main()
