"""Rounds of unequal numbers of steps, against all ranks' models in one process; and where the two rules end."""

import json

import numpy as np
import torch
from oracle import found_by_one
from torch import nn
from torch.nn.functional import cross_entropy

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data_parallel.agnostic import AgnosticSGD
from farandole.data_parallel.local_sgd import LocalSGD
from farandole.data_parallel.synchronous import SynchronousSGD
from farandole.models.optimizers import maker
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.tasks import classification

ROUNDS, LR, LOCAL_BATCH = 7, 0.1, 3
RING = ALL_REDUCES["ring"]


def vector(model: nn.Module) -> np.ndarray:
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).numpy()


def model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def batch(rank: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rank r has 3r + 1 samples a round, so it takes r + 1 steps."""
    noise = np.random.default_rng([rank, number])
    return torch.from_numpy(noise.standard_normal((3 * rank + 1, 6))), torch.from_numpy(
        noise.integers(0, 3, 3 * rank + 1)
    )


def one_process(shares: list[float], paces: list[float], normalised: bool) -> list[np.ndarray]:
    """Return the common parameters after each round."""
    common, seen = model(), []
    start = vector(common).copy()
    for number in range(ROUNDS):
        directions, lengths = [], []
        for rank, pace in enumerate(paces):
            its = model()
            nn.utils.vector_to_parameters(torch.from_numpy(start.copy()), its.parameters())
            optimizer = torch.optim.SGD(its.parameters(), lr=LR * pace)
            steps = 0
            for inputs, targets in zip(*(part.split(LOCAL_BATCH) for part in batch(rank, number)), strict=True):
                optimizer.zero_grad()
                cross_entropy(its(inputs), targets).backward()
                optimizer.step()
                steps += 1
            directions.append(start - vector(its))
            lengths.append(steps * LR * pace)
        if normalised:
            far = sum(share * length for share, length in zip(shares, lengths, strict=True))
            parts = zip(shares, lengths, directions, strict=True)
            start = start - far * sum(share / length * direction for share, length, direction in parts)
        else:
            start = start - sum(share * direction for share, direction in zip(shares, directions, strict=True))
        seen.append(start)
    return seen


def where_it_ends(world: World, normalised: bool) -> float:
    """Return where training converges if rank r's minimum is r, and it takes r + 1 small steps a round."""
    place = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(place.weight)
    agnostic = AgnosticSGD(world, place, classification, LR, 1.0, None, normalised, RING)
    small, steps = 8e-3, world.rank + 1
    for _ in range(round(6 / small / np.mean(range(1, world.size + 1)))):  # until exp(-6) of the way is left
        values = agnostic.flat.values_np
        values[:] = world.rank + (1 - small) ** steps * (values - world.rank)
        agnostic.combine(1 / world.size, length=steps * small)
    return float(agnostic.flat.values_np[0])


with World.start(RunOptions(wait_timeout=30)) as world:
    shares = [(3 * rank + 1) / sum(3 * other + 1 for other in range(world.size)) for rank in range(world.size)]
    paces = [1 / (rank + 1) for rank in range(world.size)]
    own = shares[world.rank]
    for normalised in (True, False):
        expected = found_by_one(world, lambda normalised=normalised: one_process(shares, paces, normalised))
        agnostic = AgnosticSGD(world, model(), classification, LR, paces[world.rank], LOCAL_BATCH, normalised, RING)
        for number in range(ROUNDS):
            agnostic.step(batch(world.rank, number), own)
            np.testing.assert_allclose(vector(agnostic.model), expected[number], atol=1e-12)
        assert len(set(world.control.allgather(vector(agnostic.model).tobytes()))) == 1

    # One step each: synchronous SGD. And with equal lengths both rules are local SGD's mean.
    one_step = AgnosticSGD(world, model(), classification, LR, 1.0, None, True, RING)
    one_step.accumulate = 2
    synchronous = SynchronousSGD(world, model(), classification, maker("sgd", LR), RING)
    plain = AgnosticSGD(world, model(), classification, LR, 1.0, None, False, RING)
    local = LocalSGD(world, model(), classification, maker("sgd", LR), RING, period=1)
    for number in range(ROUNDS):
        for strategy in (one_step, synchronous, plain, local):
            strategy.step(batch(world.rank, number), own)
    for strategy in (one_step, plain, local):
        np.testing.assert_allclose(vector(strategy.model), vector(synchronous.model), atol=1e-12)

    found = {"normalised": where_it_ends(world, True), "plain": where_it_ends(world, False)}
if world.rank == 0:
    print(json.dumps(found))
