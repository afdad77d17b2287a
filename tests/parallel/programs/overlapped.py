"""Overlapped, in buckets, or all at once: the same training, to the bit where the order of additions is the same."""

import hashlib
import json
from functools import partial

import numpy as np
import torch
from torch import nn

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.shared_memory import SharedVectors
from farandole.data_parallel.overlapped import OverlappedSGD
from farandole.data_parallel.synchronous import SynchronousSGD
from farandole.models.optimizers import maker
from farandole.runtime.buffers import sha256
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

STEPS = 4
# A sum's terms come in the same order for every element, wherever a vector begins: all but rings, within one node.
ANYWHERE_THE_SAME = ("shared-memory", "hierarchical", "tree", "doubling", "halving-doubling", "central", "window")
RINGS = ("ring", "segmented-ring")


def model() -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Linear(20, 70), nn.Tanh(), nn.Linear(70, 30), nn.Tanh(), nn.Linear(30, 30), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(30, 5))


def trained(world: World, collective: str, bucket_bytes: int | None = None, overlap: bool = False) -> str:
    """The digest of all parameters, which is to be the same on all ranks."""
    net, options = model(), {}
    all_reduce = ALL_REDUCES.get(collective)
    if collective == "window":
        vectors = SharedVectors(world.comm, sum(each.numel() for each in net.parameters()))
        all_reduce, options = (lambda _, part: vectors.all_reduce(part)), {"gradients": vectors.own}
    kind = partial(OverlappedSGD, bucket_bytes=bucket_bytes, overlap=overlap) if bucket_bytes else SynchronousSGD
    strategy = kind(world, net, maker("sgd", 0.1), all_reduce, **options)
    noise = np.random.default_rng(world.rank)
    for _ in range(STEPS):
        inputs = torch.from_numpy(noise.standard_normal((6, 20), np.float32))
        strategy.step(inputs, torch.from_numpy(noise.integers(0, 5, 6)), 1 / world.size)
    digests = set(world.control.allgather(sha256(net)))
    assert len(digests) == 1, collective
    return digests.pop()


with World.start(RunOptions()) as world:
    found = {}
    for collective in (*ANYWHERE_THE_SAME, *RINGS):
        whole = trained(world, collective)
        waiting = trained(world, collective, 4000)
        overlapped = [trained(world, collective, size, overlap=True) for size in (4000, 1, 10**6)]
        assert waiting == overlapped[0], f"{collective}: overlapped is not what is reduced after backward"
        if collective in ANYWHERE_THE_SAME:
            assert {whole} == {waiting, *overlapped}, f"{collective}: buckets are not the whole"
        found[collective] = overlapped[2] == whole  # one bucket
    before = world.comm.messages_sent
    trained(world, "ring", 4000, overlap=True)
    messages = world.comm.messages_sent - before
untrained = hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model().parameters())).hexdigest()
if world.rank == 0:
    print(json.dumps({"one_bucket_is_the_whole": found, "messages": messages, "moved": untrained != whole}))
