"""DiLoCo against a loop that keeps all ranks' models in one process: AdamW and Nesterov written out, in float64."""

import json

import numpy as np
import torch
from oracle import found_by_one
from torch import nn
from torch.nn.functional import cross_entropy

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.steps import chunk_slices
from farandole.data_parallel.diloco import DiLoCo
from farandole.data_parallel.local_sgd import LocalSGD
from farandole.data_parallel.outer_step import Outer
from farandole.models.optimizers import maker
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.tasks import classification

STEPS, LR, DECAY, OUTER_LR, MOMENTUM = 11, 0.01, 0.1, 0.7, 0.9
CASES = {
    "whole": {"period": 3},
    "each step": {"period": 1},
    "fragments": {"period": 4, "fragments": 3},
    "delayed": {"period": 4, "fragments": 3, "delay": 2, "mixing": 0.25},
    "delayed most": {"period": 3, "delay": 2, "mixing": 0.0},
}


def vector(model):
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).numpy()


def model(kind=torch.float64):
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(kind)


def batch(rank, step):
    noise = np.random.default_rng([rank, step])
    return torch.from_numpy(noise.standard_normal((5, 6))), torch.from_numpy(noise.integers(0, 3, 5))


def gradient(parameters, inputs, targets):
    its = model()
    nn.utils.vector_to_parameters(torch.from_numpy(parameters.copy()), its.parameters())
    cross_entropy(its(inputs), targets).backward()
    return torch.cat([each.grad.reshape(-1) for each in its.parameters()]).numpy()


def one_process(ranks, shares, period, fragments=1, delay=0, mixing=0.0):
    """Return all ranks' parameters after each step, the last ones after the final outer steps."""
    deltas = {}  # (fragment's number, the step after which it is added) → its delta
    common = vector(model()).copy()
    copies, velocity = [common.copy() for _ in range(ranks)], np.zeros_like(common)
    mean, square = np.zeros((2, ranks, len(common)))
    parts, moved_since = chunk_slices(len(common), fragments), [0] * fragments
    seen = []

    def add(part, delta, kept):
        velocity[part] = MOMENTUM * velocity[part] + delta
        common[part] -= OUTER_LR * (delta + MOMENTUM * velocity[part])
        for its in copies:
            its[part] = kept * its[part] + (1 - kept) * common[part]

    for step in range(1, STEPS + 1):
        for rank in range(ranks):
            g = gradient(copies[rank], *batch(rank, step))
            copies[rank] *= 1 - LR * DECAY
            mean[rank] = 0.9 * mean[rank] + 0.1 * g
            square[rank] = 0.999 * square[rank] + 0.001 * g**2
            root = np.sqrt(square[rank] / (1 - 0.999**step)) + 1e-8
            copies[rank] -= LR * mean[rank] / (1 - 0.9**step) / root
        for number, part in enumerate(parts):
            moved_since[number] += 1
            if any(step == turn * period - period * number // fragments for turn in range(1, STEPS + period)):
                moved_since[number] = 0
                deltas[number, step + delay] = common[part] - mean_of(copies, shares)[part]
        for number, due in [each for each in deltas if each[1] == step or step == STEPS]:
            add(parts[number], deltas.pop((number, due)), mixing if delay else 0.0)
        for number in [number for number in range(fragments) if step == STEPS and moved_since[number]]:
            add(parts[number], common[parts[number]] - mean_of(copies, shares)[parts[number]], 0.0)
        if step == STEPS:
            copies = [common.copy() for _ in copies]
        seen.append(np.concatenate(copies))
    return seen


def mean_of(copies, shares):
    return sum(share * its for share, its in zip(shares, copies, strict=True))


def trained(world, shares, strategy, kind=torch.float64):
    for step in range(1, STEPS + 1):
        inputs, targets = batch(world.rank, step)
        strategy.step((inputs.to(kind), targets), shares[world.rank])
        if step == STEPS:
            strategy.finish()
        yield vector(strategy.model)


with World.start(RunOptions(wait_timeout=30)) as world:
    shares = [(rank + 1) / sum(range(1, world.size + 1)) for rank in range(world.size)]
    adamw, ring, found = maker("adam", LR, decay=DECAY), ALL_REDUCES["ring"], {}
    by_one = {}
    for name, case in CASES.items():
        expected = found_by_one(world, lambda case=case: one_process(world.size, shares, **case))
        expected = [step.reshape(world.size, -1) for step in expected]
        by_one[name] = expected
        before = world.comm.bytes_sent, world.comm.messages_sent
        diloco = DiLoCo(world, model(), classification, adamw, ring, Outer(lr=OUTER_LR, momentum=MOMENTUM, **case))
        diloco.accumulate = 1 if name == "whole" else 2  # the oracle computes each part at once
        for step, parameters in enumerate(trained(world, shares, diloco)):
            np.testing.assert_allclose(parameters, expected[step][world.rank], atol=1e-12, err_msg=f"{name} {step}")
        same = len(set(world.control.allgather(parameters.tobytes()))) == 1
        assert same, "in the end all have the same bits"
        found[name] = {
            "vectors": (world.comm.bytes_sent - before[0])
            / (parameters.nbytes * 2 * (world.size - 1) / world.size or 1),
            "messages": (world.comm.messages_sent - before[1]) // max(1, 2 * (world.size - 1)),
            "moved": float(abs(parameters - vector(model())).max()),
        }

    outer = Outer(lr=OUTER_LR, momentum=MOMENTUM, **CASES["fragments"])
    single = DiLoCo(world, model(torch.float32), classification, adamw, ring, outer)
    steps = zip(trained(world, shares, single, torch.float32), by_one["fragments"], strict=True)
    found["float32"] = max(world.control.allgather(max(float(abs(a - b[world.rank]).max()) for a, b in steps)))

    # With rate 1 and no momentum in the outer optimizer it is local SGD.
    plain = DiLoCo(world, model(), classification, adamw, ring, Outer(period=3, lr=1.0, momentum=0.0))
    local = LocalSGD(world, model(), classification, adamw, ring, period=3)
    for ours, its in zip(trained(world, shares, plain), trained(world, shares, local), strict=True):
        np.testing.assert_allclose(ours, its, atol=1e-12)
if world.rank == 0:
    print(json.dumps(found))
