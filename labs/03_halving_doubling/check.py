"""Checks of lab 3: the sum, on any number of ranks, and the messages, bytes and memory that it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.expectations import THROUGH_COMM, expect_same_bits, expect_sent
from farandole_tools.lab.learner import noting_peak
from farandole_tools.lab.rank_status import named

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

    Comm = LabCommunicator

Vector = NDArray[Any]

POWERS = (2, 4, 8)  # three rounds of halving too: distances of 1, 2, 3 instead of 1, 2, 4 are right up to 4 ranks
OTHERS = (3, 5, 7)
SUM, ANY = ("sum",), ("any number of ranks",)  # checks of results
MANY = 8400  # elements; every power of two above divides it
LARGE = 2**18  # elements; Python's own memory is little beside them
SLACK = 0.1  # of the vector: what Python itself may take


def vectors(length: int, ranks: int) -> list[Vector]:
    """Every rank's vector: the same on whichever rank this is called."""
    return [np.random.default_rng([length, rank]).normal(size=length).astype(np.float32) for rank in range(ranks)]


def all_reduced(student: Any, comm: Comm, length: int) -> tuple[Vector, Vector]:
    """Return the submission's result for this rank's vector, and the elements where it is not the sum."""
    everybodys = vectors(length, comm.size)
    vector = everybodys[comm.rank].copy()
    student.halving_doubling_all_reduce(vector, comm)
    total = np.sum(everybodys, axis=0, dtype=np.float64)
    return vector, np.flatnonzero(~np.isclose(vector, total, rtol=0, atol=8 * comm.size * np.finfo(np.float32).eps))


def doublings(ranks: int) -> int:
    """How often 1 can be doubled without being more than `ranks`."""
    return ranks.bit_length() - 1


def check_sum(student: Any, comm: Comm) -> None:
    """Vectors with one element per rank: what each element is made of can be told from the result."""
    size = comm.size
    made_of = np.empty((size, size, size))  # made_of[i, rank, j]: how much of rank's element j is in our element i
    for source, element in np.ndindex(size, size):
        vector = np.zeros(size, np.float32)
        vector[element] = comm.rank == source
        student.halving_doubling_all_reduce(vector, comm)
        made_of[:, source, element] = vector
    right = np.zeros_like(made_of)
    for element in range(size):
        right[element, :, element] = 1
    if not np.array_equal(made_of, right):
        raise_what_is_wrong(made_of, right, comm.rank, size)
    _, wrong = all_reduced(student, comm, MANY)
    expect(
        not wrong.size,
        f"vectors of {size} elements come out right, one of {MANY:,} does not: does every half keep its own length?",
    )


def raise_what_is_wrong(made_of: Vector, right: Vector, rank: int, size: int) -> None:
    """Tell the usual mistakes apart by what each element of the result is made of."""
    beyond = size - 2 ** doublings(size)
    own = np.zeros_like(made_of)
    own[np.arange(size), rank, np.arange(size)] = 1
    as_it_was = "is anything sent, and is the result written into it?"
    lacking = f"are its partners at all distances 1, 2, 4, … up to {size // 2}?"
    if beyond:
        as_it_was = "does a rank beyond the power of two get the sum, too?"
        lacking = "are the ranks beyond the power of two folded in?"
    expect(not np.array_equal(made_of, own), f"rank {rank}'s vector is as it was: {as_it_was}")
    expect(not np.allclose(made_of * size, right), "the result is the mean: this lab needs the sum")
    complete = [i for i in range(size) if np.array_equal(made_of[i], right[i])]
    element = next(i for i in range(size) if i not in complete)
    where = f"element {element} of {size} on rank {rank}"
    share = made_of[element]
    foreign = [(source, j) for source in range(size) for j in range(size) if j != element and share[source, j]]
    if foreign:
        source, j = foreign[0]
        text = f"{where} contains element {j} of rank {source}'s vector"
        expect(False, f"{text}: do both partners halve the same part, and does one keep what the other gives away?")
    missing = [source for source in range(size) if share[source, element] == 0]
    if missing and complete:
        text = f"rank {rank} has the sum of {len(complete)} of {size} elements"
        expect(False, f"{text}: the others' finished parts have still to come, over the same partners in reverse order")
    if rank in missing and rank < 2 ** doublings(size):
        lacking = "is what arrives added to the part that it keeps, and is it this part that it sends on the way back?"
    expect(not missing, f"{where} lacks the vector of {named(missing)}: {lacking}")
    source = int(np.argmax(np.abs(share[:, element] - 1)))
    expect(
        False,
        f"{where} has {share[source, element]:g} times the vector of rank {source}: on the way back, what arrives "
        "takes the place of what was there; is it added?",
    )


