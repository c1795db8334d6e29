"""Writing: text from any model that reads one character after the other."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor


class Writer(ABC):
    """A model of characters that can write.

    It has the characters it knows in ``vocabulary``, a tensor ``embedding`` on its device, and :meth:`step`.
    """

    vocabulary: str | int
    embedding: Tensor

    @abstractmethod
    def step(self, token: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The logits after one more character, without autograd or dropout, and the state."""

    def reader(self) -> Callable[[Tensor], Tensor]:
        """A function that takes one character after the other, of shape (1), and returns the logits after it."""
        state: Tensor | None = None

        def read(token: Tensor) -> Tensor:
            nonlocal state
            logits, state = self.step(token, state)
            return logits

        return read

    def generate(
        self,
        prompt: str,
        length: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> str:
        r"""The text that the model writes after a prompt.

        Each character is drawn from :math:`\text{softmax}(z / \tau)` over the logits :math:`z` after all before it.
        There is no dropout, whatever the mode of the model.

        Args:
            prompt: the text to continue, at least one character; only the continuation is returned
            length: the number of characters to write
            temperature: :math:`\tau`: less than 1 for likelier characters, 0 for the likeliest. Default: 1
            top_k: draw from so many of the likeliest characters only. Default: from all
            generator: the generator to draw with. Default: torch's own

        Examples::

            >>> model = bipolar.models.CharRNN("abc ", hidden_size=32, num_layers=8)
            >>> text = model.generate("a cab ", 10, temperature=0.8, generator=torch.Generator().manual_seed(1))
            >>> len(text), set(text) <= set("abc ")
            (10, True)
        """
        return "".join(self.stream(prompt, length, temperature=temperature, top_k=top_k, generator=generator))

    def stream(
        self,
        prompt: str,
        length: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Iterator[str]:
        """As :meth:`generate`, one character after the other, as soon as it is drawn."""
        if not isinstance(self.vocabulary, str):
            raise ValueError(
                f"vocabulary: the model knows the number of its characters only, {self.vocabulary}; make it with them"
            )
        if not isinstance(prompt, str) or not prompt:
            raise ValueError(f"prompt: expected at least one character to start from, got {prompt!r}")
        unknown = [symbol for symbol in prompt if symbol not in self.vocabulary]
        if unknown:
            raise ValueError(f"prompt: the symbol {unknown[0]!r} is not in the model's vocabulary, {self.vocabulary!r}")
        if length < 0:
            raise ValueError(f"length: expected 0 or more, got {length}")
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature: expected 0 or more, got {temperature}")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k: expected at least 1, got {top_k}")
        return self._written(self.vocabulary, prompt, length, temperature, top_k, generator)

    def _written(
        self,
        vocabulary: str,
        prompt: str,
        length: int,
        temperature: float,
        top_k: int | None,
        generator: torch.Generator | None,
    ) -> Iterator[str]:
        device, read = self.embedding.device, self.reader()
        for symbol in prompt:
            logits = read(torch.tensor([vocabulary.index(symbol)], device=device))
        for _ in range(length):
            token = _drawn(logits[0], temperature, top_k, generator)
            yield vocabulary[int(token)]
            logits = read(token)


def symbols_of(vocabulary: str | int) -> int:
    """The number of characters of a vocabulary, which has each of them once."""
    symbols = vocabulary if isinstance(vocabulary, int) else len(vocabulary)
    if symbols < 1 or (isinstance(vocabulary, str) and len(set(vocabulary)) != symbols):
        raise ValueError(f"vocabulary: expected different characters, or their number, got {vocabulary!r}")
    return symbols


def _drawn(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator | None) -> Tensor:
    """The index of a character, of shape (1)."""
    if temperature == 0:
        return logits.argmax(keepdim=True)
    above = (logits - logits.max()).double() / temperature  # at most 0: cannot overflow at a low temperature
    if top_k is not None and top_k < above.numel():
        likeliest = above.topk(top_k)
        above = torch.full_like(above, -math.inf).scatter(0, likeliest.indices, likeliest.values)
    device = above.device if generator is None else generator.device
    return torch.multinomial(above.softmax(-1).to(device), 1, generator=generator).to(logits.device)
