"""CharRNN: sizes, states, files."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import bipolar
from bipolar._tools.choices import CellName
from bipolar.models import CharRNN


@pytest.mark.parametrize(
    ("layers", "width", "budget"),
    [
        (4, 760, 4.75e6),
        (8, 540, 4.75e6),
        (16, 385, 4.75e6),
        (24, 314, 4.75e6),
        (36, 256, 4.75e6),
        (48, 222, 4.75e6),
        (144, 128, 4.75e6),
        (36, 474, 16.2e6),
    ],
)
def test_the_papers_widths_are_within_two_percent_of_their_budget(layers: int, width: int, budget: float) -> None:
    with torch.device("meta"):
        model = CharRNN(27 if width == 474 else 50, width, layers)
    assert abs(model.num_parameters / budget - 1) < 0.02


@pytest.mark.parametrize("cell", ["stack", "lstm", "gru", "rnn"])
def test_for_budget_comes_closest(cell: CellName) -> None:
    budget = 20_000
    model = CharRNN.for_budget(budget, num_layers=3, vocab="abcdef", cell=cell)
    width = model.decoder.in_features
    sizes = [CharRNN("abcdef", w, 3, cell=cell).num_parameters for w in (width - 1, width, width + 1)]
    assert model.num_parameters == sizes[1]
    assert min(sizes, key=lambda size: abs(size - budget)) == sizes[1]


@pytest.mark.parametrize("cell", ["stack", "lstm", "gru", "rnn"])
def test_windows_and_steps_make_a_pass(cell: CellName) -> None:
    model = CharRNN("abcde", 16, 5, cell=cell, dropout=0.2).eval()
    tokens = torch.randint(5, (7, 3))
    whole, last = model(tokens)
    assert whole.shape == (7, 3, 5)
    first, state = model(tokens[:4])
    second, state = model(tokens[4:], state)
    torch.testing.assert_close(torch.cat((first, second)), whole)
    torch.testing.assert_close(state, last)
    state = None
    for t in range(7):
        logits, state = model.step(tokens[t], state)
        torch.testing.assert_close(logits, whole[t], rtol=1e-4, atol=1e-5)


def test_the_embedding_is_fixed_and_the_initialisation_the_papers() -> None:
    model = CharRNN(50, 64, 8)
    assert "embedding" not in dict(model.named_parameters())
    assert "embedding" in model.state_dict()
    report = model.initialise()
    assert report is not None
    assert all(abs(row.after - 1) <= 1e-3 for row in report)
    assert CharRNN(50, 64, 2, cell="lstm").initialise() is None


def test_files(tmp_path: Path) -> None:
    model = CharRNN("abc\n é", 16, 4, nonlinearity="brelu", dropout=0.1, skip_every=2).eval()
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {"model.safetensors", "config.json"}
    twin = CharRNN.from_pretrained(tmp_path).eval()
    assert twin.vocabulary == "abc\n é"
    assert twin.rnn.nonlinearity == "brelu"
    tokens = torch.randint(6, (5, 2))
    assert torch.equal(model(tokens)[0], twin(tokens)[0])


@pytest.mark.parametrize("layers", [2, 6])
def test_a_file_of_another_shape_is_refused(tmp_path: Path, layers: int) -> None:
    CharRNN("abc", 8, 4).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | {"num_layers": layers}))
    with pytest.raises(RuntimeError, match=r"Missing|Unexpected|missing|unexpected"):
        CharRNN.from_pretrained(tmp_path)
    assert CharRNN.from_pretrained(tmp_path, strict=False).rnn.num_layers == layers


@pytest.mark.parametrize("cell", ["stack", "lstm"])
def test_a_step_knows_no_dropout(cell: CellName) -> None:
    model = CharRNN("abc", 8, 3, cell=cell, dropout=0.5).train()
    one, two = (model.step(torch.tensor([0, 1]))[0] for _ in range(2))
    assert torch.equal(one, two)
    assert model.rnn.training


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden_size": 0}, "hidden_size: expected at least 1, got 0"),
        ({"cell": "qrnn"}, "cell: expected one of 'stack', 'lstm', 'gru', 'rnn', got 'qrnn'"),
        ({"vocabulary": "aa"}, "vocabulary: expected different characters"),
        ({"vocabulary": 0}, "vocabulary: expected different characters"),
        ({"cell": "lstm", "block_dropout": 0.1}, "block_dropout: torch's own 'lstm' has dropout between its"),
        ({"cell": "lstm", "dropout": 1.0}, r"dropout: expected a rate in \[0, 1\), got 1.0; the cell is 'lstm'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CharRNN(**({"vocabulary": "abc", "hidden_size": 8, "num_layers": 2} | arguments))


def test_it_is_where_the_documentation_says() -> None:
    assert bipolar.models.CharRNN is CharRNN


class TestGeneration:
    @pytest.fixture
    def model(self) -> CharRNN:
        torch.manual_seed(3)
        return CharRNN("abcd ", 8, 2)

    def test_a_seed_decides(self, model: CharRNN) -> None:
        one, two, other = (
            model.generate("a b", 40, temperature=3.0, generator=torch.Generator().manual_seed(seed))
            for seed in (1, 1, 2)
        )
        assert one == two != other
        assert len(one) == 40
        assert set(one) <= set(str(model.vocabulary))

    def test_each_character_follows_from_those_before_it(self, model: CharRNN) -> None:
        """The likeliest one, by a pass over the whole text."""
        text = model.generate("a b", 10, temperature=0)
        tokens = torch.tensor(["abcd ".index(symbol) for symbol in "a b" + text])
        logits, _ = model.eval()(tokens)
        assert text == "".join("abcd "[index] for index in logits[2:-1].argmax(1))
        assert model.generate("a b", 10, temperature=1e-40) == text
        assert model.generate("a b", 10, temperature=5.0, top_k=1) == text

    def test_shares_of_the_likeliest(self, model: CharRNN) -> None:
        logits, _ = model.step(torch.tensor(2))
        two = logits.topk(2)
        generator = torch.Generator().manual_seed(0)
        drawn = [model.generate("c", 1, temperature=0.5, top_k=2, generator=generator) for _ in range(400)]
        assert set(drawn) == {"abcd "[index] for index in two.indices}
        share = drawn.count("abcd "[two.indices[0]]) / len(drawn)
        assert share == pytest.approx((two.values / 0.5).softmax(0)[0].item(), abs=0.08)
        assert len(model.generate("c", 30, top_k=99)) == 30

    def test_neither_the_mode_nor_random_numbers_of_others_change(self, model: CharRNN) -> None:
        before = torch.get_rng_state()
        model.train().generate("c", 5, generator=torch.Generator())
        assert model.training
        assert torch.equal(torch.get_rng_state(), before)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"prompt": "é"}, "prompt: the symbol 'é' is not in the model's vocabulary"),
            ({"prompt": ""}, "prompt: expected at least one character"),
            ({"prompt": 3}, "prompt: expected at least one character to start from, got 3"),
            ({"length": -5}, "length: expected 0 or more, got -5"),
            ({"temperature": -1.0}, "temperature: expected 0 or more, got -1.0"),
            ({"temperature": math.nan}, "temperature: expected 0 or more, got nan"),
            ({"top_k": 0}, "top_k: expected at least 1, got 0"),
        ],
    )
    def test_bad_arguments(self, model: CharRNN, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            model.stream(**{"prompt": "a", "length": 3} | options)

    def test_a_model_without_characters(self) -> None:
        with pytest.raises(ValueError, match="vocabulary: the model knows the number of its characters only, 5"):
            CharRNN(5, 8, 2).generate("a", 3)
