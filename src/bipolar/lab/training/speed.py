"""The duration of a training step, measured."""

import time

import torch

from bipolar.lab.training.machine import Machine
from bipolar.lab.training.task import Task

#: Steps that are measured, after a first one that is slower.
STEPS = 5


def seconds_per_step(task: Task, machine: Machine) -> float:
    """The seconds that a step of a task takes on this machine: the mean of a few."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        task.setup(machine.fabric())
        task.start_epoch(0)
        task.model.train()
        for index in range(1 + STEPS):
            if index == 1:
                start = time.perf_counter()
            loss, _ = task.loss(index % task.steps_per_epoch)
            loss.backward()
            task.optimizer.step()
            task.optimizer.zero_grad()
        return (time.perf_counter() - start) / STEPS
