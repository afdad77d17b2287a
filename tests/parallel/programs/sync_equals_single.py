"""Synchronous SGD against one process on the union of the batches: parameters compared every step.

Arguments: float type, the data set, the ranks' capabilities ("equal" for equal shares), then strategies; "ring in 3"
divides each rank's part into 3 micro-batches.
"""

import json
import sys

import numpy as np
import torch
from oracle import found_by_one
from torch.nn.functional import cross_entropy

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data import datasets, shards
from farandole.data.sampler import EpochSampler, batch_size, steps_per_epoch
from farandole.data.shares import equal_shares, proportional_shares, slices
from farandole.data_parallel.ddp_twin import DdpSGD
from farandole.data_parallel.horovod_twin import HorovodSGD
from farandole.data_parallel.local_sgd import LocalSGD
from farandole.data_parallel.overlapped import OverlappedSGD
from farandole.data_parallel.synchronous import SynchronousSGD
from farandole.models.classifiers import mlp
from farandole.models.optimizers import maker
from farandole.models.transformer import transformer
from farandole.runtime.buffers import sha256
from farandole.runtime.communicator import gather_text
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.tasks import classification

KIND = getattr(torch, sys.argv[1])
DATA, CAPABILITIES, STRATEGIES = sys.argv[2], sys.argv[3], sys.argv[4:]
SEED, LR, STEPS = 3, 0.2, 20
# Optimizers, ours and torch's; the other cases use plain SGD.
OPTIMIZERS = {
    "momentum": (maker("momentum", 0.05), lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
    "adam, L2": (maker("adam", 0.01, l2=0.1), lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1)),
    "adam, decay": (maker("adam", 0.01, decay=0.5), lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.5)),
}
PLAIN = (maker("sgd", LR), lambda p: torch.optim.SGD(p, lr=LR))
SAMPLES, BATCH = (93, 8) if DATA == "pydoc" else (487, 50)


def fresh_model() -> torch.nn.Module:
    torch.manual_seed(SEED)
    make = transformer if DATA == "pydoc" else mlp
    return make(datasets.shape(DATA), datasets.classes(DATA), hidden=32).to(KIND)


def tensor(inputs: np.ndarray) -> torch.Tensor:
    """Images in the float type, characters as they are."""
    return torch.from_numpy(inputs) if inputs.dtype == np.int64 else torch.from_numpy(inputs).to(KIND)


def vector(model: torch.nn.Module) -> np.ndarray:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).double().numpy()


def single_process(train, shares, make_optimizer) -> list[np.ndarray]:
    """Return the parameters at first and after each step: own loop, torch's optimizer, the union of the batches."""
    parts, epoch = slices(shares), steps_per_epoch(len(train), BATCH)
    model = fresh_model()
    optimizer = make_optimizer(model.parameters())
    every = [EpochSampler(share, epoch, SEED, rank) for rank, share in enumerate(shares)]
    seen = [vector(model)]
    for step in range(STEPS):
        union = np.concatenate([part.start + next(one) for part, one in zip(parts, every, strict=True)])
        assert len(union) == sum(batch_size(share, epoch, step) for share in shares)
        optimizer.zero_grad()
        logits = model(tensor(train.inputs[union])).movedim(-1, 1)  # torch has the classes second
        cross_entropy(logits, torch.from_numpy(train.targets[union])).backward()
        optimizer.step()
        seen.append(vector(model))
    return seen


with World.start(RunOptions(wait_timeout=30)) as world:
    train = datasets.split(datasets.load(DATA), SEED).train[slice(0, SAMPLES)]
    shares = (
        equal_shares(len(train), world.size)
        if CAPABILITIES == "equal"
        else proportional_shares(len(train), [float(word) for word in CAPABILITIES.split(",")])
    )
    epoch = steps_per_epoch(len(train), BATCH)
    assert epoch + 5 < STEPS, "more than one epoch, to cross its border"
    shard = shards.scatter(train if world.rank == 0 else None, shares, world.comm)
    assert np.array_equal(shard.inputs, train[slices(shares)[world.rank]].inputs)

    found_by_plain = found_by_one(world, lambda: single_process(train, shares, PLAIN[1]))
    answer = {}
    for words in STRATEGIES:
        name, _, count = words.partition(" in ")
        (make, twin), expected = OPTIMIZERS.get(name, PLAIN), found_by_plain
        if name in OPTIMIZERS:
            expected = found_by_one(world, lambda twin=twin: single_process(train, shares, twin))
        if name == "horovod":
            strategy = HorovodSGD(world, fresh_model(), classification, LR, int(count or 1))
        elif name == "ddp":
            strategy = DdpSGD(world, fresh_model(), classification, LR, timeout_s=30)
        elif name == "overlapped":
            strategy = OverlappedSGD(world, fresh_model(), classification, make, ALL_REDUCES["ring"], bucket_bytes=4000)
        elif name == "local":
            strategy = LocalSGD(world, fresh_model(), classification, make, ALL_REDUCES["ring"], period=1)
        else:
            strategy = SynchronousSGD(
                world, fresh_model(), classification, make, ALL_REDUCES.get(name, ALL_REDUCES["ring"])
            )
        sampler = EpochSampler(len(shard), epoch, SEED, world.rank)
        strategy.accumulate = int(count or 1)
        largest, before = 0.0, world.comm.bytes_sent
        for step in range(STEPS):
            rows = next(sampler)
            whole = sum(batch_size(share, epoch, step) for share in shares)
            strategy.step((tensor(shard.inputs[rows]), torch.from_numpy(shard.targets[rows])), len(rows) / whole)
            largest = max(largest, np.abs(vector(strategy.model) - expected[step + 1]).max())
        sent = sum(world.control.allgather(world.comm.bytes_sent - before))
        digests = gather_text(world.control, sha256(strategy.model))
        moved = np.abs(expected[-1] - expected[0]).max()
        answer[words] = {"difference": largest, "digests": len(set(digests)), "moved": moved, "sent": sent}
    if world.rank == 0:
        print(json.dumps(answer))
