"""Batches of sequences: padded or packed, of one length or several, with episodes in them."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


class Sequences:
    """A batch of sequences in the form that every backend takes, (time, batch, features), and the way back.

    Time runs forward through a stack, so padding reaches nothing that comes before it. All that is left to do about the
    end of a sequence is to take its last state there. The steps beyond start from zeros, in input and state: whatever
    the padding holds, no number grows so large in them that its product with a gradient of zero is not zero.
    """

    def __init__(
        self,
        input: Tensor | PackedSequence,
        lengths: Tensor | Sequence[int] | None,
        reset: Tensor | None,
        input_size: int,
        batch_first: bool,
    ) -> None:
        self.batched, self.batch_first = True, batch_first
        self.packed: PackedSequence | None = None
        #: the order of the sequences here; None for that of the input
        self.order: Tensor | None = None
        if isinstance(input, PackedSequence):
            self.packed, self.order = input, input.sorted_indices
            if lengths is not None:
                raise ValueError("lengths: a PackedSequence has its own; pass them with a padded input only")
            x, lengths = _unpacked(input, input_size)
        else:
            x = self._time_first(input, input_size)
            if lengths is not None and not self.batched:
                raise ValueError("lengths: the input has no batch; pass the steps of the one sequence, input[:length]")
        steps, batch = x.shape[:2]
        #: (time, batch); None for no reset
        self.reset = None if reset is None else self._checked_reset(reset, steps, batch, x.device)
        #: (batch); None for that of the input
        self.lengths = None if lengths is None else _checked_lengths(lengths, steps, batch)
        #: the last time step of each sequence, (batch), and the steps beyond, (time, batch); None if there are none
        self.ends: Tensor | None = None
        self.padding: Tensor | None = None
        if self.lengths is not None and _may_be_padded(self.lengths, steps):
            self.ends = self.lengths.to(x.device) - 1
            self.padding = _steps_beyond(self.ends, steps)
            self.reset = self.padding if self.reset is None else self.reset | self.padding
            x = x.masked_fill(self.padding.unsqueeze(2), 0)
        #: (time, batch, input_size)
        self.input = x

    def ordered(self, state: Tensor) -> Tensor:
        """Initial states, (num_layers, batch, hidden_size), in the order of the sequences here."""
        return _in_order(state, self.order)

    def given_back(self, output: Tensor, last: Tensor) -> tuple[Tensor | PackedSequence, Tensor]:
        """The output (time, batch, hidden_size) in the layout of the input, and the last states in its order."""
        if self.packed is not None and self.lengths is not None:
            data, sizes, _, _ = pack_padded_sequence(output, self.lengths)
            packed = PackedSequence(data, sizes, self.order, self.packed.unsorted_indices)
            return packed, _in_order(last, packed.unsorted_indices)
        if self.padding is not None:
            output = output.masked_fill(self.padding.unsqueeze(2), 0)
        if not self.batched:
            return output.squeeze(1), last.squeeze(1)
        return output.transpose(0, 1) if self.batch_first else output, last

    def _time_first(self, input: Tensor, input_size: int) -> Tensor:
        if not isinstance(input, Tensor):
            raise TypeError(f"input: expected a tensor or a PackedSequence, got {type(input).__name__}")
        if input.ndim not in (2, 3) or input.size(-1) != input_size:
            order = "batch, time" if self.batch_first else "time, batch"
            raise ValueError(
                f"input: expected ({order}, {input_size}) or (time, {input_size}), got shape {tuple(input.shape)}"
            )
        self.batched = input.ndim == 3
        x = input.unsqueeze(1) if not self.batched else input.transpose(0, 1) if self.batch_first else input
        if not x.size(0):
            raise ValueError(f"input: expected at least one time step, got shape {tuple(input.shape)}")
        return x

    def _checked_reset(self, reset: Tensor, steps: int, batch: int, device: torch.device) -> Tensor:
        if not isinstance(reset, Tensor) or reset.dtype != torch.bool:
            kind = reset.dtype if isinstance(reset, Tensor) else type(reset).__name__
            raise TypeError(f"reset: expected a tensor of truth values (torch.bool), got {kind}")
        name, shape = "time, batch", torch.Size((steps, batch))
        if not self.batched:
            name, shape = "time,", shape[:1]
        elif self.batch_first:
            name, shape = "batch, time", shape[::-1]
        if reset.shape != shape:
            raise ValueError(f"reset: expected ({name}) = {tuple(shape)}, got shape {tuple(reset.shape)}")
        reset = reset.to(device, copy=True)  # for the backward pass, before which the user may fill it anew
        if not self.batched:
            return reset.unsqueeze(1)
        return _in_order(reset.mT if self.batch_first else reset, self.order)


def _steps_beyond(ends: Tensor, steps: int) -> Tensor:
    """The mask (time, batch) of the time steps beyond the last one of each sequence."""
    return torch.arange(steps, device=ends.device).unsqueeze(1) > ends


def _may_be_padded(lengths: Tensor, steps: int) -> bool:
    """Whether a sequence may have padding: where values are not known, any may."""
    return not _known(lengths) or bool((lengths < steps).any())


def _known(lengths: Tensor) -> bool:
    """Whether Python can look at the values: not in a graph, nor where ``torch.vmap`` has other ones for each call."""
    return not torch.compiler.is_compiling() and not _differ_by_call(lengths)


def _differ_by_call(tensor: Tensor) -> bool:
    """Whether ``torch.vmap`` has a tensor for each call, perhaps below a ``torch.func.grad``."""
    while torch._C._functorch.is_gradtrackingtensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return torch._C._functorch.is_batchedtensor(tensor)


def _checked_lengths(lengths: Tensor | Sequence[int], steps: int, batch: int) -> Tensor:
    try:
        given = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"lengths: expected integers, one for each of {batch} sequences, got {lengths!r}") from None
    if given.numel() and (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool):
        raise TypeError(f"lengths: expected integers, got {given.dtype}")
    given = given.to(torch.int64)  # narrow integers cannot be compared with every number of steps
    if tuple(given.shape) != (batch,):
        raise ValueError(f"lengths: expected one for each of {batch} sequences, got shape {tuple(given.shape)}")
    inside = (given >= 1) & (given <= steps)
    if torch.compiler.is_compiling():  # the graph checks them each time it runs
        if not torch._C._functorch.is_batchedtensor(inside):
            torch._assert_async(inside.all(), "lengths: expected 1 to the time steps of the input")
    elif _known(given) and not bool(inside.all()):
        outside = (~inside).nonzero().flatten().tolist()
        raise ValueError(
            f"lengths: expected 1 to {steps}, the time steps of the input, got {int(given[outside[0]])} for sequence "
            f"{outside[0]}; leave out a sequence without steps"
        )
    return given


def _unpacked(packed: PackedSequence, input_size: int) -> tuple[Tensor, Tensor]:
    """A packed batch as (time, batch, input_size) with its lengths, in the order of packing: longest first."""
    data, sizes = packed.data, packed.batch_sizes.tolist()
    if data.ndim != 2 or data.size(1) != input_size:
        raise ValueError(f"input: expected packed data of shape (steps, {input_size}), got {tuple(data.shape)}")
    if not sizes or sizes != sorted(sizes, reverse=True) or sizes[-1] < 1 or sum(sizes) != len(data):
        raise ValueError(
            f"input: expected batch_sizes that never grow, as the longest sequence is the first, and that sum up to "
            f"the {len(data)} rows of data, got {sizes}; pack_sequence(..., enforce_sorted=False) of "
            "torch.nn.utils.rnn sorts"
        )
    for name in ("sorted_indices", "unsorted_indices"):
        order = getattr(packed, name)
        if order is not None and not torch.equal(order.sort().values, torch.arange(sizes[0], device=order.device)):
            raise ValueError(
                f"input: expected {name} with each of the {sizes[0]} sequences once, from 0 on, got {order.tolist()}"
            )
    return pad_packed_sequence(PackedSequence(data, packed.batch_sizes))


def _in_order(tensor: Tensor, order: Tensor | None) -> Tensor:
    """The second dimension, which counts sequences, in another order; None keeps it."""
    return tensor if order is None else tensor.index_select(1, order)
