"""A stack laid out for generation: one time step after the other, without autograd or dropout."""

import copy
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from bipolar._activations.recognition import kernel_of
from bipolar._rnn.autocast import is_cast, without_autocast
from bipolar._rnn.nonlinearity import sign_of
from bipolar._rnn.onnx_step import Advance, onnx_step, refusal, step_model
from bipolar._tools.restoring import evaluating

if TYPE_CHECKING:
    from bipolar._rnn.stack import StackedRNN

Runtime: TypeAlias = Literal["auto", "torch", "onnxruntime"]


class Stepper:
    r"""The steps of a :class:`~bipolar.StackedRNN`, which :meth:`~bipolar.StackedRNN.stepper` makes.

    The products of all states, :math:`W_i h_i(t-1)`, need no layer below, so that one operation computes them for all
    layers. Signs are folded into the weights: with :math:`\hat h = S h`, a bipolar layer is the plain one,

    .. math:: \hat h_i(t) = f(S U_i S \, \hat h_{i-1}(t) + S W_i S \, \hat h_i(t-1) + S b_i)

    Weights and activation are copied when it is made; later changes of the stack's are not seen. In onnxruntime, where
    a step takes less time, states differ by rounding errors.

    Attributes:
        runtime: ``"torch"`` or ``"onnxruntime"``, where the steps are computed

    Shape:
        - input: (batch, input_size)
        - output: (batch, hidden_size)
    """

    @torch.no_grad()
    def __init__(self, rnn: "StackedRNN", runtime: Runtime = "auto") -> None:
        if runtime not in get_args(Runtime):
            raise ValueError(f"runtime: expected one of {', '.join(map(repr, get_args(Runtime)))}, got {runtime!r}")
        layers = rnn.layers()
        self._blocks, self._skip_scale, self._activation = rnn.blocks, rnn.skip_scale, copy.deepcopy(rnn.activation)
        self._input_size, self._layers = rnn.input_size, len(layers)
        like = layers[0][0].detach()
        self._kernel = kernel_of(self._activation)
        reason = refusal(rnn.activation, [p for layer in layers for p in layer if p is not None])
        if runtime == "onnxruntime" and reason is not None:
            raise ValueError(f"runtime: onnxruntime cannot step this stack, {reason}")
        self.runtime: Runtime = "torch" if runtime == "torch" or reason is not None else "onnxruntime"
        sign = None if self._kernel is None else sign_of(rnn.activation, rnn.hidden_size, like)
        self._sign = like.new_ones(rnn.hidden_size) if sign is None else sign
        # A skip around the first block adds the input, which then needs the signs, too.
        self._of_input = self._sign if rnn.blocks.same_width else like.new_ones(rnn.input_size)
        rows = self._sign.unsqueeze(1)
        us = [rows * u * (self._sign if i else self._of_input) for i, (u, _, _) in enumerate(layers)]
        ws = [rows * w * self._sign for _, w, _ in layers]
        bs = [torch.zeros_like(self._sign) if b is None else self._sign * b for _, _, b in layers]
        self._advance: Advance
        if self.runtime == "torch":
            self._u, self._w = us, torch.stack([w.mT for w in ws]).contiguous()
            self._b = torch.stack(bs).unsqueeze(1)
            self._advance = self._by_torch
        else:
            self._advance = onnx_step(step_model(us, ws, bs, rnn.blocks, rnn.skip_scale, rnn.activation))
        self._signed: Tensor | None = None

    @property
    def state(self) -> Tensor | None:
        """The state after the last step, (num_layers, batch, hidden_size); None before the first. It can be set."""
        return None if self._signed is None else self._signed * self._sign

    @state.setter
    def state(self, state: Tensor | None) -> None:
        layers, units = self._layers, len(self._sign)
        if state is not None and not isinstance(state, Tensor):
            raise TypeError(f"state: expected a tensor, or None to begin anew, got {type(state).__name__}")
        if state is not None and (state.ndim != 3 or (state.size(0), state.size(2)) != (layers, units)):
            shape = (layers, "batch", units)
            raise ValueError(f"state: expected (num_layers, batch, hidden_size) = {shape}, got {tuple(state.shape)}")
        if state is not None and state.dtype != self._sign.dtype:
            raise TypeError(f"state: expected {self._sign.dtype} as the weights are, got {state.dtype}")
        self._signed = None if state is None else state.detach() * self._sign

    @torch.no_grad()
    def __call__(self, input: Tensor) -> Tensor:
        """The output of the next step."""
        if not isinstance(input, Tensor):
            raise TypeError(f"input: expected a tensor, (batch, {self._input_size}), got {type(input).__name__}")
        if input.ndim != 2 or input.size(1) != self._input_size:
            raise ValueError(f"input: expected (batch, {self._input_size}), got shape {tuple(input.shape)}")
        x = input.to(self._sign.dtype) if is_cast(input, self._sign.dtype) else input
        if x.dtype != self._sign.dtype:
            raise TypeError(f"input: expected {self._sign.dtype} as the weights are, got {x.dtype}")
        if self._signed is None:
            self._signed = x.new_zeros(self._layers, len(x), len(self._sign))
        if len(x) != self._signed.size(1):
            raise ValueError(
                f"input: expected a batch of {self._signed.size(1)} as in the step before, got {len(x)}; "
                "set state to None to begin anew"
            )
        with without_autocast(x):
            self._signed = self._advance(x * self._of_input, self._signed)
        return self._signed[-1] * self._sign

    def _by_torch(self, x: Tensor, before: Tensor) -> Tensor:
        """The states after a step, all with signs."""
        states = torch.baddbmm(self._b, before, self._w)
        block_input = x
        if len(x) == 1:  # matrix times vector is faster
            x = block_input = x[0]
            rows = states.squeeze(1).unbind(0)
        else:
            rows = states.unbind(0)
        for i, (u, row) in enumerate(zip(self._u, rows, strict=True)):
            if self._blocks.starts(i):
                block_input = x
            x = self._activated_(row.addmv_(u, x) if row.ndim == 1 else row.addmm_(x, u.mT))
            if self._blocks.has_skip(i):
                x.add_(block_input, alpha=self._skip_scale)
        return states

    def _activated_(self, z: Tensor) -> Tensor:
        if self._kernel is not None:
            return self._kernel.forward_(z)
        with evaluating(self._activation):
            return z.copy_(self._activation(z.view(-1, z.size(-1))).view_as(z))
