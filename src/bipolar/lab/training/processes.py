"""Values that the processes of a run share."""

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from bipolar.lab.errors import UsageError

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def is_chief() -> bool:
    """Whether this is the one process that writes files and prints."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def without_fabric(model: nn.Module) -> nn.Module:
    """The model that fabric has set up, without fabric's wrapper."""
    return cast(nn.Module, model.module) if type(model).__module__.startswith("lightning_fabric") else model


def share_of_batch(batch_size: int, fabric: "Fabric") -> slice:
    """The part of each batch that this process takes."""
    if batch_size % fabric.world_size:
        raise UsageError(f"--batch-size {batch_size}: {fabric.world_size} processes cannot share it evenly")
    share = batch_size // fabric.world_size
    return slice(fabric.global_rank * share, (fabric.global_rank + 1) * share)


def mean_over_processes(fabric: "Fabric", value: Tensor) -> float:
    return float(cast(Tensor, fabric.all_reduce(value.detach(), reduce_op="mean")))


def agreed(fabric: "Fabric", value: Tensor, stop: bool, save: bool) -> tuple[float, bool, bool]:
    """The mean of ``value`` over all processes, and whether any of them wants to stop or to save: they act as one."""
    if fabric.world_size == 1:
        return float(value.detach()), stop, save
    every = torch.stack((value.detach(), torch.full_like(value, stop), torch.full_like(value, save)))
    mean, stopping, saving = cast(Tensor, fabric.all_reduce(every, reduce_op="mean")).tolist()
    return mean, stopping > 0, saving > 0


def of_all_processes(state: Tensor, fabric: "Fabric") -> Tensor:
    """The tensors of all processes, one a row."""
    rows = cast(Tensor, fabric.all_gather(state)) if fabric.world_size > 1 else state
    return rows.reshape(fabric.world_size, -1).cpu()


def of_process(rows: Tensor, fabric: "Fabric") -> Tensor:
    """The row of this process, copied: a generator takes no view."""
    return rows[fabric.global_rank].clone()


def rng_states(fabric: "Fabric") -> dict[str, Tensor]:
    """The states of torch's generators, of all processes."""
    states = {"cpu": torch.get_rng_state()}
    if fabric.device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(fabric.device)
    return {name: of_all_processes(state, fabric) for name, state in states.items()}


def restore_rng(states: dict[str, Tensor], fabric: "Fabric") -> None:
    """Restores the states that :func:`rng_states` returned, unless the number of processes has changed."""
    if len(states["cpu"]) != fabric.world_size:
        return
    torch.set_rng_state(of_process(states["cpu"], fabric))
    if "cuda" in states and fabric.device.type == "cuda":
        torch.cuda.set_rng_state(of_process(states["cuda"], fabric), fabric.device)
