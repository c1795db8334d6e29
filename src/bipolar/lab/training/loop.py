"""The training loop: one for all tasks."""

import contextlib
import json
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor, nn

from bipolar._tools.files import locked, write_json
from bipolar.lab.errors import UsageError
from bipolar.lab.provenance import provenance
from bipolar.lab.training.checkpoints import Checkpoints
from bipolar.lab.training.guard import Divergence, Guard
from bipolar.lab.training.journal import Journal, duration

if TYPE_CHECKING:
    from lightning_fabric import Fabric

#: Seconds after which a run is saved, at the soonest; and the share of its time that saving may take.
SOON, SHARE = 1.0, 0.02
#: Steps that are timed before a run says how long it will take; the first few are slower and do not count.
WARM_UP, TIMED = 2, 5


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a run is computed."""

    accelerator: str = "auto"
    """``cpu``, ``cuda``, ``mps``, or ``auto`` for what there is."""
    devices: int = 1
    """Devices, or processes on a CPU, for each node."""
    num_nodes: int = 1
    """Nodes."""
    precision: Literal["32-true", "16-mixed", "bf16-mixed", "64-true"] = "32-true"
    """The precision of the arithmetic."""

    @property
    def several(self) -> bool:
        return self.devices * self.num_nodes > 1

    def fabric(self) -> "Fabric":
        for name in ("devices", "num_nodes"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} {getattr(self, name)}: expected at least 1")
        from lightning_fabric import Fabric  # which takes two seconds, and not every command trains

        try:
            return Fabric(
                accelerator=self.accelerator,
                devices=self.devices,
                num_nodes=self.num_nodes,
                precision=self.precision,
                strategy="ddp" if self.several else "auto",
            )
        except (ValueError, RuntimeError, ImportError) as error:  # such as no GPU
            raise UsageError(f"--accelerator {self.accelerator} --precision {self.precision}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Length:
    """How long a run goes on, and how often it is saved."""

    max_epochs: int
    max_steps: int | None
    checkpoint_every: int
    log_every: int
    patience: int

    def total(self, steps_per_epoch: int) -> int:
        """The steps of the whole run."""
        total = self.max_epochs * steps_per_epoch
        return total if self.max_steps is None else min(total, self.max_steps)


class Task(ABC):
    """What is trained: a model, its data, its schedule. The loop knows nothing else of it."""

    #: what the loss is called in the metrics, such as ``bpc``
    unit: str
    model: nn.Module
    optimizer: torch.optim.Optimizer

    @abstractmethod
    def setup(self, fabric: "Fabric") -> None:
        """Makes model, optimizer and data, for this process."""

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int: ...

    @property
    @abstractmethod
    def uniform(self) -> float:
        """The loss of a uniform guess, in the unit of the metrics."""

    @abstractmethod
    def start_epoch(self, epoch: int) -> None: ...

    @abstractmethod
    def loss(self, index: int) -> tuple[Tensor, Tensor]:
        """The loss to differentiate, and the same in the unit of the metrics, for a batch of the epoch."""

    @abstractmethod
    def after_epoch(self, epoch: int, final: bool) -> dict[str, Any] | None:
        """Validates if it is time to, adapts the schedule; returns metrics."""

    @abstractmethod
    def is_best(self) -> bool:
        """Whether the last validation was the best so far."""

    @abstractmethod
    def test(self) -> dict[str, Any]:
        """Metrics on the test set."""

    @abstractmethod
    def rate(self, seconds: float) -> str:
        """How fast it goes, from the seconds of a step, such as ``31,000 characters/s``."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """What a run needs to go on besides model and optimizer. Called in all processes."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def train(
    task: Task, config: dict[str, Any], out: Path, length: Length, machine: Machine, seed: int, show: bool = True
) -> dict[str, Any]:
    """Trains ``task`` in the directory ``out``, from its last checkpoint if there is one; returns ``result.json``.

    A run that was stopped at any moment goes on from its last checkpoint as if nothing had happened: to the last bit,
    on the same machine with the same number of threads.
    """
    fabric = machine.fabric()
    if machine.several:
        fabric.launch()
    with contextlib.ExitStack() as stack:
        if fabric.is_global_zero:
            stack.enter_context(locked(out))
        stack.enter_context(torch.random.fork_rng(devices=range(torch.cuda.device_count())))
        torch.manual_seed(seed)
        task.setup(fabric)
        if machine.several:  # the same start for all, but then each its own dropout
            torch.manual_seed(seed * 1_000_003 + fabric.global_rank)
        return _train(task, config, out, length, fabric, show)


