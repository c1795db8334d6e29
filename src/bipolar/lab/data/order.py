"""The order of a data set's images in an epoch: at random, or such that a batch is no fair sample of the classes."""

import torch
from torch import Tensor


def shuffled(labels: Tensor, generator: torch.Generator, batch_size: int, classes: int | None = None) -> Tensor:
    """Indices of all images in random order.

    With ``classes``, the classes are dealt anew into groups of so many, and the batches, in random order, each have
    images of one group; only where the images of a group do not fill its last batch does the next group begin in it.
    """
    order = torch.randperm(len(labels), generator=generator)
    if classes is None:
        return order
    dealt = torch.randperm(int(labels.max()) + 1, generator=generator) // classes
    order = order[dealt[labels[order].cpu()].argsort(stable=True)]
    whole = len(order) // batch_size * batch_size
    batches = order[:whole].view(-1, batch_size)
    batches = batches[torch.randperm(len(batches), generator=generator)]
    return torch.cat([batches.flatten(), order[whole:]])
