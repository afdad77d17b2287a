"""Grids, clocks, texts, shards and a random kill, on any number of ranks."""

import json
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from farandole.data import shards
from farandole.data.datasets import Dataset
from farandole.data.shares import equal_shares, slices
from farandole.errors import UsageError
from farandole.model_parallel.axes import Axes
from farandole.model_parallel.grid import Grid
from farandole.runtime import clock
from farandole.runtime.chaos import Chaos
from farandole.runtime.clock import offset_to_rank_0
from farandole.runtime.communicator import Communicator, broadcast_text, gather_text
from farandole.runtime.faults import Fail
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
comm = Communicator(world)

# Grids: for every factorisation, an axis holds exactly the ranks that differ along it only.
grids = 0
for data in (length for length in range(1, size + 1) if size % length == 0):
    axes = Axes(comm, Grid(data=data, pipeline=size // data))
    row, column = axes.axis("pipeline"), axes.axis("data")
    assert (row.size, column.size) == (size // data, data)
    assert [axes.place[axis] for axis in ("data", "pipeline")] == [rank // (size // data), rank % (size // data)]
    assert row.mpi.allgather(rank) == [axes.place["data"] * (size // data) + place for place in range(row.size)]
    assert column.mpi.allgather(rank) == [place * (size // data) + row.rank for place in range(data)]
    assert axes.axis("tensor").members == [rank]
    assert axes.along("data", "pipeline").members == list(range(size))
    grids += 1
with pytest.raises(UsageError, match="multiply to the number of ranks"):
    Axes(comm, Grid(data=size + 1))

# Texts of any length, empty ones too, from every rank in order.
texts = gather_text(world, "é" * rank)
assert texts == (["é" * other for other in range(size)] if rank == 0 else [])
assert broadcast_text(world, f"from {rank}", root=size - 1) == f"from {size - 1}"

# One host has one clock. Several hosts of two ranks each, whose clocks are 1000 s apart: an estimate is off by the time
# of a message at most, and the two ranks of a host have the same.
assert offset_to_rank_0(world) == 0
with TemporaryDirectory() as folder:
    clock.BOOT_ID = Path(folder) / "boot_id"
    clock.BOOT_ID.write_text(f"host {rank // 2}")
    clock.time = SimpleNamespace(perf_counter=lambda: time.perf_counter() + 1000 * (rank // 2))  # type: ignore[assignment]
    offsets = world.allgather(offset_to_rank_0(world))
    clock.time = time
assert all(abs(offset + 1000 * (other // 2)) < 100 for other, offset in enumerate(offsets)), offsets
assert offsets[0] == 0
assert all(offsets[other] == offsets[other - other % 2] for other in range(size))

# A message sent to a rank's right arrives from its left, and is counted once, where it left.
sent, arrived = np.full(10, rank, np.float32), np.empty(10, np.float32)
before = comm.bytes_sent
comm.exchange(sent, (rank + 1) % size, arrived, (rank - 1) % size)
assert (arrived == (rank - 1) % size).all()
assert comm.bytes_sent - before == 40

# Shards by number: every rank has its own rows, and the root has sent all but its own; images, text, anything.
shares = equal_shares(103, size)
root = size - 1
for everything, each in (
    (Dataset(np.arange(103 * 4, dtype=np.float32).reshape(103, 1, 2, 2), np.arange(103)), 4 * 4 + 8),
    (Dataset(np.arange(103 * 6).reshape(103, 6), np.arange(103 * 6)[::-1].reshape(103, 6)), 6 * 8 + 6 * 8),
    (Dataset(np.arange(103 * 2, dtype=np.float64).reshape(103, 1, 2), np.arange(103, dtype=np.int16)), 2 * 8 + 2),
):
    before = comm.bytes_sent
    shard = shards.scatter(everything if rank == root else None, shares, comm, root)
    mine = everything[slices(shares)[rank]]
    assert (shard.inputs.dtype, shard.targets.dtype) == (mine.inputs.dtype, mine.targets.dtype)
    assert np.array_equal(shard.inputs, mine.inputs)
    assert np.array_equal(shard.targets, mine.targets)
    assert comm.bytes_sent - before == (each * (103 - shares[root]) if rank == root else 0)


class SlowWitness:
    """Logs a death slowly, and then prevents it."""

    def __init__(self) -> None:
        self.writes = threading.Event()
        self.logged = self.reached = -1

    def strikes(self, fail: Fail) -> None:
        self.logged = fail.step
        self.writes.set()
        time.sleep(0.05)
        self.reached = trained.position.step
        sys.exit()  # of a thread, it ends that thread alone

    def fails(self, step: int) -> None: ...

    def notices(self, ranks: object, step: int) -> None: ...


# A random kill happens in the logged step: meanwhile the rank begins no other.
with World.start(RunOptions(chaos=Chaos(1e-6), wait_timeout=30)) as trained:
    trained.witness = witness = SlowWitness()
    trained.begin_step(3)
    trained.begin_chaos()
    assert witness.writes.wait(30)
    trained.begin_step(4)
    assert (witness.logged, witness.reached) == (3, 3)

comm.barrier()
if rank == 0:
    print(json.dumps({"grids": grids, "divisors": sum(size % n == 0 for n in range(1, size + 1))}))