def _train(
    task: Task, config: dict[str, Any], out: Path, length: Length, fabric: "Fabric", show: bool
) -> dict[str, Any]:
    model, optimizer = task.model, task.optimizer
    chief = fabric.is_global_zero
    checkpoints = Checkpoints(out / "checkpoints")
    total = length.total(task.steps_per_epoch)
    guard = Guard(task.uniform, length.patience)
    step = epoch = index = journal_size = 0
    elapsed, losses = 0.0, list[float]()
    saved = checkpoints.last()
    if saved is not None:
        step, epoch, index, elapsed = (saved["loop"][name] for name in ("step", "epoch", "index", "elapsed"))
        journal_size = saved["loop"]["journal"]
        losses = saved["loop"]["losses"]
        _load(task, guard, fabric, saved)
    elif chief:
        write_json(out / "config.json", {**config, **provenance()})
    start, first = time.perf_counter() - elapsed, step
    journal = Journal(out, total, keep=journal_size, start=step, show=show) if chief else None
    diverged: Divergence | None = None
    with contextlib.ExitStack() as stack:
        if journal is not None:
            stack.enter_context(journal)
        stop = stack.enter_context(_stop_signals())

        def save(best: bool = False) -> None:
            state = {
                "model": task.model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "task": task.state_dict(),
                "guard": guard.state_dict(),
                "precision": fabric.strategy.precision.state_dict(),
                "rng": _rng_states(fabric),
                "loop": {
                    "step": step,
                    "epoch": epoch,
                    "index": index,
                    "losses": losses,
                    "elapsed": time.perf_counter() - start,
                    "journal": journal.size if journal is not None else 0,
                },
            }
            if chief:
                checkpoints.save_best(state) if best else checkpoints.save(step, state)
            fabric.barrier()

        if index == 0 and step < total:
            task.start_epoch(epoch)
        model.train()
        clock = saved_at = time.perf_counter()
        cost = 0.0
        while step < total:
            loss, value = task.loss(index)
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            due = chief and time.perf_counter() - saved_at > max(SOON, cost / SHARE)
            number, stopping, saving = _together(fabric, value, stop(), due)
            step, index = step + 1, index + 1
            losses.append(number)
            diverged = guard.check(step, number)
            if journal is not None:
                seconds = time.perf_counter() - start
                if step - first == WARM_UP:
                    clock = time.perf_counter()
                if step - first == WARM_UP + TIMED:
                    remaining = (time.perf_counter() - clock) / TIMED * (total - step)
                    journal.say(f"{total - step:,} steps to go: about {duration(remaining)}, validation not counted")
                pace = (time.perf_counter() - clock) / max(step - first - WARM_UP, 1)
                journal.show(step, f"epoch {epoch + 1}, {task.unit} {number:.3f}, {task.rate(pace)}")
                if step % length.log_every == 0 or step == total or diverged:
                    recent = [number] if diverged else losses
                    journal.write(step, epoch, **{f"train_{task.unit}": sum(recent) / len(recent)}, seconds=seconds)
            if step % length.log_every == 0:
                losses.clear()
            if diverged:
                break
            if index == task.steps_per_epoch or step == total:
                model.eval()
                metrics = task.after_epoch(epoch, final=step == total)
                model.train()
                if metrics is not None and journal is not None:
                    journal.write(step, epoch, **metrics, seconds=time.perf_counter() - start)
                diverged = guard.check_evaluation(step, metrics or {})
                if diverged:
                    break
                epoch, index = (epoch + 1, 0) if index == task.steps_per_epoch else (epoch, index)
                if metrics is not None and task.is_best():
                    save(best=True)
                if index == 0 and step < total:
                    task.start_epoch(epoch)
            if stopping or saving or step % length.checkpoint_every == 0 or step == total:
                began = time.perf_counter()
                save()
                saved_at = time.perf_counter()
                cost = saved_at - began
                if stopping and step < total:
                    if journal is not None:
                        journal.say(f"stopped at step {step:,}")
                    return {"status": "stopped", "step": step}
        result: dict[str, Any] = {"status": "finished", "step": step, "epoch": epoch}
        if not diverged:
            best = checkpoints.best()
            if best is not None:
                task.model.load_state_dict(best["model"])
                result["best_step"] = best["loop"]["step"]
            model.eval()
            metrics = task.test()
            if journal is not None:
                journal.write(step, epoch, **metrics, seconds=time.perf_counter() - start)
            diverged = guard.check_evaluation(step, metrics)
            result |= {} if diverged else metrics
        if diverged:
            result |= {"status": "did not converge", "step": diverged.step, "reason": diverged.reason}
            if journal is not None:
                journal.say(f"did not converge: {diverged.reason} (step {diverged.step:,})")
        result["seconds"] = round(time.perf_counter() - start, 1)
        if chief:
            write_json(out / "result.json", result)
    return result


