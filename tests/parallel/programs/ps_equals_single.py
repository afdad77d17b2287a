"""The parameter server against one process on the union of the batches: parameters compared at every pull.

Arguments: number of servers, then variants: names of VARIANTS.
"""

import json
import sys
from hashlib import sha256

import numpy as np
import torch
from oracle import found_by_one
from torch.nn.functional import cross_entropy

from farandole.data import datasets
from farandole.data.sampler import EpochSampler, batch_size, steps_per_epoch
from farandole.data.shares import equal_shares, slices
from farandole.models.classifiers import mlp
from farandole.parameter_server import choices, cluster
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.server_change import ServerChange, most_servers
from farandole.parameter_server.training import application
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.communicator import gather_text
from farandole.runtime.world import World

SERVERS = int(sys.argv[1])
SEED, BATCH, LR, STEPS = 3, 96, 0.2, 30
TORCH_TWINS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=LR),
    "adam": lambda p: torch.optim.Adam(p, lr=LR),
}
HASHED = {"sync": "bsp", "assignment": "hashing", "ranges": 40}
VARIANTS = {
    "bsp": {"sync": "bsp"},
    "hashing": {"sync": "bsp", "assignment": "hashing", "ranges": 7},
    "window": {"sync": "bsp", "transport": "window"},
    "window, hashing": {"sync": "bsp", "transport": "window", "assignment": "hashing"},
    "range by range": {"sync": "bsp", "ranges": 3},
    "ssp 0": {"sync": "ssp", "staleness": 0, "update": "adam"},
    "ssp 0, aware": {"sync": "ssp", "staleness": 0, "update": "staleness-aware"},
    "half 0": {"sync": "half", "staleness": 0, "longest_wait": 0.003},
    "dssp 0": {"sync": "dssp", "staleness": 0, "least_staleness": 0, "update": "momentum"},
    "partial, all": {"sync": "partial", "enough": 10**6, "update": "adagrad"},
    "history, patient": {"sync": "history", "patience": 1e9, "update": "momentum"},
    "tree": {"sync": "bsp", "tree": 2},
    "top-k, all": {"sync": "bsp", "topk": 1.0},
    "momentum": {"sync": "bsp", "update": "momentum"},
    "adagrad": {"sync": "bsp", "update": "adagrad"},
    "adam": {"sync": "bsp", "update": "adam"},
    "staleness-aware": {"sync": "bsp", "update": "staleness-aware"},
    "1 → 2": {"servers": 1, "server_change": (ServerChange(4, 2),), "update": "momentum", **HASHED},
    "2 → 3": {"servers": 2, "server_change": (ServerChange(11, 3),), "update": "adam", **HASHED},
    "3 → 2": {"servers": 3, "server_change": (ServerChange(11, 2),), "update": "adagrad", **HASHED},
    "4 → 3": {"servers": 4, "server_change": (ServerChange(29, 3),), "update": "delay-compensated", **HASHED},
    "1 → 4 → 2 → 3": {
        "servers": 1,
        "server_change": (ServerChange(1, 4), ServerChange(2, 2), ServerChange(20, 3)),
        "update": "adam",
        **HASHED,
    },
    "ssp 0, 3 → 1": {"sync": "ssp", "staleness": 0, "servers": 3, "server_change": (ServerChange(7, 1),)},
    "top-k, all, 2 → 3": {"sync": "bsp", "topk": 1.0, "servers": 2, "server_change": (ServerChange(7, 3),)},
    "3, adam": {"servers": 3, "update": "adam", **HASHED},
    "delay-compensated": {"sync": "bsp", "update": "delay-compensated", "compensation": 3.0},
}


def fresh_model():
    torch.manual_seed(SEED)
    return mlp((1, 8, 8), 10, hidden=16).double()


def loss_of(model, data, rows):
    return cross_entropy(model(torch.from_numpy(data.inputs[rows]).double()), torch.from_numpy(data.targets[rows]))


