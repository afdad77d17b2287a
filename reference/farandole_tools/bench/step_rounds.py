"""Training steps of the same model, in turn: the program of the ranks.

    mpirun -n 4 python -m farandole_tools.bench.step_rounds '[[MODEL, ROUNDS], ...]' SYSTEM ...

Every system begins with the same model and takes the same batches, so all must have the same parameters, to rounding:
after a first step, which is not timed, and in the end they are compared with those of the plainest system. Rank 0
prints, for each model, every system's seconds as JSON.
"""

from __future__ import annotations

import json
import sys
from functools import partial

import torch
from torch import nn

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.shared_memory import SharedVectors
from farandole.data.batch import Batch
from farandole.data_parallel.ddp_twin import DdpSGD
from farandole.data_parallel.horovod_twin import HorovodSGD
from farandole.data_parallel.overlapped import OverlappedSGD
from farandole.data_parallel.synchronous import SynchronousSGD
from farandole.data_parallel.training import Strategy
from farandole.models.optimizers import maker
from farandole.own_loop.synchronous import DistributedOptimizer
from farandole.runtime.options import RunOptions
from farandole.runtime.timing import slowest_s
from farandole.runtime.world import World
from farandole.tasks import classification
from farandole_tools.bench.step_task import BUCKET_BYTES, MODELS, OURS, OWN_LOOP, batch, parameters, rate

PLAINEST = "MPI_Allreduce"


class OwnLoopSGD(Strategy):
    """A user's own loop: torch's optimizer, whose step adds up the ranks' gradients before."""

    bytes_are_counted = True

    def __init__(self, world: World, model: nn.Module, lr: float) -> None:
        self.model, self.loss = model, classification
        own = torch.optim.SGD(model.parameters(), lr=lr)
        self.optimizer = DistributedOptimizer(world, own, every=1, max_norm=None, all_reduce=ALL_REDUCES["ring"])

    def step(self, batch: Batch, share: float) -> float:
        self.optimizer.zero_grad()
        loss = self.loss(self.model, batch)
        loss.backward()
        self.optimizer.share = share
        self.optimizer.step()
        return loss.item()


def make(world: World, name: str, case: str) -> Strategy:
    """Return the system of that name, with a new model. Collective."""
    torch.manual_seed(0)
    model, lr = MODELS[case](), rate(case)
    if name == "ddp":
        return DdpSGD(world, model, classification, lr, timeout_s=60.0)
    if name == "Horovod":
        return HorovodSGD(world, model, classification, lr)
    if name == OWN_LOOP:
        return OwnLoopSGD(world, model, lr)
    collective, overlapped = OURS[name]
    kind = partial(OverlappedSGD, bucket_bytes=BUCKET_BYTES) if overlapped else SynchronousSGD
    if collective != "window":
        return kind(world, model, classification, maker("sgd", lr), ALL_REDUCES[collective])
    vectors = SharedVectors(world.comm, parameters(case))
    return kind(
        world,
        model,
        classification,
        maker("sgd", lr),
        lambda _, part: vectors.all_reduce(part),
        gradients=vectors.own,
    )


def measure(world: World, names: list[str], case: str, rounds: int) -> dict[str, list[float]]:
    """Measure each system's seconds, round after round. Collective."""
    part = batch(case, seed=world.rank)
    systems = {name: make(world, name, case) for name in names}
    plainest = make(world, PLAINEST, case)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for system in (plainest, *systems.values()):
        system.step(part, 1 / world.size)
    for name, system in systems.items():
        check(name, system, plainest)
    for _ in range(rounds):
        for name, system in systems.items():
            work = partial(system.step, part, 1 / world.size)
            seconds[name].append(slowest_s(world.control, work))
    for _ in range(rounds):
        plainest.step(part, 1 / world.size)
    for name, system in systems.items():
        check(name, system, plainest)
    return seconds


def check(name: str, system: Strategy, plainest: Strategy) -> None:
    """Assert that both models have the same parameters, to rounding."""
    for its, expected in zip(system.model.parameters(), plainest.model.parameters(), strict=True):
        torch.testing.assert_close(its, expected, msg=lambda text: f"{name} trains something else: {text}")


def main() -> None:
    task, names = json.loads(sys.argv[1]), sys.argv[2:]
    with World.start(RunOptions(device="cpu")) as world:
        found = [measure(world, names, case, rounds) for case, rounds in task]
    if world.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
