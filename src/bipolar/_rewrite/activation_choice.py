"""Choice of what takes the place of an activation, and where its channels are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from bipolar._activations.catalogue import of_class, of_plain_name
from bipolar._activations.channelwise import ChannelActivation
from bipolar._activations.patterns import Pattern
from bipolar._activations.recognition import RecognisedActivation
from bipolar._activations.registry import get_activation
from bipolar._rnn import StackedRNN
from bipolar._symmetry.channels import channel_dim
from bipolar._symmetry.example import example_for
from bipolar._symmetry.recording import ActivationCall, Recording, Site
from bipolar._symmetry.trace import record

#: Replacements by the class of an activation module or the name of a function: a name, a class, a function that makes a
#: module from ``dim`` and ``pattern``, or None to leave it as it is.
Activations: TypeAlias = Mapping[type[nn.Module] | str, str | Callable[..., nn.Module] | None]

#: Recipes of training without norms, as the laboratory names them.
Recipe: TypeAlias = Literal["paper", "fast"]
#: Activations whose place ELU takes by the fast recipe.
HARD = ("relu", "relu6", "leaky_relu")


class UnknownChannelsError(ValueError):
    """An example does not show which dimension the channels of an activation are in; the message says what to do."""


class ActivationChoice:
    """What takes the place of each activation."""

    def __init__(self, activations: Literal["auto"] | Activations, pattern: Pattern, recipe: Recipe = "paper") -> None:
        self.activations, self.pattern, self.recipe = activations, pattern, recipe
        if activations != "auto":
            _check(activations)

    def names(self, kind: type[nn.Module]) -> bool:
        """Whether a class is in the mapping."""
        return self.activations != "auto" and kind in self.activations

    def made(
        self,
        recognised: RecognisedActivation | None,
        kind: type[nn.Module] | None,
        dim: Callable[[], int],
        name: str,
        exposed: bool = False,
    ) -> tuple[nn.Module | None, str]:
        """The replacement of an activation; or None, and the reason. ``dim`` is called if it is needed."""
        if self.activations == "auto":
            if recognised is not None and recognised.channels is not None:
                return None, "bipolar already"
            if recognised is None:
                return None, "not of the ReLU family"
            if self.recipe == "fast" and recognised.name in HARD:
                recognised = RecognisedActivation("elu", {"inplace": recognised.inplace})
            return recognised.bipolar(dim(), self.pattern, inplace=False if exposed else None), ""
        keys = [key for key in (kind, *_keys(recognised)) if key in self.activations]
        if not keys:
            return None, "not in the mapping"
        wanted = self.activations[keys[0]]
        if wanted is None:
            return None, "left, as the mapping says"
        try:
            made = self._of(wanted, dim)
        except TypeError as error:
            raise TypeError(
                f"activations: the replacement given for {name!r} is called with dim and pattern: {error}"
            ) from None
        if not isinstance(made, nn.Module):
            raise TypeError(f"activations: the replacement given for {name!r} made {made!r}, not a module")
        return made, ""

    def _of(self, wanted: str | Callable[..., nn.Module], dim: Callable[[], int]) -> Any:
        if isinstance(wanted, str):
            options = {} if of_plain_name(wanted.lower()) else {"dim": dim(), "pattern": self.pattern}
            return get_activation(wanted, **options)
        is_plain = isinstance(wanted, type) and of_class(wanted) is not None
        if is_plain and not issubclass(wanted, ChannelActivation):  # type: ignore[arg-type]  # it is a class
            return wanted()
        return wanted(dim=dim(), pattern=self.pattern)


def _check(activations: Mapping[Any, Any]) -> None:
    for key, wanted in activations.items():
        if not isinstance(key, str) and not (isinstance(key, type) and issubclass(key, nn.Module)):
            said = f"; say {key.__name__!r}" if callable(key) and hasattr(key, "__name__") else ""
            raise TypeError(
                f"activations: expected classes of modules or names of functions as keys, got {key!r}{said}"
            )
        if isinstance(wanted, nn.Module):
            raise TypeError(
                f"activations: the replacement of {key!r} is one module, {wanted!r}, for all places; give its class, "
                "or a function of dim and pattern that makes one"
            )


def _keys(recognised: RecognisedActivation | None) -> Sequence[Any]:
    """The keys, beside its class, under which a mapping may have an activation."""
    if recognised is None:
        return ()
    if recognised.channels is not None:
        return (f"b{recognised.name}",)
    return (recognised.name, recognised.plain_class)


class ChannelPlaces:
    """The dimension of an activation's channels, as far as it is known."""

    def __init__(self, model: nn.Module, dim: int | None, recording: Recording | None) -> None:
        self._model, self._dim, self._recording = model, dim, recording
        self._has_example = recording is not None
        self._example_was_given = recording is not None

    def of(self, name: str, calls: Sequence[ActivationCall] = ()) -> int:
        """The dimension for a module: given, shown by its calls on an example, or told by the layers around it."""
        if self._dim is not None:
            return self._dim
        found = channel_dim(calls) if calls else None
        if found is None and self._has_example:
            found = self._shown(name)
        for source in (self._told_by_a_sequence, self._told_by_all_layers, self._shown):
            if found is None:
                found = source(name)
        if found is None and self._example_was_given:
            known = "does not tell" if calls else "does not run it, and the model's layers do not tell"
            raise UnknownChannelsError(
                f"the example {known} whether its channels are in dimension 1 or in the last; say dim=1 or dim=-1"
            )
        if found is None:
            raise ValueError(
                f"example: neither the layers of {type(self._model).__name__} nor an input that could be made up tell "
                f"whether the channels of {name or 'the model'} are in dimension 1 or in the last; give an input as "
                "example, or say dim=1 or dim=-1"
            )
        return found

    def _told_by_a_sequence(self, name: str) -> int | None:
        """The dimension that the layer before it gives out, where both are in an ``nn.Sequential``."""
        path = name.split(".")
        for depth in range(len(path) - 1, -1, -1):
            parent = self._model.get_submodule(".".join(path[:depth])) if name else self._model
            if type(parent) is not nn.Sequential:
                return None
            before = list(parent._modules)[: list(parent._modules).index(path[depth])] if name else []
            for sibling in reversed(before):
                module = parent.get_submodule(sibling)
                dims = _dims_of_layers(module)
                if dims or not type(module).__module__.startswith("torch.nn."):
                    return dims.pop() if len(dims) == 1 else None
        return None

    def _told_by_all_layers(self, name: str) -> int | None:
        dims = _dims_of_layers(self._model)
        return dims.pop() if len(dims) == 1 else None

    def _shown(self, name: str) -> int | None:
        """The dimension by an example, which is made up where there is none."""
        if self._recording is None and not self._has_example:
            self._has_example = True
            try:
                self._recording = record(self._model, example_for(self._model, None))
            except Exception:  # whatever a model says to an input that is made up
                return None
        recording = self._recording
        if recording is None:
            return None
        given = [args[0] for args, _ in recording.arguments.get(name, ()) if args and isinstance(args[0], Tensor)]
        plain = RecognisedActivation("")
        calls = [ActivationCall(Site(name), plain, -1, recording.of(x), x.shape) for x in given]
        return channel_dim(calls) if calls else None


def _dims_of_layers(model: nn.Module) -> set[int]:
    """The channel dimensions of what the layers of a model give out."""
    last = (nn.Linear, nn.Embedding, nn.Bilinear, nn.RNNBase, nn.MultiheadAttention, StackedRNN)
    found = set()
    for module in model.modules():
        if isinstance(module, _ConvNd):
            found.add(1)
        elif isinstance(module, last):
            found.add(-1)
    return found
