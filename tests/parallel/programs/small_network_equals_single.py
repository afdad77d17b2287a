"""Document 003's network, both halves, against one process: after every data-parallel step, and at the end."""

import json

import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss

from farandole.data.sampler import EpochSampler, steps_per_epoch
from farandole.data.shares import equal_shares, slices
from farandole.model_parallel.small_network import BATCH, LR, SAMPLES, data_parallel, layers, model_parallel, samples
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

SEED, STEPS = 5, 120


def fresh() -> nn.Sequential:
    torch.manual_seed(SEED)
    return nn.Sequential(*layers())


def distance(first: nn.Module, second: nn.Module) -> float:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


with World.start(RunOptions(wait_timeout=30, seed=SEED)) as world:
    model, single = fresh(), fresh()
    inputs, targets = samples(SEED)
    move = torch.optim.SGD(single.parameters(), lr=LR)

    def alone(rows: np.ndarray) -> None:
        move.zero_grad()
        mse_loss(single(inputs[rows]), targets[rows]).backward()
        move.step()

    shares, epoch = equal_shares(SAMPLES, world.size), steps_per_epoch(SAMPLES, BATCH)
    samplers = [EpochSampler(share, epoch, SEED, rank) for rank, share in enumerate(shares)]
    difference = 0.0
    for _ in data_parallel(world, model, SEED, STEPS):
        alone(np.concatenate([part.start + next(s) for part, s in zip(slices(shares), samplers, strict=True)]))
        difference = max(difference, distance(model, single))

    halfway = distance(single, fresh())
    sampler = EpochSampler(SAMPLES, epoch, SEED, 0)
    for _ in model_parallel(world, model, SEED, STEPS, STEPS):
        alone(next(sampler))
    if world.rank == 0:
        print(json.dumps({
            "data_parallel": difference,
            "model_parallel": distance(model, single),
            "halfway": halfway,
            "moved": distance(single, fresh()),
            "messages": world.comm.messages_sent,
        }))  # fmt: skip
