"""Models out of the directories of runs."""

import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from bipolar.lab.data.text import encode
from bipolar.lab.errors import UsageError
from bipolar.lab.training.checkpoints import best_of
from bipolar.lab.training.runs import load_config, stored
from bipolar.lab.training.text import TextConfig
from bipolar.models import CharRNN


def load_model(run: Path) -> CharRNN:
    """The best model of a run so far, or its last if it has not been validated yet."""
    config = load_config(TextConfig, run)
    saved = best_of(run)
    model = config.model.build(stored(run)["vocabulary"])
    model.load_state_dict(saved["model"])
    return model.eval()


def sample(model: CharRNN, prompt: str, length: int, temperature: float, seed: int) -> Iterator[str]:
    """Characters that the model goes on with, one after another; with a temperature of 0 always the likeliest."""
    if not 0 <= temperature < math.inf:
        raise UsageError(f"--temperature {temperature}: expected 0 or more")
    if length < 0:
        raise UsageError(f"--length {length}: expected 0 or more")
    if not 0 <= seed < 2**63:
        raise UsageError(f"--seed {seed}: expected 0 to 2**63 - 1")
    if not prompt:
        raise UsageError("--prompt: expected at least one character to start from")
    vocabulary = model.vocabulary
    if not isinstance(vocabulary, str):
        raise UsageError("the model does not know its characters, only their number")
    return _sampled(model, encode(prompt, vocabulary), vocabulary, length, temperature, seed)


def _sampled(
    model: CharRNN, prompt: Tensor, vocabulary: str, length: int, temperature: float, seed: int
) -> Iterator[str]:
    generator = torch.Generator().manual_seed(seed)
    state = None
    for token in prompt:
        logits, state = model.step(token, state)
    for _ in range(length):
        if temperature == 0:
            token = logits.argmax()
        else:
            above = (logits - logits.max()).double() / temperature  # none is above 0, however low the temperature
            token = torch.multinomial(above.softmax(-1), 1, generator=generator)[0]
        yield vocabulary[int(token)]
        logits, state = model.step(token, state)
