"""Evaluation over a whole text, in one stream or several, and dynamic evaluation, each against a slow twin."""

import math
import re
from pathlib import Path

import pytest
import torch

from bipolar._tools.choices import CellName
from bipolar.lab.cli import main
from bipolar.lab.data import load_text
from bipolar.lab.errors import UsageError
from bipolar.lab.training import progress
from bipolar.lab.training.text import Dynamic, TextModel, evaluate_text, load_model, train_text
from bipolar.lab.training.text.dynamic import dynamic_bpc, rms_of_gradients
from bipolar.lab.training.text.whole import LONG, WholeText, bpc_of
from bipolar.models import CharRNN
from tests.helpers.text_runs import text_config

#: The loss of a uniform guess of one of the five symbols here.
UNIFORM = math.log(5)


def a_model(cell: CellName = "stack") -> CharRNN:
    torch.manual_seed(1)
    model = CharRNN(5, 8, 3, cell=cell, dropout=0.5).double().eval()
    model.initialise(generator=torch.Generator().manual_seed(1))
    return model


def a_text(length: int) -> torch.Tensor:
    return torch.randint(5, (length,), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)


def bits_one_by_one(model: CharRNN, text: torch.Tensor) -> list[float]:
    """The bits of every character but the first, read one by one."""
    bits, state = [], None
    for now, then in zip(text.tolist(), text.tolist()[1:], strict=False):
        logits, state = model.step(torch.tensor(now), state)
        bits.append(-float(logits.log_softmax(-1)[then]) / math.log(2))
    return bits


class TestWholeText:
    @pytest.mark.parametrize("cell", ["stack", "lstm"])
    def test_one_stream_is_every_character_after_all_before_it(self, cell: CellName) -> None:
        model, text = a_model(cell), a_text(2 * LONG + 123)  # the last window is shorter
        bits = bits_one_by_one(model, text)
        assert len(bits) == len(text) - 1
        assert bpc_of(model, WholeText(text)) == pytest.approx(sum(bits) / len(bits), rel=1e-9)

    def test_several_streams_begin_anew(self) -> None:
        model, text = a_model(), a_text(104)
        pieces = [bits_one_by_one(model, text[start : start + 35]) for start in (0, 34, 68)]  # one character is left
        expected = sum(map(sum, pieces)) / (3 * 34)
        assert bpc_of(model, WholeText(text, 3)) == pytest.approx(expected, rel=1e-9)

    def test_too_short(self) -> None:
        with pytest.raises(UsageError, match="fox: 3 characters are less than two for each of 4 streams"):
            WholeText(a_text(3), 4, "fox")


