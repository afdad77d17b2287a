"""Adaptive parallelism: the ranks measure their devices, and train in the mode that is predicted to be fastest.

`cost.machine` measures and `cost.modes` predicts; the training is that of every other grid (`parts`). The choice
depends on measured times. Another run may choose another mode, whose parameters differ by rounding. With `--flops`, and
a link that does not change, the choice is always the same.

Cost: the measurements before the training starts, and then that of the mode that is chosen.
"""

from __future__ import annotations

import numpy as np
import torch

from farandole import tasks
from farandole.cost import machine
from farandole.cost.layer_costs import of_model
from farandole.cost.modes import Device, Mode, ranked
from farandole.errors import UsageError
from farandole.model_parallel.layout import Layout
from farandole.model_parallel.options import AdaptiveOptions
from farandole.model_parallel.parts import DTYPES, Parts
from farandole.model_parallel.schedules.one_f_one_b import ONE_F_ONE_B
from farandole.model_parallel.training import finish, loop, write_plan
from farandole.runtime.files import json_text
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World

MB = 1e6


def train(options: AdaptiveOptions) -> tuple[Summary | None, list[Mode], list[Device]]:
    """Measure, choose a mode, train in it and write the record. Collective.

    Returns:
        The summary on rank 0, None elsewhere; all modes, the chosen one first; each rank's device.

    Raises:
        UsageError: no mode fits the memory.
    """
    tasks.built_in(options)  # refuses a model that cannot read the data before MPI starts
    with World.start(options) as world:
        with torch.random.fork_rng():  # so the training draws the same numbers as without it
            devices, modes = _predicted(world, options)
        best = modes[0]
        if not best.fits:
            least = min(device.memory for device in devices)
            raise UsageError(
                f"no mode fits: {best.name} {best.grid} in {best.micro_batches} micro-batches needs "
                f"{best.memory / MB:.3g} MB on a rank that has {least / MB:.3g}; give more ranks, or a smaller model"
            )
        layout = Layout(best.data, best.pipeline, best.tensor, ONE_F_ONE_B, best.micro_batches, balance=options.balance)
        parts = Parts(world, options, layout)
        recorder = Recorder(world, "adaptive", options)
        write_plan(parts, recorder)
        found = {"devices": [_figures(device) for device in devices], "modes": [mode.to_dict() for mode in modes]}
        recorder.write_beside("modes.json", json_text(found, indent=2))
        return finish(parts, recorder, loop(parts, recorder)), modes, devices


def _predicted(world: World, options: AdaptiveOptions) -> tuple[list[Device], list[Mode]]:
    dtype = DTYPES[options.precision]
    task = tasks.built_in(options)
    costs = of_model(task, dtype)
    model = task.model().to(world.device, dtype)
    classes = tasks.number_of_classes(task)
    draw = np.random.default_rng(options.seed)
    if task.is_text:
        inputs = torch.from_numpy(draw.integers(classes, size=(options.batch, *task.shape)))
        targets = inputs
    else:
        inputs = torch.from_numpy(draw.random((options.batch, *task.shape))).to(dtype)
        targets = torch.from_numpy(draw.integers(classes, size=options.batch))
    memory = options.memory_mb * MB if options.memory_mb else None
    devices = machine.measured(world, model, costs[0], (inputs, targets), options.flops, memory)
    return devices, ranked(costs, devices, options.batch, options.optimizer)


def _figures(device: Device) -> dict[str, float]:
    link = {"alpha_s": device.link.alpha, "beta_s": device.link.beta}
    return {"flops": device.flops, "memory": device.memory, "overhead_s": device.overhead_s, **link}
