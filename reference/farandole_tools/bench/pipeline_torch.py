"""torch.distributed.pipelining on gloo, doing the step of `pipeline_task.py`.

It is used in its documented way for a model that is cut by hand: each piece a ``PipelineStage``
whose shapes are given beforehand, one of its schedules over them, and ``schedule.step`` with the
whole batch. Up to torch 2.7 it hung on gloo, because it lost sight of messages
(pytorch/pytorch#132644).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from farandole.data_parallel.process_group import join_process_group
from farandole.model_parallel.layer_split import Plan, cut
from farandole.runtime.world import World
from farandole.tasks import mean_cross_entropy
from farandole_tools.bench.pipeline_task import Task

# Some take one stage, some a list.
CLASSES: dict[str, Callable[..., Any]] = {
    "Schedule1F1B": lambda stages, *more: Schedule1F1B(*stages, *more),
    "ScheduleGPipe": lambda stages, *more: ScheduleGPipe(*stages, *more),
    "ScheduleInterleaved1F1B": ScheduleInterleaved1F1B,
    "ScheduleInterleavedZeroBubble": ScheduleInterleavedZeroBubble,
}
CHUNKS = {"ScheduleInterleaved1F1B": 2}  # pieces on each rank, where there are several


class TorchPipeline:
    """One of torch's schedules."""

    def __init__(self, world: World, task: Task, name: str) -> None:
        if not dist.is_initialized():
            join_process_group(world, task.options().wait_timeout)
        plan, stages = cut_by_hand(task, world, CHUNKS.get(name, 1))
        self.bounds = plan.bounds
        self.micro_batches = task.micro_batches
        self.schedule = CLASSES[name](stages, task.micro_batches, mean_cross_entropy)
        parameters = [parameter for stage in stages for parameter in stage.submod.parameters()]
        self.optimizer = torch.optim.SGD(parameters, lr=task.options().lr)
        inputs, self.targets = task.text()
        self.given = (inputs,) if stages[0].is_first else ()

    def step(self) -> float:
        losses: list[Tensor] = []  # of the micro-batches, on the last stage
        self.optimizer.zero_grad()
        self.schedule.step(*self.given, target=self.targets, losses=losses, return_outputs=False)
        self.optimizer.step()
        return sum(loss.item() for loss in losses) / self.micro_batches


def cut_by_hand(task: Task, world: World, chunks: int) -> tuple[Plan, list[PipelineStage]]:
    """Where the model is cut, and this rank's stages with one micro-batch's shapes before and after each."""
    layers, inputs = list(task.model()), task.text()[0][: task.batch // task.micro_batches]
    plan, stages = cut(layers, inputs, world.size * chunks, task.options().balance), []
    for virtual, part in enumerate(plan.parts):
        piece = nn.Sequential(*layers[part])
        outputs = piece(inputs).detach().requires_grad_()
        if virtual % world.size == world.rank:
            stage = PipelineStage(piece, virtual, len(plan.parts), world.device, input_args=inputs, output_args=outputs)
            stages.append(stage)
        inputs = outputs
    return plan, stages
