"""Every all-reduce against MPI's own, on all types and on lengths that do not divide."""

import json

import numpy as np
import pytest
from mpi4py import MPI
from simulated_nodes import on_nodes_of

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.checker import execute
from farandole.collectives.double_binary_tree import double_binary_tree
from farandole.collectives.executor import run, run_all_to_all, run_unequal_all_to_all
from farandole.collectives.pat import pat_all_gather, pat_reduce_scatter
from farandole.collectives.recursive import owned
from farandole.collectives.schedules import SCHEDULES
from farandole.collectives.steps import chunk_slices
from farandole.runtime.communicator import Communicator

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
TYPES = ["float32", "float64", "int32", "int64"]
AGGREGATED = (1, 2, 8)  # chunks of a message at most, by PAT
LENGTHS = sorted({0, 1, size - 1, size, size + 1, 1000, 4099})
LONG = 300_000
FEWER = (size + 1, 1000)  # of the types after the first: what is cut where depends on the length alone


def mine(length: int, kind: str) -> np.ndarray:
    """Whole numbers, exact in every type and in any order of addition; different on each rank."""
    return ((np.arange(length) * 7 + rank * 13) % 101).astype(kind)


def same_bits_everywhere(buffer: np.ndarray) -> bool:
    own = np.frombuffer(buffer.tobytes(), np.uint8)
    first = own.copy()
    world.Bcast(first)
    return bool(np.array_equal(own, first))


def check(name: str, comm: Communicator) -> int:
    """Exact on whole numbers of all types and lengths, and where rounding matters the same on all ranks."""
    all_reduce = ALL_REDUCES[name]
    for kind in TYPES:
        for length in (*LENGTHS, LONG) if kind == "float32" else FEWER:
            expected = mine(length, kind)
            world.Allreduce(MPI.IN_PLACE, expected)
            buffer = mine(length, kind)
            all_reduce(comm, buffer)
            assert buffer.dtype == kind
            assert np.array_equal(buffer, expected), (name, kind, length)
    for kind in ("float32", "float64"):
        for length in (1000, 4099):  # shared memory has one way for short vectors, another for long ones
            noise = np.random.default_rng(rank).standard_normal(length).astype(kind)
            expected = noise.astype(np.float64)
            world.Allreduce(MPI.IN_PLACE, expected)
            all_reduce(comm, noise)
            np.testing.assert_allclose(noise, expected, rtol=0, atol=100 * np.finfo(kind).eps)
            assert name == "mpi" or same_bits_everywhere(noise), (name, kind, length)
    return 1


def check_the_others(length: int) -> None:
    """Rooted collectives: as MPI's, with parts cut as ours."""
    comm = Communicator(world)
    parts = chunk_slices(length, size)
    counts = [part.stop - part.start for part in parts]
    own = mine(length, "float32")
    names = ("broadcast", "reduce", "scatter", "gather", "reduce-scatter", "all-gather")
    moved = {name: own.copy() for name in (*names, "reduce-scatter-halving", "all-gather-doubling")}
    for name, buffer in moved.items():
        run(SCHEDULES[name][0], comm, buffer)
    pats = {form: [own.copy() for _ in AGGREGATED] for form in (pat_reduce_scatter, pat_all_gather)}
    for form, buffers in pats.items():
        for aggregated, buffer in zip(AGGREGATED, buffers, strict=True):
            run(form(aggregated), comm, buffer)

    expected = own.copy()
    world.Bcast(expected)
    assert np.array_equal(moved["broadcast"], expected)
    assert np.array_equal(moved["scatter"][parts[rank]], expected[parts[rank]]), "the root's part"
    world.Allreduce(own, expected)
    assert rank != 0 or np.array_equal(moved["reduce"], expected)
    summed = parts[(rank + 1) % size]  # in a ring
    assert np.array_equal(moved["reduce-scatter"][summed], expected[summed])
    summed = parts[owned(rank, size)]
    assert np.array_equal(moved["reduce-scatter-halving"][summed], expected[summed])
    for buffer in pats[pat_reduce_scatter]:
        assert np.array_equal(buffer[parts[rank]], expected[parts[rank]])
    world.Allgatherv(own[parts[rank]], (expected, counts))
    assert rank != 0 or np.array_equal(moved["gather"], expected)
    for buffer in pats[pat_all_gather]:
        assert np.array_equal(buffer, expected)
    for name, chunk_of in {
        "all-gather": lambda r: (r + 1) % size,
        "all-gather-doubling": lambda r: owned(r, size),
    }.items():
        for owner in range(size):
            theirs = own.copy()
            world.Bcast(theirs, owner)
            expected[parts[chunk_of(owner)]] = theirs[parts[chunk_of(owner)]]
        assert np.array_equal(moved[name], expected)


