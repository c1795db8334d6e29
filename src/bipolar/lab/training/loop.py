"""The training loop, one for all tasks."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bipolar._tools.files import locked, write_json
from bipolar.lab.provenance import provenance
from bipolar.lab.training.checkpoints import Checkpoints
from bipolar.lab.training.guard import Divergence, Guard
from bipolar.lab.training.journal import Journal, duration
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.processes import agreed, restore_rng, rng_states
from bipolar.lab.training.signals import stop_requests
from bipolar.lab.training.task import Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric

#: Seconds between two checkpoints by the clock, at least, and the share of a run's time that they may take.
SOON, SHARE = 1.0, 0.02
#: Steps that are timed before a run says how long it will take; the first few are slower and do not count.
WARM_UP, TIMED = 2, 5


@dataclass(frozen=True, kw_only=True)
class Length:
    """The length of a run, and how often it is saved, logged and judged."""

    max_epochs: int
    max_steps: int | None
    checkpoint_every: int
    log_every: int
    patience: int

    def total(self, steps_per_epoch: int) -> int:
        """The steps of the whole run."""
        total = self.max_epochs * steps_per_epoch
        return total if self.max_steps is None else min(total, self.max_steps)


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
        if machine.several:  # all processes start from the same weights, but draw their own dropout
            torch.manual_seed(seed * 1_000_003 + fabric.global_rank)
        loop = _Loop(task, config, out, length, fabric, show)
        if loop.journal is not None:
            stack.enter_context(loop.journal)
        return loop.run(stack.enter_context(stop_requests()))


class _Loop:
    """A run in progress: its position, and the stages of going on from there."""

    def __init__(
        self, task: Task, config: dict[str, Any], out: Path, length: Length, fabric: "Fabric", show: bool
    ) -> None:
        self.task, self.out, self.length, self.fabric = task, out, length, fabric
        self.checkpoints = Checkpoints(out / "checkpoints")
        self.guard = Guard(task.uniform, length.patience)
        self.total = length.total(task.steps_per_epoch)
        #: steps and epochs that are complete, and the steps of the current epoch
        self.step = self.epoch = self.index = 0
        #: one for each step since the last line of metrics
        self.losses: list[float] = []
        self.diverged: Divergence | None = None
        elapsed, journal_size = 0.0, 0
        saved = self.checkpoints.last()
        if saved is not None:
            self._load(saved)
            elapsed, journal_size = saved["loop"]["elapsed"], saved["loop"]["journal"]
        elif fabric.is_global_zero:
            write_json(out / "config.json", {**config, **provenance()})
        self.began = time.perf_counter() - elapsed
        self.first = self.step
        #: only in the process that writes
        self.journal: Journal | None = None
        if fabric.is_global_zero:
            self.journal = Journal(out, self.total, keep=journal_size, start=self.step, show=show)

    @property
    def seconds(self) -> float:
        """The seconds of the whole run so far, those before it was resumed included."""
        return time.perf_counter() - self.began

    def run(self, stop_requested: Callable[[], bool]) -> dict[str, Any]:
        """Trains to the end, to a divergence, or until a stop is requested; returns ``result.json``."""
        if self.index == 0 and self.step < self.total:
            self.task.start_epoch(self.epoch)
        self.task.model.train()
        self.timed_from = self.saved_at = time.perf_counter()
        self.saving_took = 0.0
        while self.step < self.total and not self.diverged:
            stopping = self._step(stop_requested)
            if stopping and self.step < self.total and not self.diverged:
                self._say(f"stopped at step {self.step:,}")
                return {"status": "stopped", "step": self.step}
        return self._finish()

    def _step(self, stop_requested: Callable[[], bool]) -> bool:
        """One step, the end of its epoch, and a checkpoint if one is due; returns whether any process is to stop."""
        loss, value = self.task.loss(self.index)
        self.fabric.backward(loss)
        self.task.optimizer.step()
        self.task.optimizer.zero_grad()
        number, stopping, saving = agreed(self.fabric, value, stop_requested(), self._checkpoint_is_due())
        self.step, self.index = self.step + 1, self.index + 1
        self.losses.append(number)
        self.diverged = self.guard.check(self.step, number)
        self._report(number)
        if self.step % self.length.log_every == 0:
            self.losses.clear()
        if not self.diverged and (self.index == self.task.steps_per_epoch or self.step == self.total):
            self._end_epoch()
        every = self.step % self.length.checkpoint_every == 0 or self.step == self.total
        if not self.diverged and (stopping or saving or every):
            self._save()
        return stopping

    def _end_epoch(self) -> None:
        """Validates, keeps the best model, and starts the next epoch."""
        self.task.model.eval()
        metrics = self.task.after_epoch(self.epoch, final=self.step == self.total)
        self.task.model.train()
        if metrics is not None:
            self._write(metrics)
        self.diverged = self.guard.check_evaluation(self.step, metrics or {})
        if self.diverged:
            return
        if self.index == self.task.steps_per_epoch:  # else the run ends within an epoch
            self.epoch, self.index = self.epoch + 1, 0
        if metrics is not None and self.task.is_best():
            self._write_checkpoint(self.checkpoints.save_best)
        if self.index == 0 and self.step < self.total:
            self.task.start_epoch(self.epoch)

    def _finish(self) -> dict[str, Any]:
        """Tests the best model, or the last, and writes ``result.json``."""
        result: dict[str, Any] = {"status": "finished", "step": self.step, "epoch": self.epoch}
        if not self.diverged:
            best = self.checkpoints.best()
            if best is not None:
                self.task.model.load_state_dict(best["model"])
                result["best_step"] = best["loop"]["step"]
            self.task.model.eval()
            metrics = self.task.test()
            self._write(metrics)
            self.diverged = self.guard.check_evaluation(self.step, metrics)
            result |= {} if self.diverged else metrics
        if self.diverged:
            step, reason = self.diverged.step, self.diverged.reason
            result |= {"status": "did not converge", "step": step, "reason": reason}
            self._say(f"did not converge: {reason} (step {step:,})")
        result["seconds"] = round(self.seconds, 1)
        if self.fabric.is_global_zero:
            write_json(self.out / "result.json", result)
        return result

    def _checkpoint_is_due(self) -> bool:
        since = time.perf_counter() - self.saved_at
        return self.fabric.is_global_zero and since > max(SOON, self.saving_took / SHARE)

    def _save(self) -> None:
        began = time.perf_counter()
        self._write_checkpoint(lambda state: self.checkpoints.save(self.step, state))
        self.saved_at = time.perf_counter()
        self.saving_took = self.saved_at - began

    def _write_checkpoint(self, write: Callable[[dict[str, Any]], object]) -> None:
        state = self._state()  # in all processes: each contributes its part
        if self.fabric.is_global_zero:
            write(state)
        self.fabric.barrier()

    def _state(self) -> dict[str, Any]:
        return {
            "model": self.task.model.state_dict(),
            "optimizer": self.task.optimizer.state_dict(),
            "task": self.task.state_dict(),
            "guard": self.guard.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "rng": rng_states(self.fabric),
            "loop": {
                "step": self.step,
                "epoch": self.epoch,
                "index": self.index,
                "losses": self.losses,
                "elapsed": self.seconds,
                "journal": self.journal.size if self.journal is not None else 0,
            },
        }

    def _load(self, saved: dict[str, Any]) -> None:
        self.task.model.load_state_dict(saved["model"])
        self.task.optimizer.load_state_dict(saved["optimizer"])
        self.task.load_state_dict(saved["task"])
        self.guard.load_state_dict(saved["guard"])
        self.fabric.strategy.precision.load_state_dict(saved["precision"])
        restore_rng(saved["rng"], self.fabric)
        loop = saved["loop"]
        self.step, self.epoch, self.index, self.losses = loop["step"], loop["epoch"], loop["index"], loop["losses"]

    def _report(self, loss: float) -> None:
        """Shows the progress of a step, and writes its line of metrics if there is one."""
        if self.journal is None:
            return
        done, left = self.step - self.first, self.total - self.step
        if done == WARM_UP:
            self.timed_from = time.perf_counter()
        pace = (time.perf_counter() - self.timed_from) / max(done - WARM_UP, 1)
        if done == WARM_UP + TIMED:
            self._say(f"{left:,} steps to go: about {duration(pace * left)}, validation not counted")
        self.journal.show(self.step, f"epoch {self.epoch + 1}, {self.task.unit} {loss:.3f}, {self.task.rate(pace)}")
        if self.step % self.length.log_every == 0 or self.step == self.total or self.diverged:
            recent = [loss] if self.diverged else self.losses
            self._write({f"train_{self.task.unit}": sum(recent) / len(recent)})

    def _write(self, metrics: dict[str, Any]) -> None:
        if self.journal is not None:
            self.journal.write(self.step, self.epoch, **metrics, seconds=self.seconds)

    def _say(self, text: str) -> None:
        if self.journal is not None:
            self.journal.say(text)
