"""On which hosts the ranks are, with how many threads, and how long 2 MiB take within one and to another."""

import json
import time

import numpy as np
import torch
from mpi4py import MPI

from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

BYTES = 2 << 20

world = MPI.COMM_WORLD
node = world.Split_type(MPI.COMM_TYPE_SHARED)
buffer = np.zeros(BYTES, np.uint8)


def seconds(to: int, tries: int) -> float:
    """Return the time from rank 0 to rank `to` and its reply: the shortest of some tries, as the cores are shared."""
    taken = []
    for _ in range(tries):
        start = time.perf_counter()
        if world.rank == 0:
            world.Send(buffer, to)
            world.recv(source=to)
        if world.rank == to:
            world.Recv(buffer, 0)
            world.send(None, 0)
        taken.append(time.perf_counter() - start)
        world.Barrier()
    return min(taken)


within, across = seconds(1, 20), seconds(world.size - 1, 2)
hosts, sizes = world.gather(MPI.Get_processor_name()), world.gather(node.size)
with World.start(RunOptions()):
    threads = world.gather(torch.get_num_threads())
if world.rank == 0:
    where = {"hosts": hosts, "local_sizes": sizes, "threads": threads}
    print(json.dumps(where | {"bytes": BYTES, "within_s": within, "across_s": across}))
