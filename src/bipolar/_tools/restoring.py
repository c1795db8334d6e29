"""Context managers that leave a model as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.parameter import is_lazy


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Restores the training flag of every module and the contents of every buffer, also after an error."""
    training = {module: module.training for module in model.modules()}
    buffers = [
        (module._buffers, name, buffer, None if is_lazy(buffer) else buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        for module, flag in training.items():
            module.training = flag
        with torch.no_grad():
            for home, name, buffer, before in buffers:
                if before is not None:
                    buffer.copy_(before)
                    home[name] = buffer  # the forward may have put another tensor there


@contextmanager
def evaluating(f: object) -> Iterator[None]:
    """Puts a module into evaluation mode, where it draws no random numbers; a plain function needs no change."""
    modules = [m for m in f.modules() if m.training] if isinstance(f, nn.Module) else []
    try:
        for module in modules:
            module.training = False
        yield
    finally:
        for module in modules:
            module.training = True
