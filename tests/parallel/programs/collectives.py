"""Every all-reduce against MPI's own, on all types and on lengths that do not divide."""

import json

import numpy as np
import pytest
from mpi4py import MPI

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.steps import chunk_slices
from farandole.runtime.communicator import Communicator

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
TYPES = ["float32", "float64", "int32", "int64"]
LENGTHS = sorted({0, 1, size - 1, size, size + 1, 1000, 4099, 300_000})


def mine(length: int, kind: str) -> np.ndarray:
    """Whole numbers, exact in every type and in any order of addition; different on each rank."""
    return ((np.arange(length) * 7 + rank * 13) % 101).astype(kind)


def same_bits_everywhere(buffer: np.ndarray) -> bool:
    own = np.frombuffer(buffer.tobytes(), np.uint8)
    first = own.copy()
    world.Bcast(first)
    return bool(np.array_equal(own, first))


checked = 0
for name in ("ring", "central", "mpi"):
    for kind in TYPES:
        for length in LENGTHS:
            comm = Communicator(world)
            expected = mine(length, kind)
            world.Allreduce(MPI.IN_PLACE, expected)
            buffer = mine(length, kind)
            ALL_REDUCES[name](comm, buffer)
            assert buffer.dtype == kind
            assert np.array_equal(buffer, expected), (name, kind, length)
            checked += 1

# Where rounding depends on the order of addition the ranks must still agree to the bit.
for name in ("ring", "central"):
    noise = np.random.default_rng(rank).standard_normal(4099).astype(np.float32)
    expected = noise.astype(np.float64)
    world.Allreduce(MPI.IN_PLACE, expected)
    ALL_REDUCES[name](Communicator(world), noise)
    np.testing.assert_allclose(noise, expected, rtol=0, atol=1e-5)
    assert same_bits_everywhere(noise), name
    checked += 1

# Cost: what the ring sends is what the schedule says, and what the formula says to chunk rounding.
costs = []
for length in (0, size - 1, 1000, 4099):
    comm = Communicator(world)
    ALL_REDUCES["ring"](comm, np.zeros(length, np.float32))
    sizes = [4 * (part.stop - part.start) for part in chunk_slices(length, size)]
    scattered = sum(sizes[(rank - step) % size] for step in range(size - 1))
    gathered = sum(sizes[(rank + 1 - step) % size] for step in range(size - 1))
    assert comm.bytes_sent == scattered + gathered
    assert comm.messages_sent == 2 * (size - 1)
    formula = 2 * (size - 1) / size * 4 * length
    assert abs(comm.bytes_sent - formula) <= 2 * 4, (comm.bytes_sent, formula)
    costs.append(comm.bytes_sent)

comm = Communicator(world)
ALL_REDUCES["central"](comm, np.zeros(1000, np.float32))
assert comm.bytes_sent == (4000 * (size - 1) if rank == 0 else 4000)

with pytest.raises(ValueError, match="reshape"):
    ALL_REDUCES["ring"](comm, np.zeros((4, 4), np.float32))

if rank == 0:
    print(json.dumps({"checked": checked, "ring_bytes_of_1000_floats": costs[2]}))
