"""One Downpour replica compared with one process with torch's Adagrad, and the sums of its gradients.

Arguments: a folder for records, then cases like "float64,60,1,1,wait": float type, iterations,
n_fetch, n_push, and "overlap" or "wait". The last rank is the replica, the ranks between are servers.

The answer has for each case: the largest difference from the single process where an iteration
begins, and at the end; how far that process's parameters moved; the largest entry of the sum of all
gradients, and of its difference from the sum of all pushes; the pushes' clocks; the number of
gradients and of the first server's updates; the staleness histogram.
"""

import json
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from farandole.data import datasets
from farandole.models.classifiers import mlp
from farandole.parameter_server import cluster
from farandole.parameter_server.application import Application
from farandole.parameter_server.core.policies import Asynchronous
from farandole.parameter_server.core.update_rules import Adagrad
from farandole.parameter_server.downpour import Replica
from farandole.parameter_server.downpour_options import DownpourOptions
from farandole.parameter_server.kv_worker import KVWorker
from farandole.parameter_server.placement import Placement
from farandole.runtime.communicator import gather_text
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World
from farandole.tasks import of_pairs

SEED, BATCH, LR, EPSILON = 3, 32, 0.05, 1e-10


def fresh_model(kind: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(SEED)
    return mlp((1, 8, 8), 10, hidden=32).to(kind)


def vector(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


class Batches:
    """The same batches for both; the replica may use a few more than requested."""

    def __init__(self, train: datasets.Dataset, kind: torch.dtype) -> None:
        self.inputs, self.targets = torch.from_numpy(train.inputs).to(kind), torch.from_numpy(train.targets)
        self.rows = torch.randperm(len(train), generator=torch.Generator().manual_seed(SEED)).split(BATCH)
        self.taken = 0

    def __call__(self) -> tuple[torch.Tensor, torch.Tensor, float]:
        rows = self.rows[self.taken % len(self.rows)]
        self.taken += 1
        return (self.inputs[rows], self.targets[rows]), 1.0


class Compared(Replica):
    """Steps the single process along, and adds up computed and pushed gradients."""

    def compare_with(self, batches: Batches, kind: torch.dtype) -> None:
        self.batches, self.single = batches, fresh_model(kind)
        self.optimizer = torch.optim.Adagrad(self.single.parameters(), lr=LR, eps=EPSILON)
        self.computed, self.pushed = np.zeros(len(self.flat.values_np)), np.zeros(len(self.flat.values_np))
        self.clocks: list[int] = []
        self.differences: list[float] = []

    def work(self, client: KVWorker) -> None:
        push = client.push

        def counted(gradient: Any, clock: int, share: float, **options: Any) -> Future[int | None]:
            self.pushed += share * gradient
            self.clocks.append(clock)
            return push(gradient, clock, share, **options)

        client.push = counted  # type: ignore[method-assign]
        super().work(client)

    def _iterate(self) -> tuple[float, int]:
        self.differences.append((self.flat.values - vector(self.single)).abs().max().item())
        result = super()._iterate()
        self.computed += self.flat.gradients_np
        self.batches.taken -= 1
        (inputs, targets), _ = self.batches()
        self.optimizer.zero_grad()
        cross_entropy(self.single(inputs), targets).backward()
        self.optimizer.step()
        return result


def run(world: World, case: str, folder: Path) -> dict[str, Any]:
    name, steps, n_fetch, n_push, mode = case.split(",")
    kind = getattr(torch, name)
    options = DownpourOptions(out=folder / case)
    batches = Batches(datasets.split(datasets.load("digits"), SEED).train, kind)
    replica = Compared(
        world,
        fresh_model(kind),
        of_pairs(cross_entropy),
        batches,
        n_fetch=int(n_fetch),
        n_push=int(n_push),
        local_lr=0.1,
        overlap={"overlap": True, "wait": False}[mode],
    )
    replica.compare_with(batches, kind)
    placement = Placement.usual(world.size, servers=world.size - 2)
    application = Application(
        table=replica.flat.values_np,
        workers=placement.workers,
        clients=placement.workers,
        policy=lambda: Asynchronous(placement.workers),
        rule=lambda values: Adagrad(values, LR, EPSILON),
        correction=lambda: None,
        limit=-(-int(steps) // int(n_fetch)),
    )
    recorder = Recorder(world, "downpour", options)
    outcome = cluster.run(world, recorder, options, placement, [application], replica.work, lambda report: None)
    last = vector(replica.single)
    own = {
        "difference": max(replica.differences, default=0.0),
        "difference_at_the_end": (torch.from_numpy(outcome.tables[0]) - last).abs().max().item(),
        "moved": (last - vector(fresh_model(kind))).abs().max().item(),
        "computed": float(np.abs(replica.computed).max()),
        "lost": float(np.abs(replica.computed - replica.pushed).max()),
        "gradients": len(replica.differences),
        "clocks": replica.clocks,
    }
    texts = gather_text(world.control, json.dumps(own))
    return json.loads(texts[-1]) | {"updates": outcome.updates, "staleness": outcome.staleness} if texts else {}


with World.start(DownpourOptions(wait_timeout=30)) as world:
    answer = {case: run(world, case, Path(sys.argv[1])) for case in sys.argv[2:]}
    if world.rank == 0:
        print(json.dumps(answer))
