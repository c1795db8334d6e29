"""The base class of activation modules that treat their channels differently."""

from torch import nn

from bipolar._activations.patterns import Pattern, check_pattern


class ChannelActivation(nn.Module):
    """An activation module that knows its channel dimension and the pattern of flipped channels."""

    #: The attributes that the representation shows first.
    shown: tuple[str, ...] = ()

    def __init__(self, dim: int, pattern: Pattern, inplace: bool = False) -> None:
        super().__init__()
        check_pattern(pattern)
        self.dim = dim
        self.pattern: Pattern = pattern
        self.inplace = inplace

    def extra_repr(self) -> str:
        parts = [f"{name}={getattr(self, name)}" for name in (*self.shown, "dim")]
        if self.pattern != "alternate":
            parts.append(f"pattern={self.pattern}")
        if self.inplace:
            parts.append("inplace=True")
        return ", ".join(parts)


def check_function(f: object) -> None:
    if not callable(f):
        raise TypeError(f"f: expected a function or module, got {f!r}; names are for get_activation")
