"""Checks of lab 13: the choice of entries, no entry lost, the bytes, and a training that converges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.expectations import THROUGH_COMM, expect_returned

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

    Comm = LabCommunicator

Vector = NDArray[Any]

RANKS = (2, 3, 4, 7)
LENGTH, K = 40, 4
STEPS, RATE = 600, 0.1


def chosen(answer: Any, call: str, k: int, length: int) -> tuple[Vector, Vector]:
    """Places and values, if they can be such."""
    expect_returned(answer, call)
    try:
        places, values = (np.asarray(each) for each in answer)
    except (TypeError, ValueError):
        expect(False, f"{call} returns {type(answer).__name__}: places and values are needed, two arrays")
    judge_places(places, call, k, length)
    expect(values.shape == (k,), f"{call} returns {values.size} values for {k} places")
    expect(values.dtype == np.float32, f"{call} returns values of {values.dtype}, not of float32")
    return places, values


def judge_places(places: Vector, call: str, k: int, length: int) -> None:
    expect(places.ndim == 1 and len(places) == k, f"{call} returns {places.size} places, and not {k}")
    expect(places.dtype == np.int32, f"{call} returns places of {places.dtype}: they must be int32, 4 bytes each")
    expect(not k or 0 <= places.min() <= places.max() < length, f"{call} returns places beyond the vector's {length}")
    expect((np.diff(places) > 0).all(), f"{call} returns places that do not ascend, or one twice")


def check_largest(student: Any, comm: Comm) -> None:
    random = np.random.default_rng(0)
    for length, k in ((8, 3), (100, 1), (100, 100), (1000, 10), (5, 0), (0, 0)):
        vector = random.permutation(np.arange(1, length + 1)).astype(np.float32) * random.choice([-1, 1], length)
        vector = vector.astype(np.float32)
        before = vector.copy()
        with comm.case(f"with k = {k}, of {length} entries"):
            answer = student.largest(vector, k)
            expect_returned(answer, "largest")
            places = np.asarray(answer)
            expect(np.array_equal(vector, before), "largest changes the vector that it is given")
            judge_places(places, "largest", k, length)
            judge_choice(vector, places, k, "the vector")


def judge_choice(vector: Vector, places: Vector, k: int, whose: str) -> None:
    """Check that these are the k entries of largest magnitude."""
    order = np.sort(np.abs(vector))[::-1]
    if not k or np.abs(vector[places]).min() >= order[k - 1]:
        return
    by_value = np.sort(np.argsort(vector)[::-1][:k])
    expect(
        not np.array_equal(places, by_value),
        "these are the largest values; a large negative entry is as important: the magnitude counts",
    )
    least = places[np.abs(vector[places]).argmin()]
    expect(False, f"entry {least} of {whose}, {vector[least]:g}, is chosen, though {k} others are larger in magnitude")


def gradients(seed: int) -> list[Vector]:
    """Whole numbers, so that sums of them are exact in any order."""
    random = np.random.default_rng(seed)
    return [random.integers(-20, 21, LENGTH).astype(np.float32) for _ in range(50)]


def check_feedback(student: Any, comm: Comm) -> None:
    residual, owed, sent = (np.zeros(LENGTH, np.float32) for _ in range(3))
    ever = np.zeros(LENGTH, bool)
    # Of these gradients every entry has been sent after some twenty calls, whichever of two equal ones goes first.
    for number, gradient in enumerate(gradients(9)):
        with comm.case(f"call {number}"):
            before, given, due = residual.copy(), gradient.copy(), residual + gradient
            places, values = chosen(student.compress(given, residual, K), "compress", K, LENGTH)
            expect(np.array_equal(given, gradient), "compress changes the gradient that it is given")
            owed += gradient
            sent[places] += values
            ever[places] = True
            judge_feedback(before, gradient, due, residual, places, values)
            expect(
                np.array_equal(sent + residual, owed), "what was sent and what is kept are not all gradients together"
            )
    expect(ever.all(), f"after 50 calls entry {int(np.argmin(ever))} has never been sent")


def judge_feedback(
    before: Vector, gradient: Vector, due: Vector, residual: Vector, places: Vector, values: Vector
) -> None:
    kept = due.copy()
    kept[places] = 0
    if np.array_equal(residual, kept) and np.array_equal(values, due[places]):
        judge_choice(due, places, K, "what is owed, gradient and residual together")
        return
    lost = gradient.copy()
    lost[places] = 0
    for mistaken, hint in (
        (
            np.zeros_like(due),
            "the residual is 0 everywhere: what is not sent now is to be kept in it, in place, not in a new array",
        ),
        (before, "the residual is as it was: it has to be changed in place"),
        (due, "what was sent is kept as well, and will be sent again and again"),
        (lost, "of the residual only this gradient's rest is left: what was owed before is gone"),
        (kept + before, "the residual is added twice"),
    ):
        expect(not (np.array_equal(residual, mistaken) and not np.array_equal(mistaken, kept)), hint)
    expect(
        np.array_equal(values, due[places]),
        "the values sent are not what is owed there, gradient and residual together",
    )
    expect(False, "the residual is not what is owed less what was sent")


def check_payload(student: Any, comm: Comm) -> None:
    for k in (3, 1, 0):
        with comm.case(f"{k} entries"):
            places = np.append(np.arange(7, 7 + 2 * k, 2)[1:], 2**31 - 1)[:k].astype(np.int32)
            values = np.random.default_rng(k).normal(size=k).astype(np.float32)
            payload = student.pack(places, values)
            expect_returned(payload, "pack")
            payload = np.asarray(payload)
            expect(payload.dtype == np.uint8, f"pack returns {payload.dtype}; a message of bytes is uint8")
            hint = ": places of 4 bytes are enough for four thousand million entries" if payload.size == 12 * k else ""
            expect(
                payload.shape == (8 * k,), f"pack makes {payload.size} bytes of {k} entries, 8 each are {8 * k}{hint}"
            )
            back = student.unpack(payload.copy())
            expect_returned(back, "unpack")
            own_places, own_values = (np.asarray(each) for each in back)
            expect(own_places.dtype == np.int32, f"unpack returns places of {own_places.dtype}, not of int32")
            expect(own_values.dtype == np.float32, f"unpack returns values of {own_values.dtype}, not of float32")
            expect(
                len(own_places) == k == len(own_values),
                f"unpack returns {len(own_places)} places and {len(own_values)} values, and pack was given {k} of each",
            )
            judge_unpacked(own_places, own_values, places, values)


def judge_unpacked(own_places: Vector, own_values: Vector, places: Vector, values: Vector) -> None:
    hint = "keep the 4 bytes of the {}, as a view does: a conversion makes other bytes"
    if np.array_equal(own_places.view(np.float32), values):
        hint = "those are the 4 bytes of a value. In which order does pack put places and values, and unpack read them?"
    for what, came, given in (("place", own_places, places), ("value", own_values, values)):
        for number in np.flatnonzero(came != given)[:1]:
            expect(False, f"{what} {given[number]} came back as {came[number]}: {hint.format(given.dtype)}")


def everybodys(ranks: int, length: int, k: int) -> list[tuple[Vector, Vector]]:
    """Each rank's places and values; place 0 is that of all."""
    made = []
    for rank in range(ranks):
        random = np.random.default_rng([ranks, length, rank])
        places = np.sort(np.append(0, 1 + random.choice(length - 1, k - 1, replace=False))).astype(np.int32)
        made.append((places, random.normal(size=k).astype(np.float32)))
    return made


