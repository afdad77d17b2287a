"""The all-reduce that chooses: right sums by the schedule that its figures call the fastest, measured once."""

import json
import os
import tempfile
from pathlib import Path

import numpy as np
from mpi4py import MPI

from farandole.collectives import automatic
from farandole.collectives.all_reduce import all_reduce_of
from farandole.collectives.fitting import fastest
from farandole.runtime.communicator import Communicator, broadcast_text

world = MPI.COMM_WORLD
LENGTHS = (0, 1, world.size + 1, 1000, 70_001)
automatic.SIZES = (1 << 10, 16 << 10, 128 << 10)  # shorter than usual, since only the way is tested
measured, calls = automatic.measured, []
automatic.measured = lambda comm: calls.append(comm) or measured(comm)

folder = Path(broadcast_text(world, tempfile.mkdtemp() if world.rank == 0 else ""))
os.environ["XDG_CACHE_HOME"] = str(folder)
file = folder / "farandole" / "network.json"


def everybodys(value):
    return world.allgather(value)


def summed(comm):
    """Sum vectors of all lengths and two types; return what is known of the machine, the same on all ranks."""
    all_reduce = all_reduce_of("auto", comm)
    assert (comm.bytes_sent, comm.messages_sent) == (0, 0), "measuring is not counted"
    for length in LENGTHS:
        for kind in (np.float32, np.float64):
            buffer = (np.arange(length) * 7 + world.rank).astype(kind)
            all_reduce(comm, buffer)
            expected = np.arange(length) * 7.0 * world.size + sum(range(world.size))
            assert np.array_equal(buffer, expected), (length, kind)
    for nbytes, name in all_reduce.chosen.items():
        assert name == fastest(all_reduce.machine, world.size, nbytes)
    assert all_reduce_of("auto", comm) is all_reduce, "kept for the group"
    first, *others = everybodys(all_reduce.figures())
    assert others == [first] * len(others)
    return first


first = summed(Communicator(world))
assert first["kept"] == str(file)
assert (first["alpha_s"] > 0) == (world.size > 1)
again = summed(Communicator(world))
assert again == first
assert len(calls) == 1, "measured once"

for text in ("{", "[]", json.dumps({automatic._name(Communicator(world)): {"alpha_s": "fast"}})):  # damaged: anew
    if world.rank == 0:
        file.write_text(text)
    world.Barrier()
    assert summed(Communicator(world))["kept"] == str(file)
assert len(calls) == 4

os.environ["XDG_CACHE_HOME"] = "/dev/null/nowhere"
assert summed(Communicator(world))["kept"] is None, "it works where nothing can be kept"
if world.rank == 0:
    print(json.dumps({"files": sorted(each.name for each in file.parent.iterdir()), "figures": again}))
    for each in (file, file.parent, folder):
        each.unlink() if each.is_file() else each.rmdir()
