"""Images in memory, with their classes."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pictures:
    """Images as bytes, (number, height, width, channels), and the class of each."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int | None) -> "Pictures":
        return self if count is None else Pictures(self.images[:count], self.labels[:count])

    def to(self, device: torch.device) -> "Pictures":
        return Pictures(self.images.to(device), self.labels.to(device))
