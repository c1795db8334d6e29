"""Path-SGD: steps on the weights of a ReLU network that do not depend on how its units are scaled."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from bipolar.lab.cells.model import RivalRNN


def path_factors(network: nn.Module, like: Tensor) -> dict[str, Tensor]:
    r"""The factors of path-SGD for a recurrent ReLU network, by the name of the parameter.

    .. math::
        \kappa_i = \sum_{e : \pi(e) = i} \; \sum_{\text{paths through } e} \; \prod_{e' \ne e} w_{e'}^2
                 = \frac{\partial}{\partial p_i^2} \sum_{\text{paths}} \prod_e w_e^2

    Paths lead through the network, unrolled over time, from any input unit, or the constant one of a bias, at any step
    to any output at any step. The sum over all of them is what the network returns for an input of ones with every
    weight squared, and one pass backward has all of its derivatives.

    This is the paper's :math:`\kappa^{(1)}`. Its second term, for paths that go through a shared weight twice, is left
    out: the paper finds it small, and training no better with it.

    Reference: Neyshabur et al., `Path-Normalized Optimization of Recurrent Neural Networks with ReLU Activations
    <https://arxiv.org/abs/1605.07154>`_, 2016.

    Args:
        network: a ReLU network such as :class:`~bipolar.lab.cells.vanilla.Vanilla` with or without a decoder on it; it
            returns outputs, or a tuple with the outputs first
        like: an input to the network; its shape alone matters. A batch of one is enough
    """
    squares = {name: p.detach().square().requires_grad_() for name, p in network.named_parameters()}
    training = network.training
    network.eval()  # dropout would leave paths out
    try:
        output = torch.func.functional_call(network, squares, (torch.ones_like(like),))
    finally:
        network.train(training)
    output = output[0] if isinstance(output, tuple) else output
    found = torch.autograd.grad(output.sum(), list(squares.values()))
    return dict(zip(squares, found, strict=True))


class PathSGD(torch.optim.Optimizer):
    r"""Steepest descent by the path regulariser, for a recurrent network of ReLUs.

    .. math:: w_i \leftarrow w_i - \frac{\eta}{\kappa_i} \frac{\partial L}{\partial w_i}

    with :math:`\kappa` from :func:`path_factors`, anew at every step. To multiply the weights into a hidden unit and to
    divide those out of it by the same number changes neither the function nor what a step does to it.

    Reference: Neyshabur et al., `Path-Normalized Optimization of Recurrent Neural Networks with ReLU Activations
    <https://arxiv.org/abs/1605.07154>`_, 2016. They train a layer of 2,048 units on Penn Treebank by characters: here
    ``Vanilla(input_size, 2048, "relu")``.

    Args:
        network: the network, with all of its weights
        like: an input to it, of the length of a training sequence and a batch of one: its shape alone matters
        lr: :math:`\eta`
        match: multiply steps by a constant, so that the first has the length of one of SGD; rates are then alike. The
            released code of path-SGD for feed-forward networks does something similar; the paper of the recurrent one
            has no such constant. Default: ``False``

    Examples::

        >>> from bipolar.lab.cells.vanilla import Vanilla
        >>> network = Vanilla(8, 16, "relu")
        >>> optimizer = PathSGD(network, torch.empty(5, 1, 8), lr=0.1)
        >>> network(torch.randn(5, 2, 8))[0].square().mean().backward()
        >>> optimizer.step()
    """

    def __init__(self, network: nn.Module, like: Tensor, lr: float, *, match: bool = False) -> None:
        if lr < 0:
            raise ValueError(f"lr: expected a number that is not negative, got {lr}")
        named = dict(network.named_parameters())
        super().__init__(named.values(), {"lr": lr, "scale": None if match else 1.0})
        self._network, self._like, self._names = network, like, {p: name for name, p in named.items()}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; ``closure`` computes the loss and the gradients anew, and its loss is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.enable_grad():
            weight = self.param_groups[0]["params"][0]  # the network may have moved, or have another precision now
            factors = path_factors(self._network, self._like.to(weight))
        for group in self.param_groups:
            trained = [p for p in group["params"] if p.grad is not None]
            # A weight on no path has a factor of zero, and stays.
            steps = [(p.grad / (k := factors[self._names[p]])).masked_fill_(k == 0, 0) for p in trained]
            if group["scale"] is None and (length := float(get_total_norm(steps))):
                group["scale"] = float(get_total_norm([p.grad for p in trained])) / length
            for p, step in zip(trained, steps, strict=True):
                p.sub_(step, alpha=group["lr"] * (group["scale"] or 0.0))
        return loss


class _AfterEmbedding(nn.Module):
    """A language model without its embedding, which is not trained: the units that paths go through."""

    def __init__(self, model: RivalRNN) -> None:
        super().__init__()
        self.rnn, self.decoder = model.rnn, model.decoder

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.decoder(self.rnn(x)[0])
        return output


def path_sgd(model: RivalRNN, steps: int, lr: float) -> PathSGD:
    """Path-SGD for a language model of ReLUs, trained on windows of so many steps; the first step is as long as SGD's.

    Paths begin at the units of the embedding.
    """
    return PathSGD(_AfterEmbedding(model), torch.empty(steps, 1, model.embedding.shape[1]), lr, match=True)
