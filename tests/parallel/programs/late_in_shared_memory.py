"""Consecutive all-reduces in shared memory while one rank is late: at its turn, or around each barrier.

Without a barrier the others continue without the late rank, and read or write data that are not ready.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
from mpi4py import MPI
from simulated_nodes import on_nodes_of

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.shared_memory import SHORT, SharedVectors
from farandole.collectives.steps import chunk_slices
from farandole.runtime.communicator import Communicator

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
LATE_S = 0.002
ROUNDS = 4  # for each late rank, in each way
WAYS = ("before its turn", "before a barrier", "after a barrier")
LENGTHS = (size - 1, 1001, 5001)
assert 1001 * 8 < SHORT < 5001 * 4, "short and long, for all types"


@contextmanager
def late(here: bool, way: str) -> Iterator[Callable[[], None]]:
    """Make this rank late at barriers if it is `here`; call the yielded function before each turn."""
    meet = SharedVectors.meet

    def sleep(place: str) -> None:
        if here and place == way:
            time.sleep(LATE_S)

    def meet_late(vectors: SharedVectors) -> None:
        sleep("before a barrier")
        meet(vectors)
        sleep("after a barrier")

    with patch.object(SharedVectors, "meet", meet_late):
        yield lambda: sleep("before its turn")


def turns() -> Iterator[int]:
    """Yield the turns' numbers, with each rank late in each way; only the all-reduce itself makes ranks wait."""
    number = 0
    for way in WAYS:
        for who in range(size):
            with late(rank == who, way) as begin:
                for _ in range(ROUNDS):
                    begin()
                    yield number
                    number += 1


def numbers_of(which: int, turn: int, length: int, kind: str) -> np.ndarray:
    """Return whole numbers, exact in every type, different at each turn, on each rank, for each element."""
    return ((np.arange(length) * 7 + which * 13 + turn * 31) % 101).astype(kind)


def total(turn: int, length: int, kind: str) -> np.ndarray:
    return sum(numbers_of(which, turn, length, kind) for which in range(size))


def check(name: str, comm: Communicator, length: int, kind: str) -> int:
    turn = -1
    for turn in turns():
        buffer = numbers_of(rank, turn, length, kind)
        ALL_REDUCES[name](comm, buffer)
        assert np.array_equal(buffer, total(turn, length, kind)), (name, length, kind, turn)
    return turn + 1


def check_vectors(parts: int, length: int, kind: str) -> int:
    """Sum vectors in the window, whole or part by part."""
    vectors = SharedVectors(Communicator(world), length, kind)
    turn = -1
    for turn in turns():
        expected = vectors.own[:] = numbers_of(rank, turn, length, kind)
        for part in chunk_slices(length, parts):
            vectors.all_reduce(vectors.own[part] if parts > 1 else None)
            expected[part] = total(turn, length, kind)[part]
            assert np.array_equal(vectors.own, expected), (parts, length, kind, turn)
    vectors.free()
    return turn + 1


turns_taken = 0
comm, nodes = Communicator(world), on_nodes_of(2)
for kind in ("float32", "float64", "int64"):
    for length in LENGTHS:
        turns_taken += check("shared-memory", comm, length, kind)
        turns_taken += check("hierarchical", nodes, length, kind)
        turns_taken += check_vectors(1, length, kind)
    turns_taken += check_vectors(3, LENGTHS[-1], kind)
if rank == 0:
    print(json.dumps(turns_taken))