class TestDynamic:
    @pytest.mark.parametrize("cell", ["stack", "lstm"])
    @pytest.mark.parametrize("decay", [0.0, 0.1, 3.0])
    def test_the_formula(self, cell: CellName, decay: float) -> None:
        """Parameter by parameter, with autograd through the definition of the loss, as the paper writes it."""
        model, text, eta, epsilon = a_model(cell), a_text(47), 0.01, 1e-3
        training = [(a_text(21).view(7, 3).long(), a_text(42)[21:].view(7, 3).long()) for _ in range(4)]
        settings = Dynamic(eta, decay, epsilon, segment=10)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        found = dynamic_bpc(model, WholeText(text), training, settings, uniform=UNIFORM)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

        r, theta = rms_of_gradients(model, training), [p.detach().clone() for p in model.parameters()]
        mean = torch.cat([part.flatten() for part in r]).mean()
        bits, state, position = 0.0, None, 0
        while position < len(text) - 1:
            end = min(position + 10, len(text) - 1)
            x, y = text[position:end].long(), text[position + 1 : end + 1].long()
            model.zero_grad()
            logits, state = model(x, state)
            nats = -logits.log_softmax(-1)[torch.arange(len(y)), y]
            bits += float(nats.sum().detach()) / math.log(2)
            nats.mean().backward()
            state = state.detach()
            with torch.no_grad():
                for p, start, size in zip(model.parameters(), theta, r, strict=True):
                    assert p.grad is not None
                    back = torch.minimum(decay * size / mean, torch.ones_like(size))
                    p.copy_(p - eta * p.grad / (size + epsilon) + back * (start - p))
            position = end
        assert found == pytest.approx(bits / (len(text) - 1), rel=1e-9)

    def test_the_magnitudes_of_gradients(self) -> None:
        model = a_model()
        x, y = a_text(84).view(12, 7).long().split(6), a_text(91)[7:].view(12, 7).long().split(6)
        squares, state = torch.zeros_like(model.decoder.weight), None
        for part, target in zip(x, y, strict=True):
            model.zero_grad()
            logits, state = model(part, state)
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
            state = state.detach()
            assert model.decoder.weight.grad is not None
            squares += model.decoder.weight.grad**2
        names = [name for name, _ in model.named_parameters()]
        found = rms_of_gradients(model, [*zip(x, y, strict=True)])[names.index("decoder.weight")]
        torch.testing.assert_close(found, (squares / 2).sqrt())

    def test_a_rate_of_zero_is_static(self) -> None:
        model, text = a_model(), WholeText(a_text(60))
        training = [(a_text(10)[:, None].long(), a_text(11)[1:, None].long())]
        assert dynamic_bpc(model, text, training, Dynamic(0.0), uniform=UNIFORM) == pytest.approx(
            bpc_of(model, text), rel=1e-9
        )

    def test_it_learns_what_repeats_and_a_rate_can_be_too_high(self) -> None:
        model, text = a_model(), WholeText(torch.arange(5, dtype=torch.uint8).repeat(200))
        training = [(a_text(50)[:, None].long(), a_text(51)[1:, None].long())]
        static = bpc_of(model, text)
        assert dynamic_bpc(model, text, training, Dynamic(3e-3, epsilon=0.1), uniform=UNIFORM) < 0.8 * static
        for rate, problem in ((1e30, "not finite"), (1.0, "more than 10 times that of a uniform guess")):
            with pytest.raises(UsageError, match=rf"--dynamic {re.escape(f'{rate:g}')}: the loss is {problem}; choose"):
                dynamic_bpc(model, text, training, Dynamic(rate), uniform=UNIFORM)
        assert bpc_of(model, text) == static


def test_a_run(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    train_text(text_config(corpus, run, model=TextModel(2, 8, dropout=0.3), max_steps=30), show=False)
    model, text = load_model(run), load_text(str(corpus)).test
    bits = bits_one_by_one(model, text)
    expected = sum(bits) / len(bits)
    assert evaluate_text(run, "test", batch_size=1)["test_bpc"] == pytest.approx(expected, rel=1e-5)
    main(["eval", str(run), "--batch-size", "1"])
    assert capsys.readouterr().out == f"test_bpc {expected:.4f}\n"
    main(["eval", str(run), "--dynamic", "1e-3", "--split", "valid"])
    assert capsys.readouterr().out.startswith("dynamic_valid_bpc ")
    main(["eval", str(run), "--batch-size", "1", "--max-characters", "100"])
    assert capsys.readouterr().out == f"test_bpc_of_first_100 {sum(bits[:99]) / 99:.4f}\n"
    main(["eval", str(run), "--dynamic", "1", "--max-characters", "100", "--segment", "99"])  # learns after the last
    assert capsys.readouterr().out == f"dynamic_test_bpc_of_first_100 {sum(bits[:99]) / 99:.4f}\n"
    for options, message in (
        ("--batch-size 0", "--batch-size 0: expected at least 1"),
        ("--batch-size 2 --dynamic 1e-3", "--batch-size 2: dynamic evaluation is in one stream"),
        ("--dynamic -1", "--dynamic -1.0: expected 0 or more"),
        ("--decay 0.1", "--decay 0.1: a setting of dynamic evaluation; add --dynamic"),
        ("--segment 10", "--segment 10: a setting of dynamic evaluation; add --dynamic"),
        ("--dynamic 1e-3 --segment 0", "--segment 0: expected 1 or more"),
        ("--max-characters 10", "--max-characters 10: for a text read in streams; add --dynamic or --batch-size"),
        ("--batch-size 1 --max-characters 1", f"--max-characters 1: expected 2 to {len(text)}, the length of test"),
        ("--dynamic 1 --max-characters 1000000", f"--max-characters 1000000: expected 2 to {len(text)}, the length"),
    ):
        with pytest.raises(SystemExit, match=message):
            main(["eval", str(run), *options.split()])


def test_progress_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.0, 10.0, 40.0, 50.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    assert [*progress.followed(range(4), "evaluation")] == [0, 1, 2, 3]
    assert capsys.readouterr().err == "evaluation: 2 of 4, about 40 s to go\n"
