"""Models out of the directories of runs."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch

from bipolar.lab.data import DataError
from bipolar.lab.data.text import encode
from bipolar.lab.training.checkpoints import best_of
from bipolar.lab.training.text import load_config
from bipolar.models import CharRNN


def load_model(run: Path) -> CharRNN:
    """The best model of a run so far, or its last if it has not been validated yet."""
    config = load_config(run)
    saved = best_of(run)
    vocabulary = json.loads((run / "config.json").read_text(encoding="utf-8"))["vocabulary"]
    model = config.model.build(vocabulary)
    model.load_state_dict(saved["model"])
    return model.eval()


def sample(model: CharRNN, prompt: str, length: int, temperature: float, seed: int) -> Iterator[str]:
    """Characters that the model goes on with, one after another; with a temperature of 0 always the likeliest."""
    if temperature < 0:
        raise DataError(f"--temperature {temperature}: expected at least 0")
    if not prompt:
        raise DataError("--prompt: expected at least one character to start from")
    vocabulary = model.vocabulary
    if not isinstance(vocabulary, str):
        raise DataError("the model does not know its characters, only their number")
    generator = torch.Generator().manual_seed(seed)
    state = None
    for token in encode(prompt, vocabulary):
        logits, state = model.step(token, state)
    for _ in range(length):
        if temperature == 0:
            token = logits.argmax()
        else:
            token = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[0]
        yield vocabulary[int(token)]
        logits, state = model.step(token, state)
