"""Text written by a character-level language model."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from bipolar.lab.data.text import encode
from bipolar.lab.errors import UsageError
from bipolar.models import CharRNN


def sample(model: CharRNN, prompt: str, length: int, temperature: float, seed: int) -> Iterator[str]:
    """The characters that a model writes after a prompt, one by one; with a temperature of 0 always the likeliest."""
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
            above = (logits - logits.max()).double() / temperature  # at most 0: cannot overflow at a low temperature
            token = torch.multinomial(above.softmax(-1), 1, generator=generator)[0]
        yield vocabulary[int(token)]
        logits, state = model.step(token, state)
