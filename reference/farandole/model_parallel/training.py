"""The common parts of all model-parallel scenarios: the loop over steps, the losses, the record.

In the end rank 0 gathers the whole model and judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from torch import nn

from farandole.data import batch as batches
from farandole.data_parallel.evaluation import judged
from farandole.distributed_checkpoint import saving
from farandole.model_parallel.accounting import account
from farandole.model_parallel.batches import Shard
from farandole.model_parallel.layout import Layout
from farandole.model_parallel.options import ModelParallelOptions
from farandole.model_parallel.parts import Parts
from farandole.model_parallel.pieces import pieces
from farandole.model_parallel.steps import Times
from farandole.runtime.buffers import sha256
from farandole.runtime.progress import progress
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


def train(scenario: str, options: ModelParallelOptions, layout: Callable[[int], Layout]) -> Summary | None:
    """Cut, send, train, gather, evaluate and write the record; the summary on rank 0, None elsewhere.

    Args:
        layout: number of ranks → how the model is spread over them.
    """
    with World.start(options) as world:
        parts = Parts(world, options, layout(world.size))
        saving.begin(options, lambda: pieces(parts), [parts.optimizer.optimizer], world.control)
        recorder = Recorder(world, scenario, options)
        write_plan(parts, recorder)
        summary = finish(parts, recorder, loop(parts, recorder))
        saving.end(options, lambda: pieces(parts), parts.optimizer.optimizer, world.control)
        return summary


def write_plan(parts: Parts, recorder: Recorder) -> None:
    """Say in the record which layers are where."""
    recorder.write_beside("plan.json", parts.plan.to_json())


def take_step(parts: Parts, step: int, losses: Losses) -> None:
    """One batch through a pipeline that flushes: all its micro-batches, then an update of all stages."""
    batch = parts.shard.cut(step, parts.layout.micro_batches, parts.loss)
    parts.pipeline.run(parts.layout.micro_batches, batch)
    losses.add(step, sum(batch.losses.values()))
    parts.stage.meter.active = False  # every step holds as much as the first


def _judged(model: nn.Module, parts: Parts) -> dict[str, float]:
    """Return the metrics of the model, converted to the type of the test inputs; float32 if these are numbers."""
    test, device = parts.splits.test, parts.world.device
    inputs = next(batches.leaves(test.on(device)[np.arange(0)]))
    model.to(inputs.dtype if inputs.is_floating_point() else torch.float32)
    return judged(model, test, device, parts.task.metrics)


def finish(
    parts: Parts, recorder: Recorder, losses: Losses, root: int = 0, faults: Sequence[dict[str, Any]] = ()
) -> Summary | None:
    """Gather, evaluate and write the record. Collective.

    Args:
        root: the rank of `world.comm` that judges the model, and writes.
        faults: what has gone wrong, and been made good.
    """
    final_loss, model, steps = losses.log(parts), parts.gather(root), parts.options.steps
    if parts.stage.offload:
        parts.stage.offload.close()
    return recorder.finish(
        steps=steps,
        samples=sum(map(parts.shard.whole, range(steps))),
        final_loss=final_loss,
        test_metrics=_judged(model, parts) if model else None,
        params_sha256=sha256(parts.module),
        memory=account(parts),
        roles=parts.roles(),
        faults=faults,
    )


def pace(milliseconds: float) -> Times | None:
    """Every pass of a stage takes at least so long; 0: as long as it takes."""
    return Times(*[milliseconds / 1000] * 3) if milliseconds else None


def loop(parts: Parts, recorder: Recorder) -> Losses:
    """All steps: after each batch an update of all stages, or an endless pipeline with an update per batch."""
    world, steps = parts.world, parts.options.steps
    losses = Losses(steps, recorder)
    recorder.start()
    if parts.schedule.flushes:
        for step in progress(world.steps(steps), steps, world.rank):
            take_step(parts, step, losses)
    else:
        parts.pipeline.run(steps, parts.shard.stream(steps, parts.loss, losses.add))
    recorder.stop()
    return losses


class Losses:
    """The loss of each step on this rank's last stage, with the time at which it was known."""

    def __init__(self, steps: int, recorder: Recorder) -> None:
        self.recorder = recorder
        self.weighted = np.zeros(steps)
        self.wall_s = np.zeros(steps)

    def add(self, step: int, weighted: float) -> None:
        """A batch's mean loss times the batch's share of the step."""
        self.recorder.watch(step, weighted)
        self.weighted[step], self.wall_s[step] = weighted, self.recorder.elapsed_s

    def log(self, parts: Parts) -> float:
        """Add up all pipelines' losses, write metrics.jsonl, and return the last one. Collective.

        What each rank knows stays as it is: where stages may die it is asked for again.
        """
        known_here = parts.place["tensor"] == 0  # every tensor rank has the same loss
        return self.add_up(parts.world, parts.shard, known_here)

    def add_up(
        self, world: World, shard: Shard, known_here: bool = True, beside: Sequence[Mapping[str, float]] = ()
    ) -> float:
        """Add up all ranks' parts of each loss, write metrics.jsonl, and return the last loss. Collective.

        Args:
            known_here: whether this rank's losses count.
            beside: for each step what else its line is to have, the same on all ranks; none: nothing.
        """
        losses = self.weighted.copy() if known_here else np.zeros_like(self.weighted)  # 0 times infinity is no number
        walls_s = self.wall_s.copy()
        with world.comm.waiting("sum of losses", -1):
            world.control.Allreduce(MPI.IN_PLACE, losses)
            world.control.Allreduce(MPI.IN_PLACE, walls_s, MPI.MAX)
        for step, (loss, wall_s) in enumerate(zip(losses, walls_s, strict=True)):
            more = beside[step] if beside else {}
            self.recorder.log(step=step, wall_s=float(wall_s), loss=float(loss), samples=shard.whole(step), **more)
        return float(losses[-1])
