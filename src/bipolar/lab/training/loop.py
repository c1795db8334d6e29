"""The training loop, one for all tasks."""

import contextlib
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from bipolar._tools.files import locked, read_json, write_json
from bipolar.lab.errors import UsageError
from bipolar.lab.provenance import provenance
from bipolar.lab.training.checkpoints import Checkpoints, weights_of
from bipolar.lab.training.config import RunConfig, described
from bipolar.lab.training.exported import export
from bipolar.lab.training.guard import Divergence, Guard, finite_gradients
from bipolar.lab.training.journal import Journal, duration
from bipolar.lab.training.processes import agreed, restore_rng, rng_states
from bipolar.lab.training.runs import length_of, stored
from bipolar.lab.training.signals import stop_requests
from bipolar.lab.training.task import Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric

#: Seconds between two checkpoints by the clock, at least, and the share of a run's time that they may take.
SOON, SHARE = 1.0, 0.02
#: Steps that are timed before a run says how long it will take; the first few are slower and do not count.
WARM_UP, TIMED = 2, 5


def train(config: RunConfig, task: Task, *, show: bool = True, **more: Any) -> dict[str, Any]:
    """Trains ``task`` by a prepared configuration, from the last checkpoint of its directory if there is one.

    A run that was stopped at any moment goes on from its last checkpoint as if nothing had happened: to the last bit,
    on the same machine with the same number of threads. A run that has ended stays as it is, unless its configuration
    has become longer.

    Args:
        config: the configuration
        task: the task of the configuration
        show: whether to show progress
        **more: goes into ``config.json``

    Returns:
        ``result.json``
    """
    machine, seed = config.machine, config.seed
    ended = ended_run(config)
    if ended is not None:
        return ended
    fabric = machine.fabric()
    if machine.several:
        fabric.launch()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=range(torch.cuda.device_count())))
        torch.manual_seed(seed)
        task.setup(fabric)  # which may refuse the configuration: nothing has been written yet
        if fabric.is_global_zero:
            stack.enter_context(locked(config.directory))
        if machine.several:  # all processes start from the same weights, but draw their own dropout
            torch.manual_seed(seed * 1_000_003 + fabric.global_rank)
        loop = _Loop(task, config, more, fabric, show)
        if loop.journal is not None:
            stack.enter_context(loop.journal)
        return loop.run(stack.enter_context(stop_requests()))


def ended_run(config: RunConfig) -> dict[str, Any] | None:
    """The result of a run that has ended by this configuration."""
    try:
        result: dict[str, Any] = read_json(config.directory / "result.json")
        same = length_of(stored(config.directory)) == length_of({"config": config.to_json()})
    except (OSError, ValueError, UsageError):  # missing or damaged: the run goes on from its checkpoints
        return None
    return result if same and isinstance(result, dict) else None


