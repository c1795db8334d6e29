"""Muon for matrices and Adam for the rest, in one optimiser."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias, overload

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.optimizer import Optimizer, ParamsT

from bipolar.optim._orthogonal import as_matrix, is_matrix, orthogonalised

Method: TypeAlias = Literal["muon", "adam"]

#: Options of Adam that go by another name where those of Muon stand beside them.
_ADAM_NAMES = {"adam_lr": "lr", "adam_weight_decay": "weight_decay"}


class Muon(Optimizer):
    r"""Muon for matrices and convolutions, AdamW for everything else.

    A matrix W with gradient G, or a convolution's weight as a matrix, out by (in * k * k), is moved by an orthogonal
    matrix, so that every direction that the gradient has gets an equal share:

    .. math::
        B &\leftarrow \mu B + (1 - \mu) G \\
        M &= \mu B + (1 - \mu) G \quad \text{(Nesterov), or } B \\
        W &\leftarrow (1 - \eta \lambda) W - \eta \sqrt{\max(1, \text{rows} / \text{columns})} \; \text{NS}(M)

    with :math:`\eta` = ``lr``, :math:`\mu` = ``momentum``, :math:`\lambda` = ``weight_decay``; NS is the Newton-Schulz
    iteration of ``ns_steps`` steps, a polynomial in M that takes its singular values close to 1. From Jordan et al.,
    `Muon: An optimizer for hidden layers in neural networks <https://kellerjordan.github.io/posts/muon/>`_, 2024, whose
    scale of the update this is (``adjust_lr_fn="original"`` of :class:`torch.optim.Muon`), so that rates carry over.
    The size of the gradient does not matter, its direction alone does.

    Unlike :class:`torch.optim.Muon` it takes convolutions, computes in single precision, handles all matrices of one
    shape in one product, and takes care of the other parameters too. What is a matrix is decided by its shape: at least
    two rows and two columns. An embedding and a last layer are matrices by shape, but do better with Adam: for a model,
    use :func:`bipolar.optim.groups`. Gates that lie in one weight, as in ``nn.LSTM``, count as one matrix; the rows are
    always the first dimension, which for a transposed convolution are its inputs.

    With distributed data parallel, each process computes the same step from the same gradients. ``torch.compile`` takes
    its ``step``; where a scheduler changes the rates, give both as tensors, else every new rate compiles anew.

    Args:
        params: parameters, named parameters or groups, as for any optimiser of torch. A group with
            ``"method": "muon"`` or ``"adam"`` is taken as a whole, with ``"lr"`` its rate; any other is split by shape
            into two, with ``"lr"`` and ``"adam_lr"``
        lr: the rate of matrices. Default: 0.02
        momentum: :math:`\mu`. Default: 0.95
        nesterov: whether the momentum looks ahead. Default: ``True``
        weight_decay: :math:`\lambda` of matrices, decoupled from the gradient. Default: 0.0
        ns_steps: the steps of the iteration. Default: 5
        adam_lr: the rate of the rest. Default: 2e-3
        betas: the two decay rates of Adam. Default: (0.9, 0.99)
        eps: what Adam adds to its denominator. Default: 1e-8
        adam_weight_decay: the decoupled weight decay of the rest. Default: 0.0
        maximize: whether to go up instead of down. Default: ``False``
        ns_dtype: the type of numbers of the iteration, such as ``torch.bfloat16`` where a device is fast with it.
            Default: that of the parameter, but at least ``torch.float32``

    Examples::

        >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ELU(), nn.Flatten(), nn.Linear(16 * 36, 10))
        >>> optimizer = bipolar.optim.Muon(bipolar.optim.groups(model), lr=0.05, adam_lr=4e-3)
        >>> [(group["method"], group["lr"], group["param_names"]) for group in optimizer.param_groups]
        [('muon', 0.05, ['0.weight']), ('adam', 0.004, ['0.bias', '3.weight', '3.bias'])]
        >>> model(torch.randn(4, 3, 8, 8)).square().mean().backward()
        >>> optimizer.step()
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.02,
        *,
        momentum: float = 0.95,
        nesterov: bool = True,
        weight_decay: float = 0.0,
        ns_steps: int = 5,
        adam_lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.99),
        eps: float = 1e-8,
        adam_weight_decay: float = 0.0,
        maximize: bool = False,
        ns_dtype: torch.dtype | None = None,
    ) -> None:
        self._own: dict[Method, dict[str, Any]] = {
            "muon": {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "nesterov": nesterov,
                "ns_steps": ns_steps,
                "ns_dtype": ns_dtype,
            },
            "adam": {"lr": adam_lr, "weight_decay": adam_weight_decay, "betas": betas, "eps": eps},
        }
        super().__init__(params, {"maximize": maximize})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, with the options that it does not give; without a ``"method"``, it is split by shape."""
        given = param_group["params"]
        given = [given] if isinstance(given, Tensor) else list(given)
        if "method" not in param_group:
            options = {name: value for name, value in param_group.items() if name not in _ADAM_NAMES}
            matrices = [p for p in given if is_matrix(_tensor(p))]
            if matrices:
                self.add_param_group(options | {"params": matrices, "method": "muon"})
            rest = [p for p in given if not is_matrix(_tensor(p))]
            if rest or not given:
                for name, own in _ADAM_NAMES.items():
                    options.pop(own, None)
                    if name in param_group:
                        options[own] = param_group[name]
                self.add_param_group(options | {"params": rest, "method": "adam"})
            return
        method = param_group["method"]
        if method not in ("muon", "adam"):
            raise ValueError(f"method: expected 'muon' or 'adam', got {method!r}")
        group = self._own[method] | param_group | {"params": given}
        _check_options(group)
        if method == "muon":
            _check_matrices(given)
        super().add_param_group(group)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_own": self._own}

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step; a closure is called first, with gradients, and its loss returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                (self._muon_step if group["method"] == "muon" else self._adam_step)(params, group)
        return loss

    def _muon_step(self, params: list[Tensor], group: dict[str, Any]) -> None:
        gradients = _dense_gradients(params)
        for p in params:
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        buffers = [self.state[p]["momentum_buffer"] for p in params]
        lr, momentum = group["lr"], group["momentum"]
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        moments = torch._foreach_lerp(gradients, buffers, momentum) if group["nesterov"] else buffers
        updates = orthogonalised([as_matrix(m) for m in moments], group["ns_steps"], group["ns_dtype"])
        if group["weight_decay"]:
            torch._foreach_mul_(params, 1 - lr * group["weight_decay"])
        sign = 1 if group["maximize"] else -1
        torch._foreach_mul_(updates, [sign * lr * max(1.0, u.size(0) / u.size(1)) ** 0.5 for u in updates])
        torch._foreach_add_(params, [u.reshape(p.shape) for u, p in zip(updates, params, strict=True)])

    def _adam_step(self, params: list[Tensor], group: dict[str, Any]) -> None:
        gradients = _dense_gradients(params)
        for p in params:
            if "exp_avg" not in self.state[p]:
                self.state[p]["step"] = torch.zeros((), dtype=torch.float32, device="cpu")
                self.state[p]["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                self.state[p]["exp_avg_sq"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        adamw(
            params,
            gradients,
            [self.state[p]["exp_avg"] for p in params],
            [self.state[p]["exp_avg_sq"] for p in params],
            [],
            [self.state[p]["step"] for p in params],
            foreach=not isinstance(group["lr"], Tensor),  # torch has no such kernel for a rate in a tensor
            capturable=torch.compiler.is_compiling(),  # else it would read the number of the step from its tensor
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=group["maximize"],
        )


def _tensor(given: Any) -> Tensor:
    """The parameter of a pair of name and parameter, or the parameter itself."""
    tensor = given[1] if isinstance(given, tuple) else given
    if not isinstance(tensor, Tensor):
        raise TypeError(f"params: expected parameters or pairs of name and parameter, got {type(tensor).__name__}")
    return tensor


def _check_options(group: dict[str, Any]) -> None:
    for name in ("lr", "weight_decay", "momentum", "eps"):
        if name in group and not group[name] >= 0:
            raise ValueError(f"{name}: expected 0 or more, got {group[name]}")
    for name, numbers in (("momentum", [group.get("momentum", 0)]), ("betas", group.get("betas", []))):
        if not all(0 <= number < 1 for number in numbers):
            raise ValueError(f"{name}: expected 0 or more and less than 1, got {group[name]}")
    if group.get("ns_steps", 1) < 1:
        raise ValueError(f"ns_steps: expected at least 1, got {group['ns_steps']}")


def _check_matrices(given: Iterable[Any]) -> None:
    for tensor in map(_tensor, given):
        if not is_matrix(tensor):
            raise ValueError(
                f"params: Muon moves matrices of two rows and two columns or more, got shape {tuple(tensor.shape)}; "
                "give it to a group with 'method': 'adam'"
            )
        if tensor.is_complex():
            raise ValueError("params: Muon moves real matrices, got a complex one; give it to a group of Adam")


def _dense_gradients(params: list[Tensor]) -> list[Tensor]:
    gradients = [p.grad for p in params if p.grad is not None]
    if any(g.is_sparse for g in gradients):
        raise RuntimeError("params: a gradient is sparse, which Muon cannot handle; use an embedding with sparse=False")
    return gradients
