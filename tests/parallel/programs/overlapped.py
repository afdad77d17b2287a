"""Overlapped, in buckets, or all at once: the same training, to the bit where the order of additions is the same.

Also where some parameters get no gradient, on one rank or on all of them.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.shared_memory import SharedVectors
from farandole.data_parallel.overlapped import OverlappedSGD
from farandole.data_parallel.synchronous import SynchronousSGD
from farandole.models.optimizers import maker
from farandole.runtime.buffers import sha256
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.tasks import classification

STEPS = 4
# Algorithms with the same order of additions for every element of any vector: all but rings, within one node.
ANYWHERE_THE_SAME = ("shared-memory", "hierarchical", "tree", "doubling", "halving-doubling", "central", "window")
RINGS = ("ring", "segmented-ring")


def model() -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Linear(20, 70), nn.Tanh(), nn.Linear(70, 30), nn.Tanh(), nn.Linear(30, 30), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(30, 5))


class Branches(nn.Module):
    """A trunk, three branches and a head; a branch that is not taken gets no gradient."""

    def __init__(self, taken: Sequence[int]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.taken = taken
        self.trunk, self.head = nn.Linear(20, 30), nn.Linear(30, 5)
        self.branches = nn.ModuleList(nn.Linear(30, 30) for _ in range(3))

    def forward(self, inputs: Tensor) -> Tensor:
        trunk = self.trunk(inputs).tanh()
        return self.head(sum(self.branches[number](trunk) for number in self.taken).tanh())


def trained(
    world: World, collective: str, bucket_bytes: int | None = None, overlap: bool = False, net: nn.Module | None = None
) -> str:
    """Return the digest of all parameters, which must be the same on all ranks."""
    net, options = net or model(), {}
    all_reduce = ALL_REDUCES.get(collective)
    if collective == "window":
        vectors = SharedVectors(world.comm, sum(each.numel() for each in net.parameters()))
        all_reduce, options = (lambda _, part: vectors.all_reduce(part)), {"gradients": vectors.own}
    kind = partial(OverlappedSGD, bucket_bytes=bucket_bytes, overlap=overlap) if bucket_bytes else SynchronousSGD
    strategy = kind(world, net, classification, maker("sgd", 0.1), all_reduce, **options)
    noise = np.random.default_rng(world.rank)
    for _ in range(STEPS):
        inputs = torch.from_numpy(noise.standard_normal((6, 20), np.float32))
        strategy.step((inputs, torch.from_numpy(noise.integers(0, 5, 6))), 1 / world.size)
    digests = set(world.control.allgather(sha256(net)))
    assert len(digests) == 1, collective
    return digests.pop()


def check_branches(world: World, collective: str, always: int, sometimes: int, never: int) -> None:
    """The last rank does not take branch `sometimes`, and no rank takes `never`."""

    def net() -> Branches:
        return Branches([always] if world.rank == world.size - 1 else [always, sometimes])

    whole = trained(world, collective, net=net())
    waiting = trained(world, collective, 4000, net=net())
    nets = [net() for _ in range(3)]
    overlapped = [
        trained(world, collective, size, overlap=True, net=each)
        for size, each in zip((4000, 1, 10**6), nets, strict=True)
    ]
    assert waiting == overlapped[0], f"{collective}: overlapped is not what is reduced after backward"
    if collective in ANYWHERE_THE_SAME:
        assert {whole} == {waiting, *overlapped}, f"{collective}: buckets are not the whole"
    before = [sha256(branch) for branch in net().branches]
    for each in nets:
        moved = [sha256(each.branches[number]) != before[number] for number in (always, sometimes, never)]
        assert moved == [True, world.size > 1, False]


def check_frozen_and_unused(world: World) -> None:
    """Two trained layers, one frozen, one unused: as plain autograd on the batches of all ranks in one process."""

    def net() -> Branches:
        frozen = Branches([0, 1])
        frozen.branches[0].requires_grad_(False)
        frozen.trunk.bias.requires_grad_(False)
        return frozen

    def batch(noise: np.random.Generator) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(noise.standard_normal((6, 20), np.float32)), torch.from_numpy(noise.integers(0, 5, 6))

    for decay in (0.0, 0.5):
        twin, noises = net(), [np.random.default_rng(rank) for rank in range(world.size)]
        moving = [each for each in twin.parameters() if each.requires_grad]
        optimizer = torch.optim.SGD(moving, lr=0.1)
        for _ in range(STEPS):
            optimizer.zero_grad()
            for inputs, targets in map(batch, noises):
                (cross_entropy(twin(inputs), targets) / world.size).backward()
            with torch.no_grad():
                for each in moving:
                    each.mul_(1 - 0.1 * decay)  # decoupled; torch's SGD skips parameters without a gradient
            optimizer.step()
        for size, overlap in ((1, True), (4000, True), (4000, False)):
            mine, noise = net(), np.random.default_rng(world.rank)
            kind = OverlappedSGD(
                world, mine, classification, maker("sgd", 0.1, 0.0, decay), ALL_REDUCES["ring"], size, overlap
            )
            for _ in range(STEPS):
                mine.zero_grad()  # sets every grad to None
                kind.step(batch(noise), 1 / world.size)
            kind.finish()
            for its, right in zip(mine.parameters(), twin.parameters(), strict=True):
                torch.testing.assert_close(its, right, rtol=1e-4, atol=1e-5)


def check_spans(world: World, computations: int) -> None:
    """Each step's spans follow each other, and each computation ends once: there a slow rank sleeps."""
    assert all(span.start <= span.end for span in world.trace.spans)
    own = [span for span in world.trace.spans if not span.beside and not span.depth]
    assert all(before.end <= after.start for before, after in pairwise(own))
    assert computations == sum(span.category == "compute" for span in own)


with (
    World.start(RunOptions()) as world,
    patch.object(world, "finish_computation", wraps=world.finish_computation) as end,
):
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
    for collective in ("tree", "window", "ring"):
        check_branches(world, collective, always=0, sometimes=1, never=2)  # backward begins with what it never reaches
        check_branches(world, collective, always=2, sometimes=0, never=1)
    check_spans(world, end.call_count)
    check_frozen_and_unused(world)
untrained = hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model().parameters())).hexdigest()
if world.rank == 0:
    print(json.dumps({"one_bucket_is_the_whole": found, "messages": messages, "moved": untrained != whole}))