class _Loop:
    """A run in progress: its position, and the stages of going on from there."""

    def __init__(self, task: Task, config: RunConfig, more: dict[str, Any], fabric: "Fabric", show: bool) -> None:
        self.task, self.out, self.length, self.fabric = task, config.directory, config.length, fabric
        self.checkpoints = Checkpoints(self.out / "checkpoints")
        self.guard = Guard(task.uniform, self.length.patience, config.update.rescues or 0)
        self.total = self.length.total(task.steps_per_epoch)
        #: steps and epochs that are complete, and the steps of the current epoch
        self.step = self.epoch = self.index = 0
        #: one for each step since the last line of metrics
        self.losses: list[float] = []
        self.diverged: Divergence | None = None
        elapsed, journal_size = 0.0, 0
        saved = self.checkpoints.last()
        if saved is not None:
            try:
                self._load(saved)
                elapsed, journal_size = float(saved["loop"]["elapsed"]), int(saved["loop"]["journal"])
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
                raise UsageError(
                    f"{self.checkpoints.directory}: the last checkpoint is not one of this run ({error}); remove it, "
                    "or the run"
                ) from None
        values = {**described(config), "steps": self.total, **more, **provenance()}
        extension = None if saved is None else self._extended(values)
        if fabric.is_global_zero and (saved is None or extension is not None):
            write_json(self.out / "config.json", values)
            (self.out / "result.json").unlink(missing_ok=True)
        self.began = time.perf_counter() - elapsed
        self.first = self.step
        #: only in the process that writes
        self.journal: Journal | None = None
        if fabric.is_global_zero:
            self.journal = Journal(self.out, self.total, keep=journal_size, start=self.step, show=show)
        if extension is not None:
            self._say(extension)

    def _extended(self, values: dict[str, Any]) -> str | None:
        """If the run becomes longer, notes that in the ``values`` of its ``config.json``; returns a sentence on it."""
        before = stored(self.out)
        if length_of(before) == length_of(values):
            return None
        if self.total <= self.step:
            raise UsageError(
                f"{self.out}: the run has {self.step:,} steps already; more than that would make it longer"
            )
        values["extended"] = [*before.get("extended", []), {"step": self.step, "total": self.total}]
        goes_on = self.task.schedule_from(self.step, self.total)
        return f"{self.out}: goes on after step {self.step:,}, to step {self.total:,}. {goes_on}"

    @property
    def seconds(self) -> float:
        """The seconds of the whole run so far, those before it was resumed included."""
        return time.perf_counter() - self.began

    @property
    def current_epoch(self) -> int:
        """The epoch of the last step, counted from 1, as everywhere that people read."""
        return self.epoch + (self.index > 0)

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
                if not self.checkpoints.has_best:
                    self._export()
                self._say(f"stopped at step {self.step:,}")
                return {"status": "stopped", "step": self.step}
        return self._finish()

    def _step(self, stop_requested: Callable[[], bool]) -> bool:
        """One step, the end of its epoch, and a checkpoint if one is due; returns whether any process is to stop."""
        buffers = [buffer.clone() for buffer in self.task.model.buffers()] if self.guard.rescues else []
        loss, value = self.task.loss(self.index)
        self.fabric.backward(loss)
        if self.guard.rescues and not finite_gradients(self.task.model):
            value = torch.full_like(value, math.inf)
        number, stopping, saving = agreed(self.fabric, value, stop_requested(), self._checkpoint_is_due())
        rescued = self.guard.rescue(number)
        if rescued:
            self.task.forget()
            for buffer, before in zip(self.task.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
        else:
            if self.task.schedule is not None:
                self.task.schedule.before(self.step, self.total)
            self.task.optimizer.step()
        self.task.optimizer.zero_grad()
        if self.task.average is not None:
            self.task.average.update(self.step + 1)
        self.step, self.index = self.step + 1, self.index + 1
        if rescued:
            self._say(f"rescued at step {self.step:,}: the loss was {number:.3g}; its step was not taken")
            self._write({f"exploded_{self.task.unit}": number})
        else:
            self.losses.append(number)
            self.diverged = self.guard.check(self.step, number)
        self._report(number)
        if self.step % self.length.log_every == 0:
            self.losses.clear()
        if not self.diverged and (self.index == self.task.steps_per_epoch or self.step == self.total):
            self._end_epoch()
        elif not self.diverged and self.task.look_every is not None and self.step % self.task.look_every == 0:
            self._look()
        every = self.step % self.length.checkpoint_every == 0 or self.step == self.total
        if not self.diverged and (stopping or saving or every):
            self._save()
        return stopping

    def _look(self) -> None:
        """Writes the validation error within an epoch."""
        self.task.model.eval()
        metrics = self.task.look()
        self.task.model.train()
        self._write(metrics)
        self.diverged = self.guard.check_evaluation(self.step, metrics)

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
            self._export()
        if self.index == 0 and self.step < self.total:
            self.task.start_epoch(self.epoch)

    def _finish(self) -> dict[str, Any]:
        """Tests the best model, or the last, and writes ``result.json``."""
        result: dict[str, Any] = {"status": "finished", "step": self.step, "epoch": self.current_epoch}
        if not self.diverged:
            best = self.checkpoints.best()
            if best is not None:
                self.task.model.load_state_dict(weights_of(best))
                self.task.weights = best.get("weights", "raw")
                result["best_step"] = best["loop"]["step"]
            else:
                self._export()
            if self.task.average is not None:
                result["weights"] = self.task.weights
            self.task.model.eval()
            metrics = self.task.test()
            self._write(metrics)
            self.diverged = self.guard.check_evaluation(self.step, metrics)
            result |= {} if self.diverged else metrics | self.task.outcome
        if self.diverged:
            step, reason = self.diverged.step, self.diverged.reason
            result |= {"status": "did not converge", "step": step, "reason": reason}
            self._say(f"did not converge: {reason} (step {step:,})")
        result |= {"rescued": self.guard.rescued} if self.guard.rescued else {}
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

    def _export(self) -> None:
        """Writes the model as others read it."""
        model = self.task.portable()
        if model is not None and self.fabric.is_global_zero:
            with self.task.counting():
                export(model, self.out)

    def _state(self) -> dict[str, Any]:
        average = self.task.average
        averaged = {} if average is None else {"average": average.state_dict(), "weights": self.task.weights}
        return averaged | {
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
        if self.task.average is not None:
            self.task.average.load_state_dict(saved["average"])
            self.task.weights = saved["weights"]
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
        self.journal.show(self.step, f"epoch {self.current_epoch}, {self.task.unit} {loss:.3f}, {self.task.rate(pace)}")
        if self.step % self.length.log_every == 0 or self.step == self.total or self.diverged:
            recent = [loss] if self.diverged else self.losses
            if not recent:  # all steps since the last line were rescued, and have lines of their own
                return
            rate = float(self.task.optimizer.param_groups[0]["lr"])
            self._write({f"train_{self.task.unit}": sum(recent) / len(recent), "lr": rate})

    def _write(self, metrics: dict[str, Any]) -> None:
        if self.journal is not None:
            self.journal.write(self.step, self.current_epoch, **metrics, seconds=self.seconds)

    def _say(self, text: str) -> None:
        if self.journal is not None:
            self.journal.say(text)