def check_any_length(student: Any, comm: Comm) -> None:
    size = comm.size
    # One that P divides comes first: a mistake that has nothing to do with the length is not blamed on it.
    for length in (2 * size, 11 * size - 1, size + 1, size - 1, 1, 0):
        with comm.case(f"length {length}"):
            _, wrong = all_reduced(student, comm, length)
            if not wrong.size:
                continue
            expect(
                length % size, "the result is not the sum, although all halves have the same length: see the check sum"
            )
            expect(
                False,
                f"element {wrong[0]} is not the sum, although it is where P divides the length: of an odd number of "
                "elements one half has one more; does it belong to some half?",
            )


def check_same_bits(student: Any, comm: Comm) -> None:
    vector, _ = all_reduced(student, comm, MANY)
    expect_same_bits(vector, comm, "part", atol=1e-3)


def check_messages(student: Any, comm: Comm) -> None:
    all_reduced(student, comm, MANY)
    expect_sent(comm, comm.messages_sent)
    most = 2 * doublings(comm.size)
    expect(
        comm.messages_sent <= most,
        f"rank {comm.rank} sent {comm.messages_sent} messages where 2·lg P = {most} are enough: one to each of its "
        "lg P partners on the way there, and one on the way back",
    )


def check_bytes(student: Any, comm: Comm) -> None:
    all_reduced(student, comm, MANY)
    vector = MANY * np.dtype(np.float32).itemsize
    right = 2 * (comm.size - 1) * vector // comm.size
    sent = comm.bytes_sent
    hint = "a half, a quarter, and so on, and the same again on the way back"
    if sent == 0:
        hint = THROUGH_COMM
    elif sent > vector and sent % vector == 0:
        hint = "is the whole vector sent in every round?"
    elif sent == right // 2:
        hint = "that is the way there; on the way back the finished parts are sent"
    expect(sent == right, f"rank {comm.rank} sent {sent:,} bytes where 2(P − 1)/P of the vector is {right:,}: {hint}")


def check_memory(student: Any, comm: Comm) -> None:
    vector = np.ones(LARGE, np.float32)
    all_reduced(student, comm, comm.size)  # what a first call imports is not meant
    peak: list[int] = []
    with noting_peak(student, peak):
        student.halving_doubling_all_reduce(vector, comm)
    taken = peak[0] / vector.nbytes
    expect(
        taken <= 1 + SLACK,
        f"rank {comm.rank} takes memory for {taken:.1f} vectors beside its own: what arrives to be added needs half a "
        "vector, and on the way back everything can be received where it belongs",
    )


def check_any_number_of_ranks(student: Any, comm: Comm) -> None:
    check_sum(student, comm)
    check_any_length(student, comm)
    check_same_bits(student, comm)


def check_folding(student: Any, comm: Comm) -> None:
    """The two messages and one and a half vectors more are what the dearer of the published foldings takes."""
    all_reduced(student, comm, MANY)
    expect_sent(comm, comm.messages_sent)
    rounds, vector = doublings(comm.size), MANY * np.dtype(np.float32).itemsize
    most = 2 * rounds + 2
    expect(
        comm.messages_sent <= most,
        f"rank {comm.rank} sent {comm.messages_sent} messages where {2 * rounds} for {2**rounds} ranks and 2 for "
        f"those beyond, {most} in all, are enough",
    )
    most = 2 * vector - 2 * vector // 2**rounds + vector + vector // 2
    expect(
        comm.bytes_sent <= most,
        f"rank {comm.rank} sent {comm.bytes_sent:,} bytes where {most:,} are enough: those of {2**rounds} ranks, and "
        "for those beyond one and a half vectors",
    )


LAB = Lab(
    title="Halving-doubling",
    file="halving_doubling.py",
    checks=(
        Check("sum", 2, (1, *POWERS), check_sum),
        Check("any length", 1, (1, 2, 4), check_any_length, builds_on=SUM),
        Check("same bits", 1, POWERS, check_same_bits, needs=SUM, builds_on=SUM),
        Check("messages", 1, POWERS, check_messages, needs=SUM, builds_on=SUM),
        Check("bytes", 2, POWERS, check_bytes, needs=SUM, builds_on=SUM),
        Check("memory", 1, (2, 4), check_memory, needs=SUM, builds_on=SUM),
        Check("any number of ranks", 1, OTHERS, check_any_number_of_ranks, builds_on=(*SUM, "any length")),
        Check("folding", 1, OTHERS, check_folding, needs=ANY, builds_on=ANY),
    ),
)
