"""Local SGD against a loop that keeps all ranks' models in one process."""

import copy
import json

import numpy as np
import torch
from oracle import found_by_one
from torch import nn
from torch.nn.functional import cross_entropy

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data_parallel.local_sgd import LocalSGD
from farandole.models.optimizers import maker
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.tasks import classification

STEPS, LR = 11, 0.1
CASES = {
    "whole way": {"period": 3},
    "half the way": {"period": 3, "alpha": 0.5},
    "post-local": {"period": 4, "synchronous": 3},
    "once": {"period": None},
}


def vector(model: nn.Module) -> np.ndarray:
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).numpy()


def model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    noise = np.random.default_rng([rank, step])
    return torch.from_numpy(noise.standard_normal((5, 6))), torch.from_numpy(noise.integers(0, 3, 5))


def one_process(ranks: int, shares: list[float], period: int | None, alpha: float = 1.0, synchronous: int = 0):
    """Return all ranks' parameters after each step."""
    models = [model() for _ in range(ranks)]
    seen = []
    for step in range(1, STEPS + 1):
        for rank, its in enumerate(models):
            loss = cross_entropy(its(batch(rank, step)[0]), batch(rank, step)[1])
            its.zero_grad()
            loss.backward()
            with torch.no_grad():
                for each in its.parameters():
                    each -= LR * each.grad
        due = period and (step - synchronous) % period == 0
        if step <= synchronous or due or step == STEPS:
            far = 1.0 if step <= synchronous or step == STEPS else alpha
            before = copy.deepcopy(models)
            with torch.no_grad():
                for places in zip(*(its.parameters() for its in models), strict=True):
                    old = [place.clone() for place in places]
                    mean = sum(share * each for share, each in zip(shares, old, strict=True))
                    for place, each in zip(places, old, strict=True):
                        place.copy_((1 - far) * each + far * mean)
            means = [
                sum(share * vector(its) for share, its in zip(shares, group, strict=True)) for group in (before, models)
            ]
            np.testing.assert_allclose(*means, atol=1e-12, err_msg="mixing keeps the mean")
        seen.append(np.concatenate([vector(its) for its in models]))
    return seen


with World.start(RunOptions(wait_timeout=30)) as world:
    shares = [(rank + 1) / sum(range(1, world.size + 1)) for rank in range(world.size)]
    found = {}
    for name, case in CASES.items():
        expected = found_by_one(world, lambda case=case: one_process(world.size, shares, **case))
        expected = [step.reshape(world.size, -1) for step in expected]
        local = LocalSGD(world, model(), classification, maker("sgd", LR), ALL_REDUCES["ring"], **case)
        apart = 0
        for step in range(1, STEPS + 1):
            local.step(batch(world.rank, step), shares[world.rank])
            if step == STEPS:
                local.finish()
            np.testing.assert_allclose(vector(local.model), expected[step - 1][world.rank], atol=1e-12, err_msg=name)
            apart += np.ptp(expected[step - 1], axis=0).max() > 1e-9
        assert len(set(world.control.allgather(vector(local.model).tobytes()))) == 1, "in the end all have the mean"
        found[name] = {"steps_apart": int(apart), "averages": world.comm.messages_sent // max(1, 2 * (world.size - 1))}
if world.rank == 0:
    print(json.dumps(found))
