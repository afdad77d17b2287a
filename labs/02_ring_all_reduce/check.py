"""Checks of lab 2: the result, and the messages and bytes that were sent to compute it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.expectations import THROUGH_COMM, expect_same_bits
from farandole_tools.lab.rank_status import named

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

    Comm = LabCommunicator

Vector = NDArray[Any]

ALL = (1, 2, 3, 4, 7)
MANY = 8400  # elements; every number of ranks above divides it


def gradients(length: int, ranks: int, dtype: type = np.float64) -> list[Vector]:
    """Every rank's gradient: the same on whichever rank this is called."""
    return [np.random.default_rng([length, rank]).normal(size=length).astype(dtype) for rank in range(ranks)]


def all_reduced(student: Any, comm: Comm, length: int, dtype: type = np.float64) -> tuple[Vector, Vector]:
    """Return the submission's result for this rank's gradient, and the mean."""
    everybodys = gradients(length, comm.size, dtype)
    gradient = everybodys[comm.rank].copy()
    student.ring_all_reduce_mean(gradient, comm)
    return gradient, np.mean(everybodys, axis=0, dtype=np.float64)


def check_mean(student: Any, comm: Comm) -> None:
    """Vectors with one element per rank: what each element is made of can be told from the result."""
    size = comm.size
    made_of = np.empty((size, size, size))  # made_of[i, rank, j]: how much of rank's element j is in our element i
    for source in range(size):
        for element in range(size):
            gradient = np.zeros(size)
            if comm.rank == source:
                gradient[element] = 1.0
            student.ring_all_reduce_mean(gradient, comm)
            made_of[:, source, element] = gradient
    right = np.zeros_like(made_of)
    for element in range(size):
        right[element, :, element] = 1 / size
    if not np.allclose(made_of, right, rtol=1e-9):
        raise_what_is_wrong(made_of, right, comm.rank, size)
    gradient, mean = all_reduced(student, comm, MANY)
    expect(
        np.allclose(gradient, mean, rtol=1e-9),
        f"vectors of {size} elements come out right, one of {MANY:,} does not: does every chunk keep its own length?",
    )


def raise_what_is_wrong(made_of: Vector, right: Vector, rank: int, size: int) -> None:
    """Tell the usual mistakes apart by what each element of the result is made of."""
    expect(np.isfinite(made_of).all(), f"rank {rank} ends with infinities or nan: is all memory filled before use?")
    own = np.zeros_like(made_of)
    own[np.arange(size), rank, np.arange(size)] = 1
    expect(
        not np.allclose(made_of, own),
        f"rank {rank}'s gradient is as it was: is the result written into the array itself (gradient[:] = ...)?",
    )
    expect(
        not np.allclose(made_of, own / size),
        f"rank {rank}'s result is its own gradient, divided by {size}, and contains nothing that it has received: are "
        "your chunks copies, instead of parts of the gradient itself?",
    )
    expect(
        not np.allclose(made_of, right * size),
        "the result is the sum: it still has to be divided by the number of ranks. If you divide, does the mean go "
        "into the array itself (gradient /= ...)?",
    )
    expect(
        not np.allclose(made_of, right / size),
        "the result is the mean divided by the number of ranks once more: divide only once",
    )
    complete = [i for i in range(size) if np.allclose(made_of[i], right[i])]
    element = next(i for i in range(size) if i not in complete)
    where = f"element {element} of {size} on rank {rank}"
    share = made_of[element]
    foreign = [(source, j) for source in range(size) for j in range(size) if j != element and share[source, j]]
    if foreign:
        source, j = foreign[0]
        expect(False, f"{where} contains element {j} of rank {source}'s gradient: is a chunk number off by one?")
    weights = share[:, element] * size  # 1 each if right
    missing = [source for source in range(size) if weights[source] == 0]
    expect(
        not missing or len(complete) != 1,
        f"one chunk of {size} is finished on rank {rank}, the others are not: "
        "the finished chunks have still to be passed around the ring",
    )
    expect(
        not missing,
        f"{where} lacks the gradient of {named(missing)}: is a chunk number off by one, or do you receive into the "
        "chunk that you then add to?",
    )
    source = int(np.argmax(np.abs(weights - 1)))
    times = weights[source]
    expect(
        not (times > 1 and np.isclose(times, round(times))),
        f"{where} counts the gradient of rank {source} {times:.0f} times: is a sum added to what it contains already?",
    )
    expect(
        False,
        f"{where} has 1/{1 / share[source, element]:.0f} of rank {source}'s gradient, not 1/{size}: "
        "is it divided at every step, instead of once at the end?",
    )