def _load(task: Task, guard: Guard, fabric: "Fabric", saved: dict[str, Any]) -> None:
    task.model.load_state_dict(saved["model"])
    task.optimizer.load_state_dict(saved["optimizer"])
    task.load_state_dict(saved["task"])
    guard.load_state_dict(saved["guard"])
    fabric.strategy.precision.load_state_dict(saved["precision"])
    # of another number of processes: each begins anew
    if len(saved["rng"]["cpu"]) == fabric.world_size:
        states = {name: of_process(state, fabric) for name, state in saved["rng"].items()}
        torch.set_rng_state(states["cpu"])
        if "cuda" in states and fabric.device.type == "cuda":
            torch.cuda.set_rng_state(states["cuda"], fabric.device)


def _rng_states(fabric: "Fabric") -> dict[str, Tensor]:
    """The states of torch's generators, of all processes."""
    states = {"cpu": torch.get_rng_state()}
    if fabric.device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(fabric.device)
    return {name: of_all_processes(state, fabric) for name, state in states.items()}


def of_all_processes(state: Tensor, fabric: "Fabric") -> Tensor:
    """The tensors of all processes, one a row."""
    rows = cast(Tensor, fabric.all_gather(state)) if fabric.world_size > 1 else state
    return rows.reshape(fabric.world_size, -1).cpu()


def of_process(rows: Tensor, fabric: "Fabric") -> Tensor:
    """This process's row. A copy: a generator takes no view."""
    return rows[fabric.global_rank].clone()


def _together(fabric: "Fabric", value: Tensor, stop: bool, save: bool) -> tuple[float, bool, bool]:
    """The mean of a value over all processes, and whether any of them is to stop, or to save: they act as one."""
    if fabric.world_size == 1:
        return float(value.detach()), stop, save
    every = torch.stack((value.detach(), torch.full_like(value, stop), torch.full_like(value, save)))
    mean, stopping, saving = cast(Tensor, fabric.all_reduce(every, reduce_op="mean")).tolist()
    return mean, stopping > 0, saving > 0


def seconds_per_step(task: Task, machine: Machine) -> float:
    """How long a step of a task takes here, from a few of them."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        task.setup(machine.fabric())
        task.start_epoch(0)
        task.model.train()
        for index in range(1 + TIMED):
            if index == 1:  # the first is slower
                start = time.perf_counter()
            loss, _ = task.loss(index % task.steps_per_epoch)
            loss.backward()
            task.optimizer.step()
            task.optimizer.zero_grad()
        return (time.perf_counter() - start) / TIMED


@contextlib.contextmanager
def _stop_signals() -> Iterator[Any]:
    """A function that says whether the run was asked to stop, by Ctrl-C or SIGTERM. A second one stops at once."""
    asked = False

    def note(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = {}
    with contextlib.suppress(ValueError):  # not in the main thread: whoever is there handles signals
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_chief() -> bool:
    """Whether this is the process that writes, of however many."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def unwrapped(model: nn.Module) -> nn.Module:
    """A model as it was before fabric set it up."""
    return cast(nn.Module, model.module) if type(model).__module__.startswith("lightning_fabric") else model


def mean_over_processes(fabric: "Fabric", value: Tensor) -> float:
    return float(cast(Tensor, fabric.all_reduce(value.detach(), reduce_op="mean")))


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """The rows of a run's ``metrics.jsonl``; a last line that was cut off is left out."""
    path = directory / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = []
    for line in lines:
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows
