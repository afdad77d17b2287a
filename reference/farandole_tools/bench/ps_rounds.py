"""Our own parameter server, doing the rounds of `ps_task.py`.

    mpirun -n 4 python -m farandole_tools.bench.ps_rounds ELEMENTS ROUNDS [OPTION ...]

The policy is mini-batch synchronous, the rule SGD. Rank 0 is manager and server, all others are
workers; options are those of the roles: --place, --transport, --ranges. Without any, parameters and
gradients lie in the window that the ranks of one host share, and a worker copies the parameters out of it;
with --in-place it reads them there. With --touched the vector is a table of rows of --width elements, of
which every worker pushes and pulls --touched, the same in each round.
"""

import json
import sys
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from cyclopts import Parameter
from numpy.typing import NDArray

from farandole.parameter_server import cluster
from farandole.parameter_server.application import Application
from farandole.parameter_server.core.policies import BSP
from farandole.parameter_server.core.update_rules import SGD
from farandole.parameter_server.kv_worker import KVWorker, Start
from farandole.parameter_server.options import ServerOptions
from farandole.parameter_server.placement import Placement
from farandole.runtime.command_line import parse
from farandole.runtime.numbers import AtLeastOne
from farandole.runtime.timing import slowest_s
from farandole.runtime.world import World
from farandole_tools.bench import ps_task


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options(ServerOptions):
    """Options of the measurement."""

    transport: Literal["messages", "window"] = "window"
    """How parameters and gradients travel."""

    in_place: bool = False
    """Read the parameters in the window, where the server has written them."""

    touched: AtLeastOne | None = None
    """Rows that are pushed and pulled; the rest of the table rests. [default: the whole vector]"""

    width: AtLeastOne = 64
    """Elements of a row."""


class Worker:
    """One worker's rounds.

    Attributes:
        seconds: of each round, from a common start to the last worker's end.
    """

    def __init__(self, world: World, options: Options, workers: tuple[int, ...], elements: int, rounds: int) -> None:
        self.world, self.workers, self.rounds = world, workers, rounds
        self.seconds: list[float] = []
        self.rows: NDArray[np.int64] | None = None
        self.in_place = options.in_place
        number = workers.index(world.rank) + 1
        self.parameters = np.zeros(elements, dtype=np.float32)
        self.gradient = ps_task.gradient(number, elements)
        if options.touched:
            table_rows = elements // options.width
            chosen = np.random.default_rng(0).choice(table_rows, min(options.touched, table_rows), replace=False)
            self.rows = np.sort(chosen).astype(np.int64)
            self.parameters = np.zeros((len(self.rows), options.width), dtype=np.float32)
            self.gradient = ps_task.gradient(number, self.parameters.size).reshape(self.parameters.shape)

    def work(self, kv: KVWorker) -> None:
        others = self.world.control.Create_group(self.world.control.Get_group().Incl(self.workers))
        if kv.slot is not None and self.rows is None:
            kv.slot[:] = self.gradient
            self.gradient = kv.slot
        self._pull(kv)
        for done in range(1, self.rounds + 1):
            self.seconds.append(slowest_s(others, partial(self._push_and_pull, kv, done - 1)))
            ps_task.check(self.parameters.reshape(-1), len(self.workers), done, every=ps_task.SAMPLE)
        ps_task.check(self.parameters.reshape(-1), len(self.workers), self.rounds)
        self._push(kv, self.rounds)  # the iteration that the last pull has begun

    def _push_and_pull(self, kv: KVWorker, clock: int) -> None:
        self._push(kv, clock)
        self._pull(kv)

    def _pull(self, kv: KVWorker) -> None:
        start: Start = kv.wait(kv.pull(None if self.in_place else self.parameters, self.rows), "pull")
        if self.in_place:
            assert start.parameters is not None
            self.parameters = start.parameters

    def _push(self, kv: KVWorker, clock: int) -> None:
        kv.push(self.gradient, clock, 1 / len(self.workers), self.rows)


def main() -> None:
    elements, rounds = map(int, sys.argv[1:3])
    options = parse(Options, sys.argv[3:])
    with World.start(options) as world:
        usual = f"servers=0,workers=1-{world.size - 1}"
        placement = Placement.parse(options.place or usual, world.size)
        shape = (elements // options.width, options.width) if options.touched else (elements,)
        parameters = Application(
            table=np.zeros(shape, dtype=np.float32),
            workers=placement.workers,
            clients=placement.workers,
            policy=lambda: BSP(placement.workers),
            rule=lambda values: SGD(ps_task.LEARNING_RATE),
            correction=lambda: None,
            limit=None,
        )
        worker = None
        if world.rank in placement.workers:
            worker = Worker(world, options, placement.workers, elements, rounds)
        work = worker.work if worker else lambda kv: None
        cluster.run(
            world, None, options, placement, [parameters], work, reported=lambda report: None
        )  # fmt: skip
        measured = np.array(worker.seconds) if worker else np.zeros(rounds)
        world.control.Bcast(measured, placement.workers[0])
    if world.rank == 0:
        print(json.dumps(measured.tolist()))


if __name__ == "__main__":
    main()