def check_sum(student: Any, comm: Comm) -> None:
    for length, k in ((6, 6), (30, 5), (1000, 10), (10, 1)):
        with comm.case(f"{k} of {length} entries"):
            each = everybodys(comm.size, length, k)
            total = np.zeros(length)
            for places, values in each:
                total[places] += values
            answer = student.sum_of_all(*(part.copy() for part in each[comm.rank]), length, comm)
            expect_returned(answer, "sum_of_all")
            result = np.asarray(answer)
            expect(result.shape == (length,), f"sum_of_all returns shape {result.shape}; it is ({length},)")
            expect(result.dtype == np.float32, f"sum_of_all returns {result.dtype}, not float32")
            judge_sum(result, total, each, comm)


def judge_sum(result: Vector, total: Vector, each: list[tuple[Vector, Vector]], comm: Comm) -> None:
    if not np.allclose(result, total, rtol=0, atol=1e-5):
        own, last = np.zeros_like(total), np.zeros_like(total)
        own[each[comm.rank][0]] = each[comm.rank][1]
        for places, values in each:
            last[places] = values
        expect(not np.allclose(result, own), f"rank {comm.rank} has its own entries alone: is anything sent?")
        expect(not np.allclose(result * comm.size, total), "the result is the mean: this lab needs the sum")
        lacks_own = np.allclose(result, total - own, rtol=0, atol=1e-5)
        expect(
            not lacks_own or np.allclose(result, last),
            f"rank {comm.rank}'s result lacks what rank {comm.rank} itself has sent",
        )
        several = sum(0 in places for places, _ in each)
        expect(
            np.isclose(result[0], total[0], atol=1e-5),
            f"entry 0 was sent by {several} ranks and is {result[0]:.3g}, the sum is {total[0]:.3g}: "
            "of what several have sent, does the last one take the place of the others"
            + (f", or is what rank {comm.rank} itself has sent left out?" if lacks_own else "?"),
        )
        expect(False, f"entry {int(np.abs(result - total).argmax())} is not the sum")
    for other, theirs in enumerate(comm.everybodys(result)):
        expect(
            np.array_equal(theirs, result),
            f"ranks {comm.rank} and {other} differ in the last bits: each adds up in a different order; take that of "
            "the ranks' numbers",
        )


