"""Weights whose norms stay where they are while an optimiser trains them."""

import fnmatch
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd
from torch.nn.utils.parametrize import ParametrizationList

from bipolar._tools.table import text_table
from bipolar.optim._gains import Gains
from bipolar.optim._roles import Part, parts_of

By: TypeAlias = Literal["filter", "matrix"]

#: The entries of an optimiser's state dict that hold the norms, and the gains if there are any.
_KEY, _GAINS = "pinned_norms", "pinned_gains"


@dataclass(frozen=True)
class PinRow:
    """A parameter, the number of its norms that are kept (0 if it was left out), and a note, the reason."""

    name: str
    kind: str
    norms: int
    note: str = ""


@dataclass(frozen=True)
class _Pinned:
    """A weight, and the dimensions over which its norms are taken."""

    name: str
    weight: nn.Parameter
    dims: tuple[int, ...]

    def norms(self) -> Tensor:
        dtype = torch.promote_types(self.weight.dtype, torch.float32)
        norms: Tensor = torch.linalg.vector_norm(self.weight.detach(), dim=self.dims, keepdim=True, dtype=dtype)
        return norms


class Pin:
    """The handle that :func:`pin` returns: its rows say what is pinned and what is not; it prints as a table.

    Attributes:
        rows: one :class:`PinRow` for each parameter, in the order of the model
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        pinned: list[_Pinned],
        rows: list[PinRow],
        note: str,
        gain: float | None = None,
    ) -> None:
        self.rows = rows
        self._note = note
        self._pinned = pinned
        self._norms = [each.norms() for each in pinned]
        self._gains = None if gain is None else Gains(self._norms, gain)
        self._handles = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
            optimizer.register_state_dict_post_hook(self._save),
            optimizer.register_load_state_dict_pre_hook(self._load),
        ]

    @property
    def pinned(self) -> list[str]:
        """The names of the weights whose norms are kept."""
        return [row.name for row in self.rows if row.norms]

    def remove(self) -> None:
        """Lets go of the weights; the optimiser is as it was without the pin."""
        for handle in self._handles:
            handle.remove()

    @torch.no_grad()
    def _before_step(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._gains is None:
            return
        if any(value is not None for value in (*args[1:], *kwargs.values())):  # the first is the optimiser
            raise RuntimeError("pin: gains are learned from gradients that are there before the step; give no closure")
        weights, dims = [each.weight for each in self._pinned], [each.dims for each in self._pinned]
        # a scaler leaves it to fused optimisers to scale gradients back, and to skip a step with infinite ones
        scale, found = getattr(optimizer, "grad_scale", None), getattr(optimizer, "found_inf", None)
        self._gains.look(weights, dims, scale, skip=found is not None and bool(found))

    @torch.no_grad()
    def _after_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        groups = {p: group for group in optimizer.param_groups for p in group["params"]}
        weights: list[Tensor] = [each.weight for each in self._pinned]
        if not groups.keys() >= set(weights):  # as after fold(model, optimizer=optimizer)
            raise RuntimeError("pin: the optimiser trains other parameters by now; remove() the pin and pin these")
        kept = self._norms
        if self._gains is not None:
            self._gains.move([float(groups[weight]["lr"]) for weight in weights])
            kept = list(torch._foreach_mul(kept, self._gains.values))
        norms = [each.norms() for each in self._pinned]
        torch._foreach_clamp_min_(norms, torch.finfo(torch.float32).tiny)  # a filter that a step made zero stays zero
        torch._foreach_mul_(weights, list(torch._foreach_div(kept, norms)))

    def _save(self, _: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        saved = state_dict | {_KEY: {each.name: norms for each, norms in zip(self._pinned, self._norms, strict=True)}}
        return saved if self._gains is None else saved | {_GAINS: self._gains.state_dict(self._names)}

    @property
    def _names(self) -> list[str]:
        return [each.name for each in self._pinned]

    def _load(self, _: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
        saved = state_dict.get(_KEY)
        if saved is None:
            warnings.warn(
                "state_dict: it was saved without a pin; the norms are kept that the weights have now", stacklevel=4
            )
            self._norms = [each.norms() for each in self._pinned]
            self._gains = None if self._gains is None else Gains(self._norms, self._gains.rate)
            return
        if (self._gains is None) != (_GAINS not in state_dict):
            raise ValueError("state_dict: it was saved with gains or without; pin with gain as when it was saved")
        for each, norms in zip(self._pinned, self._norms, strict=True):
            if each.name not in saved or saved[each.name].shape != norms.shape:
                raise ValueError(
                    f"state_dict: it has no norms for {each.name!r}; pin the same weights as when it was saved"
                )
        if self._gains is not None:
            self._gains.load_state_dict(self._names, state_dict[_GAINS])
        self._norms = [
            saved[each.name].detach().clone().to(norms) for each, norms in zip(self._pinned, self._norms, strict=True)
        ]

    def __iter__(self) -> Iterator[PinRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> PinRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def __str__(self) -> str:
        table = text_table(["parameter", "of", "norms kept", "note"], [(r.name, r.kind, r.norms, r.note) for r in self])
        return "\n".join(filter(None, [table, self._note]))


def pin(
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    *,
    by: By = "filter",
    gain: float | None = None,
    last: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] = (),
    lsuv_report: Any = None,
) -> Pin:
    r"""Keeps the norms of weights where they are now, after every step of an optimiser.

    .. math::
        w_i \leftarrow w_i \; \frac{\lVert w_i(0) \rVert}{\lVert w_i \rVert}

    for each filter :math:`w_i` of a convolution, which is each row of a linear or recurrent layer, or for each weight
    as a whole. :func:`~bipolar.lsuv_` chooses the norms that keep a signal alive, a pin keeps them: training then turns
    the filters and does not stretch them, and a network without norms bears rates at which it would diverge. Weight
    decay has no effect on what is pinned.

    With ``gain`` every norm gets a factor of its own that is learned, apart from the direction of its filter: Adam
    moves it by its gradient :math:`\langle \partial L / \partial w_i, w_i \rangle / g_i`, as the gain of a norm layer.

    Biases and other vectors, embeddings, the last layer, and the parameters of norms are left out; so is what is
    frozen, tied, parametrised, not the optimiser's, or has a norm of zero. The report says so for each.

    The pin is a hook of the optimiser, any one of torch, with gradient scalers and, unless ``gain`` is given, closures
    too. Its state dict carries the norms along: pin before you load it, and training goes on as if it had never
    stopped. With distributed data parallel every process does the same to the same weights.

    Args:
        optimizer: the optimiser that trains the model
        model: the model, initialised, within ``DistributedDataParallel`` and ``torch.compile`` too
        by: whose norm is kept, of each ``"filter"`` (a row of a matrix) or of the ``"matrix"``. Default: ``"filter"``
        gain: the rate of learned gains, as a share of the rate of their weight, such as 0.2. Default: no gains
        last: the last layers, as for :func:`bipolar.optim.groups`
        exclude: names of parameters to leave out, with wildcards. Default: none
        lsuv_report: what LSUV scaled: its report, or the names of parameters. A pinned weight that is not among them
            gives a warning and a note: its norm is that of an initialiser that does not know the network.
            Default: not known

    Returns:
        A report with one row for each parameter, which prints as a table; its ``remove()`` ends the pin.

    Examples::

        >>> model = nn.Sequential(nn.Linear(8, 32), nn.ELU(), nn.Linear(32, 2))
        >>> report = bipolar.lsuv_(model, torch.randn(64, 8))
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> norms = model[0].weight.norm(dim=1)
        >>> pinned = bipolar.optim.pin(optimizer, model, lsuv_report=["0.weight", "2.weight"])
        >>> model(torch.randn(64, 8)).square().mean().backward()
        >>> optimizer.step()
        >>> torch.allclose(model[0].weight.norm(dim=1), norms)
        True
        >>> print(pinned)
        parameter  of      norms kept  note
        ---------  ------  ----------  ----------
        0.weight   Linear          32
        0.bias     Linear           0  a vector
        2.weight   Linear           0  last layer
        2.bias     Linear           0  last layer
    """
    if by not in get_args(By):
        raise ValueError(f"by: expected one of {', '.join(map(repr, get_args(By)))}, got {by!r}")
    if gain is not None and not 0 < gain < float("inf"):
        raise ValueError(f"gain: expected a positive number, or None for none, got {gain!r}")
    own = {p for group in optimizer.param_groups for p in group["params"]}
    parts = parts_of(model, last)
    scaled = None if lsuv_report is None else _scaled(lsuv_report)
    excluded = _excluded(parts, exclude)
    pinned, rows = [], []
    for part in parts:
        each = _Pinned(part.name, part.parameter, _dims(part, by))
        note = _reason(part, each, own, excluded)
        norms = 0
        if not note:
            pinned.append(each)
            norms = each.norms().numel()
            note = "never scaled by LSUV" if scaled is not None and part.name not in scaled else ""
        rows.append(PinRow(part.name, type(part.owners[0]).__name__, norms, note))
    if not pinned:
        raise ValueError(f"model: there is no weight to pin: {'; '.join(f'{row.name}: {row.note}' for row in rows)}")
    unscaled = [row.name for row in rows if row.norms and row.note]
    if unscaled:
        warnings.warn(f"pinned, but never scaled by LSUV: {', '.join(unscaled)}", stacklevel=2)
    return Pin(optimizer, pinned, rows, "whether LSUV has scaled them is not known" if scaled is None else "", gain)


def _dims(part: Part, by: By) -> tuple[int, ...]:
    """The dimensions over which a norm is taken: all, or all but that of the filters."""
    filters = 1 if isinstance(part.owners[0], _ConvTransposeNd) else 0
    return tuple(d for d in range(part.parameter.ndim) if by == "matrix" or d != filters)


def _reason(part: Part, each: _Pinned, own: set[Tensor], excluded: set[str]) -> str:
    """The reason why a parameter is not pinned; empty if it is."""
    owner = part.owners[0]
    if part.name in excluded:
        return "excluded"
    if part.role != "matrix":
        return {"vector": "a vector", "embedding": "an embedding", "norm": "of a norm"}.get(part.role, part.role)
    if not part.parameter.requires_grad:
        return "frozen"
    if len(part.owners) > 1:
        return "tied"
    if isinstance(owner, ParametrizationList):
        return "parametrised: its own norm is not the weight's"
    if part.parameter not in own:
        return "not the optimiser's"
    if isinstance(owner, _ConvTransposeNd) and owner.groups > 1:
        return "a transposed convolution of several groups"
    if not bool((each.norms() > 0).all()):
        return "a norm of zero cannot be kept"
    return ""


def _excluded(parts: list[Part], exclude: str | Iterable[str]) -> set[str]:
    names, found = [part.name for part in parts], set[str]()
    for pattern in [exclude] if isinstance(exclude, str) else exclude:
        matches = fnmatch.filter(names, pattern)
        if not matches:
            raise ValueError(f"exclude: {pattern!r} matches none of the parameters {', '.join(names)}")
        found.update(matches)
    return found


def _scaled(lsuv_report: Any) -> set[str]:
    """The names of the parameters that LSUV scaled."""
    names = set(getattr(lsuv_report, "scaled", lsuv_report))
    if isinstance(lsuv_report, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"lsuv_report: expected a report of lsuv_ or names of parameters, got {lsuv_report!r}")
    return names
