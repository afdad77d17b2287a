"""A NaN or an infinity in the last rank's gradient: all ranks end in that step, and no parameter has changed."""

import json
import math

import numpy as np
import torch
from torch import nn

from farandole.compression.choices import build
from farandole.compression.non_finite import NotFinite
from farandole.compression.options import CompressionOptions
from farandole.data_parallel.compressed import CompressedSGD
from farandole.models.optimizers import maker
from farandole.runtime.buffers import sha256
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.tasks import classification

NAMES = [
    "none",
    "float16",
    "bfloat16",
    "qsgd",
    "terngrad",
    "sign",
    "majority-vote",
    "terngrad-shared",
    "top-k",
    "random-k",
    "dgc",
    "powersgd",
]
GOOD_STEPS = 2


def trained(world: World, name: str, bad: float) -> str:
    """Return the message with which it ends."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 5))
    shapes = [tuple(each.shape) for each in model.parameters()]
    shared = name == "terngrad-shared"
    name = name.removesuffix("-shared")
    feedback = True if not shared and name in ("qsgd", "terngrad") else None
    options = CompressionOptions(compressor=name, fraction=0.05, feedback=feedback, share_scales=shared)
    compressor = build(options, shapes, 5, world.rank, world.size)
    strategy = CompressedSGD(
        world, model, classification, maker("momentum" if name != "dgc" else "sgd", 0.1), compressor
    )
    noise = np.random.default_rng(world.rank)
    for step in range(GOOD_STEPS + 1):
        inputs = torch.from_numpy(noise.standard_normal((6, 20), np.float32))
        if step == GOOD_STEPS and world.rank == world.size - 1:
            strategy.flat.module[2].bias.register_hook(lambda gradient: gradient * bad)
        before = sha256(model)
        velocity = strategy.optimizer.state.get("velocity", torch.zeros(1)).clone()
        sent = world.comm.bytes_sent
        try:
            strategy.step((inputs, torch.from_numpy(noise.integers(0, 5, 6))), 1 / world.size)
            usual = world.comm.bytes_sent - sent
        except NotFinite as error:
            assert step == GOOD_STEPS
            assert world.comm.bytes_sent - sent == usual, f"{name}: not a byte more"
            assert sha256(model) == before
            assert torch.equal(strategy.optimizer.state.get("velocity", torch.zeros(1)), velocity)
            residual = getattr(compressor, "residual", np.zeros(1))
            assert np.isfinite(residual).all(), name
            return str(error)
    raise AssertionError(f"{name}: a gradient that is {bad} was not found")


with World.start(RunOptions()) as world:
    found = {}
    for name in NAMES:
        for bad in (math.nan, math.inf):
            messages = world.control.allgather(trained(world, name, bad))
            assert len(set(messages)) == 1, f"{name}: {messages}"
            found[f"{name} {bad}"] = messages[0]
    if world.rank == 0:
        print(json.dumps(found))
