"""Elastic averaging against one process: the workers' parameters and the centre, after the last iteration."""

import json

import numpy as np
import torch

from farandole import tasks
from farandole.data import datasets
from farandole.data.shares import equal_shares, slices
from farandole.models.choices import build
from farandole.parameter_server import choices, cluster
from farandole.parameter_server.batches import Batches
from farandole.parameter_server.classification import Trainee
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.training import application
from farandole.runtime import devices
from farandole.runtime.communicator import gather_text
from farandole.runtime.world import World
from farandole.tasks import mean_cross_entropy

OPTIONS = PolicyOptions(
    sync="bsp", update="elastic", period=3, steps=18, lr=0.1, hidden=16, batch=90, servers=1, wait_timeout=30
)
BETA = OPTIONS.elasticity


def single_process(parts, train):
    """Return all workers' parameters and the centre, by Zhang et al.'s synchronous formulas."""
    devices.seed_everything(OPTIONS.seed)
    model = build(OPTIONS)
    start = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    shares = [part.stop - part.start for part in parts]
    batches = [Batches(shares, number, OPTIONS.batch, OPTIONS.seed) for number in range(len(parts))]
    own, centre = [start.clone() for _ in parts], start.clone()
    for iteration in range(OPTIONS.steps):
        before, old = [x.clone() for x in own], centre.clone()
        for number, part in enumerate(parts):
            rows, share = next(batches[number])
            torch.nn.utils.vector_to_parameters(before[number], model.parameters())
            model.zero_grad()
            mean_cross_entropy(
                model(torch.from_numpy(train.inputs[part][rows])), torch.from_numpy(train.targets[part][rows])
            ).backward()
            gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
            own[number] = before[number] - OPTIONS.lr * gradient
            if iteration % OPTIONS.period == 0:
                elastic = BETA * share * (before[number] - old)
                own[number] -= elastic
                centre += elastic
    return [x.numpy() for x in own], centre.numpy()


with World.start(OPTIONS) as world:
    placement = Placement.usual(world.size, OPTIONS.servers, None)
    choices.check(OPTIONS)
    train = datasets.split(datasets.load("digits"), OPTIONS.seed).train
    shares = equal_shares(len(train), len(placement.workers))
    parts = slices(shares)
    number = placement.workers.index(world.rank) if world.rank in placement.workers else 0
    shard = datasets.Dataset(train.inputs[parts[number]], train.targets[parts[number]])
    trainee = Trainee(world, OPTIONS, tasks.of(OPTIONS), shard, dict(zip(placement.workers, shares, strict=True)), 0)
    start = trainee.table.copy()
    outcome = cluster.run(
        world, None, OPTIONS, placement,
        [application(OPTIONS, placement.workers, placement.workers, trainee.table)],
        trainee.work, reported=lambda report: None,
    )  # fmt: skip
    own, centre = single_process(parts, train)
    apart = float(np.abs(trainee.flat.values_np - own[number]).max()) if world.rank in placement.workers else 0.0
    found = [json.loads(text) for text in gather_text(world.control, json.dumps(apart))]
    if world.rank == 0:
        answer = {
            "workers": max(found),
            "centre": float(np.abs(outcome.tables[0] - centre).max()),
            "moved": float(np.abs(centre - start).max()),
            "spread": float(np.abs(own[0] - own[-1]).max()),
            "updates": outcome.updates,
        }
        print(json.dumps(answer))