def single_process(train, parts, epoch, update):
    """Return the parameters before each step, and after the last."""
    model = fresh_model()
    optimizer = TORCH_TWINS.get(update, lambda p: torch.optim.SGD(p, lr=LR))(model.parameters())
    samplers = [EpochSampler(part.stop - part.start, epoch, SEED, number) for number, part in enumerate(parts)]
    seen = []
    for _ in range(STEPS):
        seen.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy().copy())
        union = np.concatenate([part.start + next(sampler) for part, sampler in zip(parts, samplers, strict=True)])
        optimizer.zero_grad()
        loss_of(model, train, union).backward()
        optimizer.step()
    return [*seen, torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()]


def run(world, variant):
    settings = dict(VARIANTS[variant])
    servers = settings.pop("servers", SERVERS)
    placement = Placement.usual(
        world.size, most_servers(servers, settings.get("server_change", ())), settings.get("tree")
    )
    clients = placement.aggregators or placement.workers
    if "enough" in settings:
        settings["enough"] = len(clients)
    options = PolicyOptions(steps=STEPS, servers=servers, lr=LR, seed=SEED, batch=BATCH, **settings)
    choices.check(options)
    train = datasets.split(datasets.load("digits"), SEED).train
    shares = equal_shares(len(train), len(placement.workers))
    parts, epoch = slices(shares), steps_per_epoch(len(train), BATCH)
    expected = found_by_one(world, lambda: single_process(train, parts, epoch, options.update))
    model = fresh_model()
    flat = FlatBuffers(model)
    differences, starts = [], []

    def work(client):
        number = placement.workers.index(world.rank)
        sampler = EpochSampler(shares[number], epoch, SEED, number)
        lends = client.window is not None and client.window.lends
        while start := client.wait(client.pull(None if lends else flat.values_np), "pull"):
            if lends:
                flat.lie_in(start.parameters, client.slot)
            differences.append(np.abs(flat.values_np - expected[start.clock]).max())
            starts.append(start.clock)
            rows = next(sampler)
            share = len(rows) / sum(batch_size(one, epoch, start.clock) for one in shares)
            flat.zero_gradients()
            loss_of(model, train, parts[number].start + rows).backward()
            gradient = client.slot if lends else flat.gradients_np
            if lends:
                differences.append(np.abs(flat.values_np - expected[start.clock]).max())  # no server has written there
            if variant == "range by range":  # the servers' ranges one by one, the last first
                for server, layout in client.layouts.items():
                    for part in reversed(range(len(layout.ranges))):
                        keys = layout.ranges[part]
                        client.push_range(gradient[keys.start : keys.stop].copy(), server, part, start.clock, share)
            elif options.topk:
                client.push(gradient.copy(), start.clock, share, rows=np.arange(len(gradient)))
            else:
                client.push(gradient, start.clock, share)

    outcome = cluster.run(
        world, None, options, placement,
        [application(options, placement.workers, clients, flat.values_np.copy())],
        work, reported=lambda report: None,
    )  # fmt: skip
    final = np.abs(outcome.tables[0] - expected[-1]).max()
    own = {"difference": max([final, *differences]), "starts": starts}
    everybodys = [json.loads(text) for text in gather_text(world.control, json.dumps(own))]
    if world.rank:
        return None
    return {
        "difference": max(one["difference"] for one in everybodys),
        "every worker made every step": all(everybodys[w]["starts"] == list(range(STEPS)) for w in placement.workers),
        "moved": np.abs(expected[-1] - expected[0]).max(),
        "updates": outcome.updates,
        "lead": outcome.lead,
        "staleness": outcome.staleness,
        "cleaned": outcome.cleaned,
        "server changes": outcome.server_changes,
        "sha256": sha256(outcome.tables[0].tobytes()).hexdigest(),
    }


with World.start(PolicyOptions(wait_timeout=30)) as world:
    answers = {variant: run(world, variant) for variant in sys.argv[2:]}
    if world.rank == 0:
        print(json.dumps(answers))