def check_all_to_all(name: str) -> None:
    """As MPI's, on all types, on blocks of any shape; in the messages and bytes of the schedule."""
    schedule, _ = SCHEDULES[name]
    for kind in TYPES:
        for shape in ((0,), (1,), (3, 5), (4099,)) if kind == "float32" else ((3, 5),):
            own = mine(size * int(np.prod(shape)), kind).reshape(size, *shape)
            kept, expected = own.copy(), np.empty_like(own)
            world.Alltoall(own, expected)
            comm = Communicator(world)
            found = run_all_to_all(schedule, comm, own)
            assert found.dtype == kind
            assert np.array_equal(found, expected), (name, kind, shape)
            assert np.array_equal(own, kept), "what is sent stays as it was"
            execution = execute(schedule, size)
            assert comm.bytes_sent == execution.chunks_sent[rank] * own[0].nbytes
            assert comm.messages_sent == execution.steps[rank]


def check_unequal_all_to_all() -> None:
    """As MPI's Alltoallv, some blocks empty; in as many messages and bytes as there are for other ranks."""
    lengths = np.array([[(3 * source + 5 * to) % 4 for to in range(size)] for source in range(size)])
    for kind in TYPES:
        leaving = [np.arange(5 * n, dtype=kind) + 100 * rank + to for to, n in enumerate(lengths[rank])]
        arriving = [np.empty(5 * n, kind) for n in lengths[:, rank]]
        expected = np.empty(5 * lengths[:, rank].sum(), kind)
        world.Alltoallv([np.concatenate(leaving), 5 * lengths[rank]], [expected, 5 * lengths[:, rank]])
        comm = Communicator(world)
        run_unequal_all_to_all(comm, leaving, arriving)
        assert np.array_equal(np.concatenate(arriving), expected), kind
        others = [block for to, block in enumerate(leaving) if to != rank]
        assert comm.bytes_sent == sum(block.nbytes for block in others)
        assert comm.messages_sent == sum(block.size > 0 for block in others)


for length in LENGTHS:
    check_the_others(length)
for name in ("all-to-all", "all-to-all-bruck"):
    check_all_to_all(name)
check_unequal_all_to_all()
checked = sum(check(name, Communicator(world)) for name in ALL_REDUCES)
checked += sum(check("hierarchical", on_nodes_of(per_node)) for per_node in (1, 2, 3))

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

# The others also send the bytes of their schedules, in the messages of their formulas.
core = 1 << (size.bit_length() - 1)  # ranks of the power of two; the ranks beyond it send to a partner
rounds, extra = core.bit_length() - 1, size - core
folded = rank < 2 * extra and rank % 2 == 0
partner = rank < 2 * extra and rank % 2 == 1
children = sum(rank + distance < size for distance in (1, 2, 4) if rank % (2 * distance) == 0)
messages = {
    "tree": (rank > 0) + children,  # up, and down
    "doubling": 1 if folded else rounds + partner,
    "halving-doubling": 1 if folded else 2 * rounds + partner,
    "bidirectional-ring": 4 * (size - 1),
}
for name, expected in messages.items():
    schedule, _ = SCHEDULES[name]
    comm = Communicator(world)
    ALL_REDUCES[name](comm, np.zeros(1680, np.float32))  # divisible by all numbers of chunks here
    chunk_bytes = 4 * 1680 // schedule.chunks(size)
    assert comm.bytes_sent == execute(schedule, size).chunks_sent[rank] * chunk_bytes, name
    assert comm.messages_sent == expected, name

schedule, comm = double_binary_tree(1), Communicator(world)  # one segment: the vector is short
ALL_REDUCES["double-binary-tree"](comm, np.zeros(1680, np.float32))
assert comm.messages_sent == execute(schedule, size).chunks_sent[rank]
assert comm.bytes_sent == comm.messages_sent * 4 * 1680 // 2
for aggregated in AGGREGATED:
    for form in (pat_reduce_scatter, pat_all_gather):
        comm = Communicator(world)
        run(form(aggregated), comm, np.zeros(1680, np.float32))
        assert comm.bytes_sent == 4 * 1680 * (size - 1) // size
        assert comm.messages_sent == len(list(form(aggregated).steps(rank, size)))

# In shared memory no message is sent; across nodes it is 2(M−1)/M of this rank's part.
comm = Communicator(world)
ALL_REDUCES["shared-memory"](comm, np.zeros(1000, np.float32))
assert comm.bytes_sent == comm.messages_sent == 0
comm = on_nodes_of(2)
ALL_REDUCES["hierarchical"](comm, np.zeros(1680, np.float32))
nodes = -(-size // 2)
parts = 1 if size % 2 else 2
works = rank % 2 < parts
assert comm.bytes_sent == (pytest.approx(2 * (nodes - 1) / nodes * 4 * 1680 / parts, abs=8) if works else 0)

with pytest.raises(ValueError, match="reshape"):
    ALL_REDUCES["ring"](comm, np.zeros((4, 4), np.float32))

if rank == 0:
    print(json.dumps({"checked": checked, "ring_bytes_of_1000_floats": costs[2]}))
