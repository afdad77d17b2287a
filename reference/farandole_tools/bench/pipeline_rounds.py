"""Pipelines that do the rounds of `pipeline_task.py` in turn: the program of the ranks.

    mpirun -n 4 python -m farandole_tools.bench.pipeline_rounds ROUNDS HIDDEN DEPTH BATCH MICRO_BATCHES SYSTEM ...

A system is one of our schedules, our layer split, or the name of a schedule's class in
torch.distributed.pipelining; or it computes alone, without messages, which no pipeline can be faster
than. After a first round, which is not timed, the losses are compared. Then all take turns, round after
round, so that a change in the machine's load meets all alike. Rank 0 prints what each did as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol

import numpy as np
import torch
from mpi4py import MPI

from farandole.data.shares import equal_shares, slices
from farandole.model_parallel.batches import CutBatch
from farandole.model_parallel.layout import Layout
from farandole.model_parallel.parts import Parts
from farandole.model_parallel.schedules import choose
from farandole.runtime.communicator import Communicator
from farandole.runtime.timing import slowest_s
from farandole.runtime.world import World
from farandole_tools.bench.pipeline_task import COMPUTING, LAYER_SPLIT, SCHEDULES, Measured, Task, check_losses


class System(Protocol):
    """A pipeline over all ranks.

    Attributes:
        bounds: where the model is cut, as in `Plan`.
    """

    bounds: list[int]

    def step(self) -> float:
        """A training step with the task's batch; returns the batch's loss on the last stage, 0 elsewhere."""
        ...


class OurPipeline:
    """One of our schedules."""

    def __init__(self, world: World, task: Task, schedule: str) -> None:
        options = task.options()
        torch.manual_seed(options.seed)
        layout = Layout(
            pipeline=world.size,
            schedule=choose(schedule),
            micro_batches=task.micro_batches,
            balance=options.balance,
        )
        self.parts = Parts(world, options, layout)
        self.bounds = self.parts.plan.bounds
        self.rows = [np.arange(part.start, part.stop) for part in slices(equal_shares(task.batch, task.micro_batches))]

    def step(self) -> float:
        count, whole = len(self.rows), sum(map(len, self.rows))
        batch = CutBatch(self.parts.shard, self.rows, [whole] * count, self.parts.loss)
        self.parts.pipeline.run(count, batch)
        self.parts.stage.meter.active = False  # as in a training: only the first step measures the memory
        return sum(batch.losses.values())


class NoMessages(Communicator):
    """Carries nothing: whatever is received is there at once, and is zeros."""

    def post(self, buffer: Any, to: int, tag: int, nbytes: int | None = None) -> MPI.Request:
        return MPI.REQUEST_NULL

    def arrived(self, tag: int, source: int = MPI.ANY_SOURCE) -> int | None:
        return source

    def take(self, buffer: Any, source: int, tag: int) -> None:
        buffer.fill(0)


class Computing(OurPipeline):
    """All stages compute the passes of 1F1B, and none waits for another."""

    def __init__(self, world: World, task: Task) -> None:
        super().__init__(world, task, "1f1b")
        group = self.parts.pipeline.comm
        self.parts.pipeline.comm = NoMessages(group.mpi, members=group.members)


def make(world: World, task: Task, name: str) -> System:
    """Return the system of that name. Collective."""
    if name == COMPUTING:
        return Computing(world, task)
    if name == LAYER_SPLIT:
        return OurPipeline(world, replace(task, micro_batches=1), "naive")
    if name in SCHEDULES:
        return OurPipeline(world, task, name)
    from farandole_tools.bench.pipeline_torch import TorchPipeline  # where it cannot be had, ours still can be measured

    return TorchPipeline(world, task, name)


def first_round(world: World, systems: Mapping[str, System]) -> None:
    """Take a step with each system, and compare their losses. Collective.

    Raises:
        LaunchError: one that exchanges messages has another loss than the first.
    """
    losses = np.array([system.step() for system in systems.values()], np.float64)
    world.control.Allreduce(MPI.IN_PLACE, losses)
    found = dict(zip(systems, losses.tolist(), strict=True))
    check_losses("the first round", {name: loss for name, loss in found.items() if name != COMPUTING})


def main() -> None:
    rounds, task, names = int(sys.argv[1]), Task.from_arguments(sys.argv[2:6]), sys.argv[6:]
    seconds = {name: [0.0] * rounds for name in names}
    losses = {name: np.zeros(rounds) for name in names}
    with World.start(task.options()) as world:
        systems = {name: make(world, task, name) for name in names}
        first_round(world, systems)

        def work() -> None:
            losses[name][number] = systems[name].step()

        for number in range(rounds):
            for name in names:
                seconds[name][number] = slowest_s(world.control, work)
        for values in losses.values():
            world.control.Allreduce(MPI.IN_PLACE, values)
    if world.rank == 0:
        found = {name: Measured(systems[name].bounds, seconds[name], losses[name].tolist()) for name in names}
        print(json.dumps({name: asdict(measured) for name, measured in found.items()}))


if __name__ == "__main__":
    main()
