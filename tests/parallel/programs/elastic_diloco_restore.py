"""The result of `OuterStepProtection.restore` for three workers of an elastic DiLoCo at different steps."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import nn

from farandole.data_parallel.outer_step import Outer
from farandole.recovery.elastic_diloco import DiLoCoWorker, OuterStepProtection
from farandole.recovery.protection import NOT_STARTED
from farandole.runtime.buffers import set_buffers
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

PERIOD = 5
# rank → (what the loop has reached, outer steps, moved, θ, v)
PLACES = [(14, 2, 14, 7.0, 3.0), (9, 1, 10, 5.0, 2.0), (NOT_STARTED, 0, 0, 0.0, 0.0)]

with World.start(RunOptions()) as world:
    reached, outer_steps, moved, common, velocity = PLACES[world.rank]
    worker: Any = DiLoCoWorker.__new__(DiLoCoWorker)
    worker.options, worker.steps, worker.outer = SimpleNamespace(seed=0), 100, Outer(PERIOD, 0.7, 0.9)
    values = np.full(3, 100.0 + world.rank, np.float32)  # its own steps
    flat = SimpleNamespace(values_np=values, values_from_host=lambda: None)
    model = nn.BatchNorm1d(1)
    model.running_mean.fill_(world.rank)
    worker.replica = SimpleNamespace(
        flat=flat,
        model=model,
        set_statistics=lambda states: set_buffers(model, states),
        optimizer=SimpleNamespace(optimizer=SimpleNamespace(state={})),
    )
    worker.common, worker.velocity = np.full(3, common, np.float32), np.full(3, velocity, np.float32)
    worker.outer_steps, worker.moved, worker._shares = outer_steps, moved, [1 / 3]
    step = OuterStepProtection(SimpleNamespace(world=world), worker, None).restore(reached)  # type: ignore[arg-type]
    own = {
        "step": step, "moved": worker.moved, "outer_steps": worker.outer_steps, "common": float(worker.common[0]),
        "values": float(values[0]), "velocity": float(worker.velocity[0]),
        "statistics": float(model.running_mean),
    }  # fmt: skip
    every = world.control.gather(own)
    if world.rank == 0:
        print(json.dumps({name: [each[name] for each in every] for name in own}))
