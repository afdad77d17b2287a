"""The devices of this launch, measured: speed, overhead, link and memory of every rank.

All ranks run the whole model forward and backward at the same time, since they will also compete for cores when they
train: once with a whole batch and once with an eighth of it. Speed and overhead follow from the two times, for L
layers:

    t(rows) = L·overhead + 3·operations·rows / speed

The link: all-gathers of several lengths (`calibration.network`). A rank that `--slow` slows down is slow here too,
and a link of `--link-mbps` has that speed.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import psutil
import torch
from torch import Tensor, nn

from farandole.cost.calibration import network
from farandole.cost.layer_costs import ModelCost
from farandole.cost.modes import Device
from farandole.models.operations import FORWARD_AND_BACKWARD
from farandole.runtime.world import World
from farandole.tasks import mean_cross_entropy

WARM_UP, REPEATS = 2, 5
LESS = 8  # times as many samples in a whole batch as in the smaller one


def measured(
    world: World,
    model: nn.Sequential,
    cost: ModelCost,
    samples: tuple[Tensor, Tensor],
    flops: float | None = None,
    memory: float | None = None,
) -> list[Device]:
    """Measure every rank's device; the same list on all ranks. Collective.

    Args:
        samples: inputs and targets of a whole batch.
        flops, memory: operations a second and bytes of each rank, if known; with `flops` the overhead is 0.
    """
    own = np.array([flops or 0.0, memory or _free_memory(world), 0.0])
    if flops is None:
        own[0], own[2] = _speed(world, model, cost, samples)
    everything = np.empty((world.size, len(own)))
    with world.comm.waiting("measurements of all ranks", -1):
        world.control.Allgather(own, everything)
    parameters = sum(layer.weights + layer.vectors for layer in cost.layers) * cost.bytes_each
    link = network(world, parameters)
    return [Device(float(speed), float(room), link, float(overhead_s)) for speed, room, overhead_s in everything]


def fitted(fewer: tuple[int, float], more: tuple[int, float], operations: float, layers: int) -> tuple[float, float]:
    """Return operations a second and seconds of overhead per layer, from (rows, seconds) of two batches.

    The overhead is 0 where the larger batch is no slower, or where the times would make it negative.
    """
    (few, short_s), (many, long_s) = fewer, more
    if many > few and long_s > short_s:
        flops = FORWARD_AND_BACKWARD * operations * (many - few) / (long_s - short_s)
        overhead_s = (long_s - FORWARD_AND_BACKWARD * operations * many / flops) / layers
        if overhead_s >= 0:
            return flops, overhead_s
    return FORWARD_AND_BACKWARD * operations * many / long_s, 0.0


def _speed(world: World, model: nn.Sequential, cost: ModelCost, samples: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Measure this rank's operations a second, and its seconds of overhead per layer."""
    spans = len(world.trace.spans)
    inputs, targets = (part.to(world.device) for part in samples)
    batches = [max(1, len(inputs) // LESS), len(inputs)]
    seconds: list[list[float]] = [[], []]
    for repeat in range(WARM_UP + REPEATS):
        for rows, times in zip(batches, seconds, strict=True):
            with world.comm.waiting("measuring the speed", -1):
                world.control.Barrier()
            start = time.perf_counter()
            with world.compute("calibration"):
                mean_cross_entropy(model(inputs[:rows]), targets[:rows]).backward()
            if repeat >= WARM_UP:
                times.append(time.perf_counter() - start)
            model.zero_grad()
    del world.trace.spans[spans:]
    fewer, more = ((rows, median(times)) for rows, times in zip(batches, seconds, strict=True))
    return fitted(fewer, more, sum(layer.operations for layer in cost.layers), len(cost.layers))


def _free_memory(world: World) -> float:
    """Return the free bytes of this rank's GPU, or its part of the host's."""
    if world.device.type != "cpu":
        free, _ = torch.get_device_module(world.device).mem_get_info(world.device)
        return float(free)
    return psutil.virtual_memory().available / world.local_size