def check_any_length(student: Any, comm: Comm) -> None:
    size = comm.size
    # One that P divides comes first: a mistake that has nothing to do with the length is not blamed on it.
    for length in (2 * size, 11 * size - 1, size + 1, size - 1, 1, 0):
        with comm.case(f"length {length}"):
            gradient, mean = all_reduced(student, comm, length)
            wrong = np.flatnonzero(~np.isclose(gradient, mean, rtol=1e-9))
            if not wrong.size:
                continue
            remainder = length % size
            expect(remainder, "the result is not the mean: see the check mean")
            expect(
                wrong[0] < length - remainder,
                f"everything is right up to element {wrong[0]}, where the remainder of {length} / {size} begins: "
                "it belongs to some chunk too",
            )
            expect(False, f"element {wrong[0]} is not the mean, although shorter or longer vectors come out right")


def check_same_bits(student: Any, comm: Comm) -> None:
    gradient, _ = all_reduced(student, comm, MANY)
    expect_same_bits(gradient, comm, "chunk", rtol=1e-9)


def check_bytes(student: Any, comm: Comm) -> None:
    all_reduced(student, comm, MANY)
    vector = MANY * np.dtype(np.float64).itemsize
    ring = 2 * (comm.size - 1) * vector // comm.size
    sent = comm.bytes_sent
    hint = "2(P − 1) messages of one chunk each"
    if sent == ring * comm.size:
        hint = "is the whole vector sent at every hop?"
    elif sent == 0:
        hint = THROUGH_COMM
    elif sent == ring // 2:
        hint = "that is one round; the second passes the finished chunks on"
    expect(sent == ring, f"rank {comm.rank} sent {sent:,} bytes where a ring sends {ring:,}: {hint}")


def check_messages(student: Any, comm: Comm) -> None:
    all_reduced(student, comm, MANY)
    ring = 2 * (comm.size - 1)
    sent = f"{comm.messages_sent} message{'s' if comm.messages_sent != 1 else ''}"
    expect(
        comm.messages_sent == ring,
        f"rank {comm.rank} sent {sent} where a ring sends {ring}: "
        "P − 1 to add up, and P − 1 to pass on what is finished",
    )


def check_neighbours(student: Any, comm: Comm) -> None:
    all_reduced(student, comm, MANY)
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    strangers = sorted(comm.partners - {left, right})
    known = named(sorted({left, right}))
    expect(not strangers, f"rank {comm.rank} communicated with {named(strangers)}: in a ring it knows only {known}")
    expect(comm.partners, f"rank {comm.rank} sent to no rank: {THROUGH_COMM}")


def check_type(student: Any, comm: Comm) -> None:
    sent = []
    for dtype in (np.float32, np.float64):
        with comm.case(np.dtype(dtype).name):
            before = comm.bytes_sent
            gradient, mean = all_reduced(student, comm, MANY, dtype)
            expect(np.allclose(gradient, mean, rtol=0, atol=1e-3), "the result is not the mean: see the check mean")
            expect(
                np.allclose(gradient, mean, rtol=0, atol=8 * comm.size * np.finfo(dtype).eps),
                "the mean is less precise than this type allows: is everything computed in the gradient's own type?",
            )
            sent.append(comm.bytes_sent - before)
    expect(
        sent[0] < sent[1] or not sent[1],
        f"rank {comm.rank} sent {sent[0]:,} bytes for a vector of float32, and {sent[1]:,} for one of float64: are "
        "the chunks sent in the gradient's own type?",
    )


LAB = Lab(
    title="Ring all-reduce",
    file="ring_all_reduce.py",
    checks=(
        Check("mean", 2, ALL, check_mean),
        Check("any length", 2, ALL, check_any_length, builds_on=("mean",)),
        Check("same bits", 1, (2, 3, 4, 7), check_same_bits, needs=("mean",), builds_on=("mean",)),
        Check("bytes", 2, ALL, check_bytes, needs=("mean",)),
        Check("messages", 1, ALL, check_messages, needs=("mean",)),
        Check("neighbours", 1, (4, 7), check_neighbours, needs=("mean",)),
        Check("type", 1, (4,), check_type, needs=("mean",), builds_on=("mean",)),
    ),
)
