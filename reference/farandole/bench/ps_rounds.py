"""Our own parameter server, doing the rounds of `ps_task.py`.

    mpirun -n 4 python -m farandole.bench.ps_rounds ELEMENTS ROUNDS [OPTION ...]

The policy is mini-batch synchronous, the rule SGD. Rank 0 is manager and server, all others are
workers; options are those of the roles: --place, --transport, --ranges. Without any, parameters and
gradients lie in the window that the ranks of one host share.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial

import numpy as np
from cyclopts import Parameter

from farandole.bench import ps_task
from farandole.bench.timing import slowest_s
from farandole.parameter_server import cluster
from farandole.parameter_server.client import Client
from farandole.parameter_server.options import ServerOptions
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.policies import Minibatch
from farandole.parameter_server.update_rules import SGD
from farandole.runtime.world import World
from farandole.scenarios import parse


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options(ServerOptions):
    """Options of the measurement."""

    transport: str = "window"  # type: ignore[assignment]
    ranges: int = 256


class FromBarrier:
    """Nothing is recorded here: the rounds are timed one by one."""

    def __init__(self, world: World) -> None:
        self.world = world

    def start(self) -> None:
        self.world.control.Barrier()

    def stop(self) -> None:
        pass


def work(
    world: World, workers: tuple[int, ...], elements: int, rounds: int, seconds: list[float], client: Client
) -> None:
    """A worker's rounds; leaves the seconds of each in `seconds`."""
    others = world.control.Create_group(world.control.Get_group().Incl(workers))
    parameters = np.zeros(elements, dtype=np.float32)
    gradient = ps_task.gradient(workers.index(world.rank) + 1, elements)
    if client.slot is not None:
        client.slot[:] = gradient
        gradient = client.slot
    client.wait(client.start(parameters), "pull")

    def push_and_pull(clock: int) -> None:
        client.push(gradient, clock, 1 / len(workers))
        client.wait(client.start(parameters), "pull")

    for done in range(1, rounds + 1):
        seconds.append(slowest_s(others, partial(push_and_pull, done - 1)))
        ps_task.check(parameters, len(workers), done, every=ps_task.SAMPLE)
    ps_task.check(parameters, len(workers), rounds)
    client.push(gradient, rounds, 1 / len(workers))  # the iteration that the last pull has begun


def main() -> None:
    elements, rounds = map(int, sys.argv[1:3])
    options = parse(Options, sys.argv[3:])
    seconds: list[float] = []
    with World.start(options) as world:
        usual = f"servers=0,workers=1-{world.size - 1}"
        placement = Placement.parse(options.place or usual, world.size)
        parameters = cluster.Application(
            table=np.zeros(elements, dtype=np.float32),
            workers=placement.workers,
            clients=placement.workers,
            policy=lambda: Minibatch(placement.workers),
            rule=lambda values: SGD(ps_task.LEARNING_RATE),
            correction=lambda: None,
            limit=None,
        )
        cluster.run(
            world,
            FromBarrier(world),
            options,
            placement,
            [parameters],
            partial(work, world, placement.workers, elements, rounds, seconds),
            reported=lambda report: None,
        )
        measured = np.zeros(rounds)
        if world.rank == placement.workers[0]:
            measured[:] = seconds
        world.control.Bcast(measured, placement.workers[0])
    if world.rank == 0:
        print(json.dumps(measured.tolist()))


if __name__ == "__main__":
    main()