def check_bytes(student: Any, comm: Comm) -> None:
    length, k = 10_000, 25
    each = everybodys(comm.size, length, k)
    student.sum_of_all(*(part.copy() for part in each[comm.rank]), length, comm)
    sent, right = comm.bytes_sent, 8 * k * (comm.size - 1)
    hint = "each rank passes P − 1 payloads on, or sends its own to P − 1 ranks"
    if sent == 0:
        hint = THROUGH_COMM
    elif sent >= 4 * length // comm.size:
        hint = "is the whole vector sent, zeros and all? A ring all-reduce would do that as well"
    elif sent == 12 * k * (comm.size - 1):
        hint = "places take 4 bytes"
    expect(sent == right, f"rank {comm.rank} sent {sent:,} bytes where (P − 1)·8k = {right:,}: {hint}")
    most = comm.size - 1
    expect(
        comm.messages_sent <= most,
        f"rank {comm.rank} sent {comm.messages_sent} messages where {most} are enough: places "
        "and values travel together",
    )


def check_training(student: Any, comm: Comm) -> None:
    """½Σh_i(x_i − t_i)² on each rank, each with a different target and one entry in ten sent."""
    curvatures = np.linspace(0.05, 1, LENGTH).astype(np.float32)
    targets = np.random.default_rng(comm.size).normal(size=(comm.size, LENGTH)).astype(np.float32)
    point, residual = np.zeros(LENGTH, np.float32), np.zeros(LENGTH, np.float32)
    for _ in range(STEPS):
        gradient = curvatures * (point - targets[comm.rank])
        places, values = student.compress(gradient, residual, K)
        point -= np.float32(RATE / comm.size) * np.asarray(student.sum_of_all(places, values, LENGTH, comm))
    apart = np.abs(point - targets.mean(axis=0)).max()
    expect(
        np.isfinite(point).all() and apart < 0.2,
        f"after {STEPS} steps, with {K} of {LENGTH} entries in each, the training is {apart:.3g} away from where it "
        "should be: entries that are never sent never count",
    )


def check_momentum(student: Any, comm: Comm) -> None:
    velocity, residual = np.zeros(LENGTH, np.float32), np.zeros(LENGTH, np.float32)
    right_velocity, right_residual = velocity.copy(), residual.copy()
    for number, gradient in enumerate(gradients(1)[:12]):
        with comm.case(f"call {number}"):
            given = gradient.copy()
            answer = student.compress_with_momentum(given, velocity, residual, 0.5, K)
            places, values = chosen(answer, "compress_with_momentum", K, LENGTH)
            expect(np.array_equal(given, gradient), "compress_with_momentum changes the gradient that it is given")
            was = right_velocity.copy()
            right_velocity = np.float32(0.5) * right_velocity + gradient
            due = right_residual + right_velocity
            right_residual = due.copy()
            right_residual[places] = 0
            unmasked = right_velocity.copy()
            right_velocity[places] = 0
            expect(number or np.array_equal(values, due[places]), "what is sent first is the gradient, k entries of it")
            expect(
                not np.array_equal(velocity, unmasked) or np.array_equal(unmasked, right_velocity),
                "what has been sent still has its velocity, and will be pushed on by old momentum: clear it there, too",
            )
            expect(
                not np.array_equal(velocity, was) or np.array_equal(was, right_velocity),
                "the velocity was left as it was: change the array that was given",
            )
            expect(
                np.array_equal(velocity, right_velocity),
                "the velocity is not momentum·velocity + gradient, cleared where something was sent",
            )
            expect(
                np.array_equal(residual, right_residual) and np.array_equal(values, due[places]),
                "what is owed is not the residual and the velocity together",
            )
            judge_choice(due, places, K, "what is owed")


LAB = Lab(
    title="Top-k with error feedback",
    file="topk_error_feedback.py",
    patience=5.0,
    checks=(
        Check("largest", 1, (1,), check_largest),
        Check("feedback", 2, (1,), check_feedback, builds_on=("largest",)),
        Check("payload", 1, (1,), check_payload),
        Check("sum", 2, RANKS, check_sum, builds_on=("payload",)),
        Check("bytes", 1, RANKS, check_bytes, needs=("sum",), builds_on=("payload",)),
        Check("training", 2, (2, 4), check_training, builds_on=("largest", "feedback", "payload", "sum")),
        Check("momentum", 1, (1,), check_momentum, builds_on=("largest",)),
    ),
)
