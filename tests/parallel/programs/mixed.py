"""Mixed precision: a loop in one process finds the same; an overflow on one rank is one on all."""

import copy
import json

import numpy as np
import torch
from oracle import found_by_one
from torch import nn
from torch.nn.functional import cross_entropy

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data_parallel.loss_scale import LossScale
from farandole.data_parallel.mixed_precision import KINDS, MixedPrecisionSGD
from farandole.models.optimizers import maker
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.tasks import classification

STEPS, LR = 12, 0.5
TOO_LARGE = float("inf")


def model() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    noise = np.random.default_rng([rank, step])
    return torch.from_numpy(noise.standard_normal((5, 6), np.float32)), torch.from_numpy(noise.integers(0, 3, 5))


def vector(module: nn.Module) -> np.ndarray:
    return torch.cat([each.detach().float().reshape(-1) for each in module.parameters()]).numpy()


def one_process(kind: torch.dtype, ranks: int, scale: float) -> list[np.ndarray]:
    """Return the master's parameters after each step."""
    master, seen = model(), []
    for step in range(STEPS):
        total = [torch.zeros_like(each) for each in master.parameters()]
        for rank in range(ranks):
            half = copy.deepcopy(master).to(kind)
            inputs, targets = batch(rank, step)
            (cross_entropy(half(inputs.to(kind)).float(), targets) * scale).backward()
            for place, each in zip(total, half.parameters(), strict=True):
                place += each.grad.float() / scale / ranks
        with torch.no_grad():
            for each, gradient in zip(master.parameters(), total, strict=True):
                each -= LR * gradient
        seen.append(vector(master).astype(np.float64))
    return seen


def same_everywhere(world: World, value: object) -> bool:
    return len(set(world.control.allgather(value))) == 1


with World.start(RunOptions(wait_timeout=30)) as world:
    ring, share, worst = ALL_REDUCES["ring"], 1 / world.size, 0.0
    for precision, kind in KINDS.items():
        mixed = MixedPrecisionSGD(world, model(), classification, maker("sgd", LR), ring, precision)
        scale = mixed.scale.value if mixed.scale else 1.0
        expected = found_by_one(world, lambda kind=kind, scale=scale: one_process(kind, world.size, scale))
        for step in range(STEPS):
            mixed.step(batch(world.rank, step), share)
            worst = max(worst, np.abs(vector(mixed.model) - expected[step]).max())
        assert same_everywhere(world, vector(mixed.model).tobytes())
        assert mixed.scale is None or mixed.scale.skipped == 0

    # Only the last rank overflows.
    mixed = MixedPrecisionSGD(world, model(), classification, maker("sgd", LR), ring, "float16", LossScale(2.0**10))
    before = vector(mixed.model)
    inputs, targets = batch(world.rank, 0)
    mixed.step((inputs * (TOO_LARGE if world.rank == world.size - 1 else 1), targets), share)
    assert same_everywhere(world, (mixed.scale.value, mixed.scale.skipped))
    skipped = mixed.scale.skipped, mixed.scale.value, bool((vector(mixed.model) == before).all())
    mixed.step((inputs, targets), share)
    goes_on = bool((vector(mixed.model) != before).any())

    # Steps too small for 16 bits add up in 32.
    small = MixedPrecisionSGD(world, model(), classification, maker("sgd", 1e-6), ring, "float16")
    halves = [vector(small.half.module)]
    for _ in range(STEPS):
        small.step((inputs, targets), share)
        halves.append(vector(small.half.module))
    large = np.abs(before) > 0.1  # float16 has 1,024 numbers between two powers of two, float32 eight million
    forgotten = all(np.array_equal(each[large], halves[0][large]) for each in halves)
    kept = forgotten and bool((vector(small.model) != before)[large].any())
if world.rank == 0:
    print(json.dumps({"difference": worst, "skipped": skipped, "goes_on": goes_on, "kept": kept}))
