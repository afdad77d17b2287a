"""`parameter_server.minimal` with s = 0, one torch process and the parameter server's scenario: the same parameters.

Of P ranks, the first P − 1 run `minimal`, with P − 2 workers. Then all P train by `cluster`, with as many workers.
Argument: steps.
"""

import json
import sys

import numpy as np
import torch
from mpi4py import MPI

from farandole.data import datasets
from farandole.parameter_server import cluster, minimal
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.training import application
from farandole.runtime.world import World

STEPS = int(sys.argv[1])
WORKERS = MPI.COMM_WORLD.size - 2


def torch_alone(inputs, targets):
    weights = torch.zeros(65, 10, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=minimal.LEARNING_RATE)
    for step in range(STEPS):
        union = np.concatenate([minimal.batch(worker, step, WORKERS, len(inputs)) for worker in range(WORKERS)])
        assert len(set(union.tolist())) == minimal.BATCH
        optimizer.zero_grad()
        scores = torch.from_numpy(inputs[union]) @ weights
        torch.nn.functional.cross_entropy(scores, torch.from_numpy(targets[union])).backward()
        optimizer.step()
    return weights.detach().numpy()


def by_the_scenario(world, sync, inputs, targets):
    options = PolicyOptions(sync=sync, staleness=0, steps=STEPS, lr=minimal.LEARNING_RATE)
    placement = Placement.usual(world.size, servers=1)
    weights = np.zeros(650)

    def work(client):
        worker = placement.workers.index(world.rank)
        while start := client.wait(client.pull(weights), "pull"):
            rows = minimal.batch(worker, start.clock, WORKERS, len(inputs))
            part = minimal.gradient(weights.reshape(65, 10), inputs[rows], targets[rows])
            share = len(rows) / minimal.BATCH
            client.push(part.reshape(-1) / share, start.clock, share)

    model = application(options, placement.workers, placement.workers, np.zeros(650))
    outcome = cluster.run(world, None, options, placement, [model], work, reported=lambda report: None)
    return outcome.tables[0].reshape(65, 10)


with World.start(PolicyOptions(wait_timeout=30)) as world:
    inputs, targets = minimal.prepared(datasets.split(datasets.load("digits"), minimal.SEED).train)
    part = MPI.COMM_WORLD.Split(int(world.rank == world.size - 1), world.rank)
    if world.rank == 0:
        parameters, leads, staleness = minimal.serve(part, STEPS, 0)
    elif part.size > 1:
        minimal.work(part, STEPS, 0.0)
    trained = {sync: by_the_scenario(world, sync, inputs, targets) for sync in ("bsp", "ssp")}
    if world.rank == 0:
        trained["torch"] = torch_alone(inputs, targets)
        differences = {name: float(np.abs(parameters - other).max()) for name, other in trained.items()}
        moved = float(np.abs(parameters).max())
        print(json.dumps({"differences": differences, "moved": moved, "lead": leads, "staleness": staleness}))
