"""StackedRNN: many layers of vanilla RNN, with skip connections and three kinds of dropout."""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from bipolar._activations.moments import gain
from bipolar._activations.patterns import Pattern, check_pattern
from bipolar._activations.recognition import kernel_of
from bipolar._rnn import backends
from bipolar._rnn.autocast import under_autocast, without_autocast
from bipolar._rnn.backends import Backend
from bipolar._rnn.blocks import Blocks
from bipolar._rnn.drops import Dice
from bipolar._rnn.noise import SILENCE, draw_noise, dropped_out
from bipolar._rnn.nonlinearity import make_activation
from bipolar._rnn.one_step import one_step
from bipolar._rnn.sequences import Sequences
from bipolar._rnn.stack_pass import LayerWeights, StackPass
from bipolar._rnn.stepper import Runtime, Stepper
from bipolar._rnn.torch_rnn import as_torch_rnn, merge_biases
from bipolar._tools.checks import check_count, check_number
from bipolar._tools.restoring import evaluating


class StackedRNN(nn.Module):
    r"""A deep stack of vanilla recurrent layers, without gates or normalisation.

    Layer i computes at time t

    .. math::
        h_i(t) = f(W_i h_i(t-1) + U_i x_i(t) + b_i) \; [\, + \; \alpha \, h_{i-k}(t) \,]

    with :math:`x_i(t) = h_{i-1}(t)`, and the skip connection in brackets at every k-th layer, k = ``skip_every``,
    around the block of k layers that ends there; :math:`\alpha` = ``skip_scale``. The skip is part of the state. The
    first block's skip carries the input of the stack; where ``input_size`` differs from ``hidden_size`` the first block
    has no skip and is never dropped. An incomplete block on top has no skip and is never dropped either.

    From Eidnes & Nøkland, `Shifting Mean Activation Towards Zero with Bipolar Activation Functions
    <https://arxiv.org/abs/1709.04054>`_, 2018.

    In training, and only then:

    - ``dropout`` acts on the stack's input and on every layer's output, the last included, with a fresh mask at each
      time step. What a skip carries, and what passes by a dropped block, is the dropped-out value.
    - ``recurrent_dropout`` is rnnDrop: one mask for each layer and sequence, on :math:`h_i(t-1)`; episodes within a
      sequence share it.
    - ``block_dropout`` drops blocks, at each time step by one draw for the whole mini-batch. A dropped block of layers
      i - k + 1, ..., i is the identity, both ways: what it hands on is what it was given, :math:`x_{i+1}(t) =
      x_{i-k+1}(t)`, and its states stay, :math:`h_j(t) = h_j(t-1)`. Nothing is rescaled at test time.

    Probabilities are taken to the nearest of 65,536 levels. Where f draws random numbers of its own (``"rrelu"``),
    these do not come from ``generator``.

    Args:
        input_size: the number of features of the input
        hidden_size: the number of units of each layer
        num_layers: the number of layers
        nonlinearity: f, by name (:func:`~bipolar.list_activations`) or as a function of (batch, hidden_size).
            Default: ``"belu"``
        bias: whether the layers have a bias :math:`b_i`. Default: ``True``
        batch_first: whether input and output are (batch, time, features). Default: ``False``
        skip_every: the number k of layers in a block, or None for no skips. Default: 4
        skip_scale: the factor :math:`\alpha` of a skip. Default: 0.99
        dropout: probability to drop a value between layers. Default: 0.0
        recurrent_dropout: probability to drop a value between time steps. Default: 0.0
        block_dropout: probability to drop a block; needs ``skip_every``. Default: 0.0
        gamma: the share :math:`\gamma` of a layer's variance that comes from :math:`W_i h_i(t-1)`, the rest coming from
            :math:`U_i x_i(t)`: as in the paper, :math:`W_i' = W_i \sqrt{2 \gamma}` and :math:`U_i' = U_i
            \sqrt{2 (1 - \gamma)}` from equal shares. Used by ``reset_parameters`` and :func:`~bipolar.lsuv_rnn_`.
            Default: 0.5
        pattern: which units a bipolar f flips, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``
        recompute: whether to keep only what enters a group of blocks, and to compute the rest anew in the backward
            pass: memory grows with the root of the depth instead of the depth, for a third more time.
            Default: ``False``
        backend: ``"wavefront"`` and ``"scan"``, the fast ones with a backward pass of their own, along the diagonals of
            layers and time or layer by layer; ``"reference"``, cell by cell in plain autograd, for any f and with
            second derivatives; or ``"auto"``, what fits: a fast one where the derivative of f follows from its output.
            Default: ``"auto"``

        bidirectional: ``True`` is refused, with the reason below. Default: ``False``

    Inputs: input, state
        - **input**: (time, batch, input_size), or (batch, time, input_size) with ``batch_first``, or (time,
          input_size); or a ``PackedSequence``, as ``nn.RNN`` takes it
        - **state**: (num_layers, batch, hidden_size), or (num_layers, hidden_size) where the input has no batch.
          Default: zeros
        - **lengths**, by keyword: the number of time steps of each sequence in a padded batch, (batch), in any order.
          Padding may hold anything. Where they never grow, as in a packed batch, much of it is not computed. Default:
          all time steps of the input
        - **reset**, by keyword: truth values, (time, batch), or (batch, time) with ``batch_first``, or (time). Where
          one is true, the states of all layers are set to zero *before* that time step, h(t-1) = 0: an episode begins
          there, and its outputs are those that it has alone. Default: never
        - **generator**, by keyword: where the random numbers of dropout come from

    Outputs: output, state
        - **output**: the output of the last layer at each time step, in the layout of the input: zeros beyond the
          ``lengths``, and packed like the input where that is packed
        - **state**: the state of each layer after the last time step; that of each sequence's own with ``lengths``, or
          where the input is packed

    Attributes:
        weight_ih_l[i]: :math:`U_i`, of shape (hidden_size, input_size) for i = 0, else (hidden_size, hidden_size)
        weight_hh_l[i]: :math:`W_i`, of shape (hidden_size, hidden_size)
        bias_l[i]: :math:`b_i`, of shape (hidden_size)

    Examples::

        >>> rnn = bipolar.StackedRNN(16, 32, num_layers=8)
        >>> output, state = rnn(torch.randn(50, 4, 16))
        >>> output.shape, state.shape
        (torch.Size([50, 4, 32]), torch.Size([8, 4, 32]))

        Sequences of 50, 20, 30 and 1 steps, the rest being padding:

        >>> lengths = torch.tensor([50, 20, 30, 1])
        >>> padded = torch.randn(50, 4, 16)
        >>> output, state = rnn(padded, lengths=lengths)
        >>> alone, own_state = rnn(padded[:20, 1])
        >>> torch.allclose(output[:20, 1], alone, atol=1e-5), torch.allclose(state[:, 1], own_state, atol=1e-5)
        (True, True)

        The same, packed:

        >>> packed = nn.utils.rnn.pack_padded_sequence(padded, lengths, enforce_sorted=False)
        >>> nn.utils.rnn.pad_packed_sequence(rnn(packed)[0])[0].shape
        torch.Size([50, 4, 32])

        Two episodes in the first sequence, the second of which begins with step 10:

        >>> reset = torch.zeros(50, 4, dtype=torch.bool)
        >>> reset[10, 0] = True
        >>> output, state = rnn(padded, reset=reset)
        >>> torch.allclose(output[10:, 0], rnn(padded[10:, 0])[0], atol=1e-5)
        True

    ``torch.compile`` of a model breaks the graph at the stack, as at an ``nn.RNN``: it compiles what comes before the
    stack and what comes after, and the stack runs as it does without. So another length or batch compiles nothing of a
    stack anew, with or without dropout, a state, ``lengths`` and ``reset``; give ``lengths`` as a tensor, because the
    compiler looks at the values of a list. With ``backend="reference"`` there is no break, and each length is another
    graph, of all its cells.

    There is no ``bidirectional=True``. Between the layers of a bidirectional ``nn.RNN`` both directions are
    concatenated, so no layer can begin before the one below has read the whole sequence: the stack would not be
    causal, with no diagonals to compute along, no :meth:`step` and no state to carry on, and a skip would have to join
    the two directions. Two stacks, of which one reads backward, and ``torch.cat`` join them at the top instead::

        >>> forward, backward = (bipolar.StackedRNN(16, 32, num_layers=8) for _ in range(2))
        >>> time = torch.arange(50).unsqueeze(1)
        >>> back = torch.where(time < lengths, lengths - 1 - time, time)  # from the end of each; padding stays
        >>> reverse = lambda sequences: sequences[back, torch.arange(4)]
        >>> there = forward(padded, lengths=lengths)[0]
        >>> and_back = reverse(backward(reverse(padded), lengths=lengths)[0])
        >>> torch.cat((there, and_back), dim=-1).shape
        torch.Size([50, 4, 64])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        nonlinearity: str | Callable[[Tensor], Tensor] = "belu",
        *,
        bias: bool = True,
        batch_first: bool = False,
        skip_every: int | None = 4,
        skip_scale: float = 0.99,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        block_dropout: float = 0.0,
        gamma: float = 0.5,
        pattern: Pattern = "alternate",
        recompute: bool = False,
        backend: Backend = "auto",
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            check_count(name, size)
        if skip_every is not None and (not isinstance(skip_every, int) or skip_every < 1):
            raise ValueError(f"skip_every: expected at least 1, or None for no skips, got {skip_every}")
        probabilities = {
            "dropout": dropout,
            "recurrent_dropout": recurrent_dropout,
            "block_dropout": block_dropout,
        }
        for name, number in (*probabilities.items(), ("skip_scale", skip_scale), ("gamma", gamma)):
            check_number(name, number)
        for name, p in probabilities.items():
            if not 0 <= p < 1:
                raise ValueError(f"{name}: expected a probability in [0, 1), got {p}")
        if block_dropout and skip_every is None:
            raise ValueError("block_dropout: only blocks with a skip connection can be dropped; give skip_every too")
        if not math.isfinite(skip_scale):
            raise ValueError(f"skip_scale: expected a finite number, got {skip_scale}")
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma: expected a share in [0, 1], got {gamma}")
        if backend not in get_args(Backend):
            raise ValueError(f"backend: expected one of {', '.join(map(repr, get_args(Backend)))}, got {backend!r}")
        if bidirectional:
            raise ValueError(
                "bidirectional: a StackedRNN reads forward only; use two, one on the reversed input, and torch.cat of "
                "their outputs, as in the example of its docstring"
            )
        check_pattern(pattern)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.skip_every = skip_every
        self.skip_scale = skip_scale
        self.dropout = dropout
        self.recurrent_dropout = recurrent_dropout
        self.block_dropout = block_dropout
        self.gamma = gamma
        self.recompute = recompute
        self.backend: Backend = backend
        self.nonlinearity = nonlinearity if isinstance(nonlinearity, str) else None
        self.activation = make_activation(nonlinearity, pattern, hidden_size, device, dtype)
        self.pattern: Pattern = getattr(self.activation, "pattern", pattern)
        if backend in ("scan", "wavefront") and kernel_of(self.activation) is None:
            raise ValueError(f"backend: {backend!r} does not know the derivative of {nonlinearity!r}; use 'auto'")
        self.blocks = Blocks(num_layers, skip_every, same_width=input_size == hidden_size)
        for i in range(num_layers):
            shapes: dict[str, tuple[int, ...]] = {
                f"weight_ih_l{i}": (hidden_size, hidden_size if i else input_size),
                f"weight_hh_l{i}": (hidden_size, hidden_size),
            }
            if bias:
                shapes[f"bias_l{i}"] = (hidden_size,)
            for name, shape in shapes.items():
                self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Normal weights with the gain that f needs, :math:`W_i` and :math:`U_i` sharing the variance by ``gamma``.

        Biases are zero. For unit variance at every layer, skips included, see :func:`~bipolar.lsuv_rnn_`.
        """
        try:
            scale = gain(self.activation, stacked=True)
        except Exception:  # f cannot keep a variance, as tanh cannot; or is not a function of one unit
            scale = 1.0
        for u, w, b in self.layers():
            nn.init.normal_(u, std=scale * math.sqrt((1 - self.gamma) / u.size(1)))
            nn.init.normal_(w, std=scale * math.sqrt(self.gamma / w.size(1)))
            if b is not None:
                nn.init.zeros_(b)

    def layers(self) -> LayerWeights:
        """For each layer its U, W and b."""
        return [
            (
                getattr(self, f"weight_ih_l{i}"),
                getattr(self, f"weight_hh_l{i}"),
                getattr(self, f"bias_l{i}") if self.bias else None,
            )
            for i in range(self.num_layers)
        ]

    def forward(
        self,
        input: Tensor | PackedSequence,
        state: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        run = self._pass
        if torch.compiler.is_dynamo_compiling() and self.backend != "reference" and not torch.compiler.is_exporting():
            # A graph break, as for nn.RNN: a deep stack unrolled over time takes minutes to compile. It is here, not
            # farther in, so that no part of a pass is compiled, and then again for other lengths and batches.
            run = torch.compiler.disable(run)
        return run(input, state, lengths, reset, generator)

    def _pass(
        self,
        input: Tensor | PackedSequence,
        state: Tensor | None,
        lengths: Tensor | Sequence[int] | None,
        reset: Tensor | None,
        generator: torch.Generator | None,
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        if generator is not None and not isinstance(generator, torch.Generator):
            raise TypeError(f"generator: expected a torch.Generator, got {type(generator).__name__}")
        given = Sequences(input, lengths, reset, self.input_size, self.batch_first)
        x, state, weights = under_autocast(given.input, state, self.layers())
        h = given.ordered(self._initial_state(x, state, given.batched))
        noise = SILENCE
        if self.training:
            dice = Dice(generator, x.device)
            x = dropped_out(x, self.dropout, dice)
            noise = draw_noise(
                x,
                self.num_layers,
                self.hidden_size,
                self.blocks.count,
                dice,
                dropout=self.dropout,
                recurrent_dropout=self.recurrent_dropout,
                block_dropout=self.block_dropout,
            )
        with without_autocast(x):
            task = StackPass(x, h, weights, self.blocks, self.skip_scale, noise, given.reset, given.ends)
            output, last = self._run(task)
        return given.given_back(output, last)

    def _run(self, task: StackPass) -> tuple[Tensor, Tensor]:
        """All layers, on (time, batch, input_size)."""
        return backends.run(task, self.activation, self.backend, self.recompute)

    @torch.no_grad()
    def step(self, input: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One time step without autograd or dropout, for generation.

        Args:
            input: (batch, input_size) or (input_size)
            state: (num_layers, batch, hidden_size) or (num_layers, hidden_size). Default: zeros

        Returns:
            output, of shape (batch, hidden_size) or (hidden_size), and the new state

        Examples::

            >>> rnn = bipolar.StackedRNN(16, 32, num_layers=8)
            >>> output, state = rnn.step(torch.randn(4, 16))
            >>> output, state = rnn.step(torch.randn(4, 16), state)
            >>> output.shape, state.shape
            (torch.Size([4, 32]), torch.Size([8, 4, 32]))
        """
        if not isinstance(input, Tensor):
            raise TypeError(f"input: expected one time step, (batch, input_size), got {type(input).__name__}")
        if input.ndim not in (1, 2) or input.size(-1) != self.input_size:
            raise ValueError(
                f"input: expected (batch, {self.input_size}) or ({self.input_size},), got shape {tuple(input.shape)}"
            )
        batched = input.ndim == 2
        x, state, weights = under_autocast(input, state, self.layers())
        x = x if batched else x.unsqueeze(0)
        h = self._initial_state(x.unsqueeze(0), state, batched)
        with without_autocast(x), evaluating(self.activation):
            output, last = one_step(x, h, weights, self.blocks, self.skip_scale, self.activation)
        return (output, last) if batched else (output.squeeze(0), last.squeeze(1))

    def stepper(self, runtime: Runtime = "auto") -> Stepper:
        """The stack laid out for generation: faster than :meth:`step`, and it carries the state.

        Its weights are copies: ask for another after you have changed the stack's.

        Args:
            runtime: ``"onnxruntime"``, which is faster, and needs ``pip install 'bipolar[onnx]'``, float32 on a CPU,
                weights of 2 GB at most and an activation that has an ONNX operator; ``"torch"``; or ``"auto"``, the
                faster one that there is.
                Default: ``"auto"``

        Examples::

            >>> rnn = bipolar.StackedRNN(16, 32, num_layers=8)
            >>> stepper = rnn.stepper()
            >>> outputs = [stepper(torch.randn(4, 16)) for _ in range(3)]
            >>> outputs[-1].shape, stepper.state.shape
            (torch.Size([4, 32]), torch.Size([8, 4, 32]))
        """
        return Stepper(self, runtime)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        merge_biases(self, state_dict, prefix, errors=cast(list[str], args[-1]))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def to_torch(self) -> nn.RNN:
        """The same as an ``nn.RNN``, which is a stack of tanh or ReLU layers without skips and dropout.

        Examples::

            >>> rnn = bipolar.StackedRNN(16, 32, num_layers=2, nonlinearity="relu", skip_every=None)
            >>> rnn.to_torch()
            RNN(16, 32, num_layers=2)
        """
        return as_torch_rnn(self)

    def _initial_state(self, x: Tensor, state: Tensor | None, batched: bool) -> Tensor:
        expected = (self.num_layers, x.size(1), self.hidden_size)
        if state is None:
            return x.new_zeros(expected)
        shape = expected if batched else (self.num_layers, self.hidden_size)
        if not isinstance(state, Tensor):
            raise TypeError(f"state: expected a tensor, got {type(state).__name__}")
        if state.dtype != x.dtype:
            raise TypeError(f"state: expected {x.dtype} as the input is, got {state.dtype}")
        if tuple(state.shape) != shape:
            raise ValueError(f"state: expected (num_layers, batch, hidden_size) = {shape}, got {tuple(state.shape)}")
        return state.view(expected)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"
        if self.nonlinearity is not None:
            text += f", nonlinearity={self.nonlinearity}"
        defaults: dict[str, Any] = {
            "bias": True,
            "batch_first": False,
            "skip_every": 4,
            "skip_scale": 0.99,
            "dropout": 0.0,
            "recurrent_dropout": 0.0,
            "block_dropout": 0.0,
            "gamma": 0.5,
            "pattern": "alternate",
            "recompute": False,
            "backend": "auto",
        }
        return text + "".join(
            f", {name}={getattr(self, name)}" for name, value in defaults.items() if getattr(self, name) != value
        )
