"""Checks of lab 17: the halves of an all-reduce, an optimizer in parts, and a step that gathers layer by layer."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.expectations import THROUGH_COMM, expect_returned
from farandole_tools.lab.learner import noting_peak

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

    Comm = LabCommunicator

Vector = NDArray[Any]

ALL = (1, 2, 3, 4, 7)
PART = 5  # numbers of a rank's part
SAMPLES = 3  # of each rank
HALVES = ("reduce-scatter", "all-gather")  # the checks of what the others use
LR, MOMENTUM, STEPS = 0.1, 0.8, 3
DEEP, WIDE = 12, 84  # layers and their width where memory is measured; a multiple of 4 and of 7
MOST_LAYERS = 4.9  # whole at a time: weights, their gradient, a copy that is added to; a gather more takes 5.2


def vector_of(rank: int, ranks: int, seed: int = 0) -> Vector:
    return np.random.default_rng([rank, ranks, seed]).normal(size=PART * ranks)


def part_of(vector: Vector, comm: Comm) -> Vector:
    return np.split(vector, comm.size)[comm.rank]


def pieces(seed: int, ranks: int) -> Vector:
    """Return the vector of which part r is that of rank r's own vector."""
    return np.concatenate([np.split(vector_of(rank, ranks, seed), ranks)[rank] for rank in range(ranks)])


def alike(given: Any, right: Vector) -> bool:
    return np.shape(given) == right.shape and np.allclose(given, right, rtol=1e-9, atol=1e-11)


def equal(what: str, given: Any, right: Vector, hint: str = "") -> None:
    expect(np.shape(given) == right.shape, f"{what} has the shape {np.shape(given)} where {right.shape} is right{hint}")
    unlike = ~np.isclose(given, right, rtol=1e-9, atol=1e-11)
    if unlike.any():
        place = int(np.flatnonzero(unlike)[0])
        expect(False, f"{what} is {given[place]:.6g} at {place}, and {right[place]:.6g} is right{hint}")


def check_reduce_scatter(student: Any, comm: Comm) -> None:
    own = vector_of(comm.rank, comm.size)
    before = own.copy()
    found = student.reduce_scatter(own, comm)
    expect_returned(found, "reduce_scatter")
    expect(np.array_equal(own, before), "reduce_scatter changes the vector that it was given: add to a copy")
    whole = sum(vector_of(rank, comm.size) for rank in range(comm.size))
    what, right = f"rank {comm.rank}'s part", part_of(whole, comm)
    if comm.size > 1:
        expect(not alike(found, whole), f"{what} is the whole sum: return this rank's part of it, of {PART} numbers")
        expect(
            not alike(found, part_of(before, comm)),
            f"{what} is a part of this rank's vector: nothing has been added to it. If you add, is the sum of this "
            "part on another rank?",
        )
        for other, theirs in enumerate(np.split(whole, comm.size)):
            expect(other == comm.rank or not alike(found, theirs), f"{what} is the sum of part {other}")
    equal(what, found, right, ": is every rank's part added once?")


def check_all_gather(student: Any, comm: Comm) -> None:
    whole = vector_of(0, comm.size, seed=1)
    own = part_of(whole, comm).copy()
    found = student.all_gather(own, comm)
    expect_returned(found, "all_gather")
    expect(np.array_equal(own, part_of(whole, comm)), "all_gather changes the part that it was given")
    equal(f"the vector on rank {comm.rank}", found, whole, ": rank r's part is the r-th")


def by_momentum(parameters: Vector, gradients: list[Vector]) -> list[Vector]:
    """All parameters after each step, on one rank."""
    velocity, seen = np.zeros_like(parameters), []
    for gradient in gradients:
        velocity = MOMENTUM * velocity + gradient
        parameters = parameters - LR * velocity
        seen.append(parameters)
    return seen


def optimizer(student: Any, comm: Comm) -> tuple[Any, Vector]:
    parameters = vector_of(0, comm.size, seed=2)
    given = parameters.copy()
    made = student.ShardedMomentum(given, comm, LR, MOMENTUM)
    expect(np.array_equal(given, parameters), "ShardedMomentum changes the parameters that it was given")
    return made, parameters


def check_optimizer(student: Any, comm: Comm) -> None:
    made, parameters = optimizer(student, comm)
    own = [vector_of(comm.rank, comm.size, seed=10 + step) for step in range(STEPS)]
    sums = [sum(vector_of(rank, comm.size, seed=10 + step) for rank in range(comm.size)) for step in range(STEPS)]
    for step, right in enumerate(by_momentum(parameters, sums)):
        found = made.step(own[step].copy())
        expect_returned(found, "step")
        if comm.size > 1:
            mean = by_momentum(parameters, [each / comm.size for each in sums])[step]
            expect(not alike(found, mean), "the gradients are averaged: step along their sum")
            apart = by_momentum(parameters, [pieces(10 + number, comm.size) for number in range(STEPS)])[step]
            text = "every rank steps along its own gradient: the step is along the sum of all ranks' gradients"
            expect(not alike(found, apart), text)
        hint = ": has v been kept since the last step?" if step else ""
        equal(f"after step {step}, the vector of all parameters on rank {comm.rank}", found, right, hint)


def check_state(student: Any, comm: Comm) -> None:
    made, _ = optimizer(student, comm)
    made.step(vector_of(comm.rank, comm.size))
    held = {name: memory_of(value) for name, value in vars(made).items()}
    total, part = sum(held.values()), 8 * PART
    largest = max(held, key=lambda name: held[name], default="")
    expect(
        total <= 2 * part,
        f"rank {comm.rank} keeps arrays of {total} bytes where two parts have {2 * part}; the largest is .{largest} "
        f"with {held.get(largest, 0)}: keep this rank's part of the parameters and of the velocity (a copy: a view "
        "keeps all of it)",
    )


def memory_of(value: Any) -> int:
    """Bytes of the arrays in an attribute; of a view, those of what it is a view of."""
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(memory_of, value.values()))
    return sum(map(memory_of, value)) if isinstance(value, list | tuple | set) else 0


def network(ranks: int) -> tuple[list[tuple[int, int]], list[Vector]]:
    widths = [4, 2 * ranks, 3 * ranks, 2 * ranks]
    shapes = list(pairwise(widths))
    noise = np.random.default_rng([ranks, 3])
    return shapes, [noise.normal(size=shape) / np.sqrt(shape[0]) for shape in shapes]


def samples_of(rank: int, shapes: list[tuple[int, int]], count: int = SAMPLES) -> tuple[Vector, Vector]:
    noise = np.random.default_rng([rank, 4])
    return noise.normal(size=(count, shapes[0][0])), np.tanh(noise.normal(size=(count, shapes[-1][1])))


def on_one_rank(
    weights: list[Vector], shapes: list[tuple[int, int]], ranks: int, lr: float, *, late: bool = False
) -> None:
    """A step on all samples, on whole layers.

    Args:
        late: make the mistake of passing the error back by the weights as they are after their update.
    """
    batches = [samples_of(rank, shapes) for rank in range(ranks)]
    inputs, targets = (np.concatenate([batch[side] for batch in batches]) for side in (0, 1))
    outputs = [inputs]
    for each in weights:
        outputs.append(np.tanh(outputs[-1] @ each))
    error = (outputs[-1] - targets) / len(inputs)
    for number in reversed(range(len(weights))):
        slope = error * (1 - outputs[number + 1] ** 2)
        before, weights[number] = weights[number], weights[number] - lr * outputs[number].T @ slope
        error = slope @ (weights[number] if late else before).T


def stepped(student: Any, comm: Comm, steps: int) -> tuple[list[Vector], list[tuple[int, int]], list[Vector]]:
    """This rank's parts after some steps, and the weights at first."""
    shapes, weights = network(comm.size)
    parts = [part_of(each.reshape(-1), comm).copy() for each in weights]
    inputs, targets = samples_of(comm.rank, shapes)
    for _ in range(steps):
        student.train_step(parts, shapes, inputs.copy(), targets.copy(), LR, comm)
    return parts, shapes, weights


def after(
    weights: list[Vector], shapes: list[tuple[int, int]], comm: Comm, factor: float = 1, *, late: bool = False
) -> list[Vector]:
    """Return this rank's parts after two steps of `on_one_rank`."""
    moved = list(weights)
    for _ in range(2):
        on_one_rank(moved, shapes, comm.size, LR * factor, late=late)
    return [part_of(each.reshape(-1), comm) for each in moved]


def check_step(student: Any, comm: Comm) -> None:
    parts, shapes, weights = stepped(student, comm, 2)
    first = [part_of(each.reshape(-1), comm) for each in weights]
    expect(not all(map(alike, parts, first)), "the parts are as before: change the arrays in `parts` in place")
    right = after(weights, shapes, comm)
    if all(map(alike, parts, right)):
        return
    mean = "the error is the mean over the samples of all ranks"
    for mistaken, text in (
        (after(weights, shapes, comm, comm.size), f"the parts have moved P times as far: {mean}"),
        (after(weights, shapes, comm, 1 / comm.size), f"the parts have moved a P-th of the way: {mean}"),
        (after(weights, shapes, comm, late=True), "the error is passed back by the weights after their update"),
    ):
        expect(not all(map(alike, parts, mistaken)), text)
    hint = ": is each layer's gradient flattened row by row, as its weights are?"
    if comm.size > 1:
        hint = ": is each layer's gradient added up over the ranks? Is it flattened row by row, as its weights are?"
    for number, (given, part) in enumerate(zip(parts, right, strict=True)):
        equal(f"rank {comm.rank}'s part of layer {number}", given, part, hint)


def check_bytes(student: Any, comm: Comm) -> None:
    half = (comm.size - 1) * PART * 8
    student.reduce_scatter(vector_of(comm.rank, comm.size), comm)
    sent_right("reduce_scatter", comm.bytes_sent, half, comm, "P − 1 parts; an all-reduce sends twice as much")
    before = comm.bytes_sent
    student.all_gather(vector_of(comm.rank, comm.size)[:PART].copy(), comm)
    sent_right("all_gather", comm.bytes_sent - before, half, comm, "P − 1 parts")
    before = comm.bytes_sent
    _, shapes, _ = stepped(student, comm, 1)
    whole = sum(rows * columns for rows, columns in shapes) * 8
    right = 3 * (comm.size - 1) * whole // comm.size
    hint = "each layer is gathered twice and reduced once"
    sent_right("train_step", comm.bytes_sent - before, right, comm, hint)


def sent_right(call: str, sent: int, right: int, comm: Comm, hint: str) -> None:
    hint = THROUGH_COMM if right and not sent else hint
    expect(sent == right, f"{call}: rank {comm.rank} sent {sent:,} bytes where {right:,} are right: {hint}")


def check_memory(student: Any, comm: Comm) -> None:
    stepped(student, comm, 1)  # what a first call imports is not meant
    shapes = [(WIDE, WIDE)] * DEEP
    parts = [np.full(WIDE * WIDE // comm.size, 0.01) for _ in shapes]
    inputs, targets = samples_of(comm.rank, shapes, 2)
    peak: list[int] = []
    with noting_peak(student, peak):
        student.train_step(parts, shapes, inputs, targets, LR, comm)
    layers = peak[0] / (WIDE * WIDE * 8)
    expect(
        layers <= MOST_LAYERS,
        f"rank {comm.rank} takes memory for {layers:.1f} layers at a time, in a network of {DEEP}; the limit is "
        f"{MOST_LAYERS}. A layer is needed whole only while this rank computes with it: release it after its forward, "
        "and gather it again for its backward",
    )


LAB = Lab(
    title="ZeRO: training in parts",
    file="zero.py",
    checks=(
        Check("reduce-scatter", 2, ALL, check_reduce_scatter),
        Check("all-gather", 1, ALL, check_all_gather),
        Check("optimizer", 2, ALL, check_optimizer, builds_on=HALVES),
        Check("state", 1, (4, 7), check_state, needs=("optimizer",)),
        Check("step", 2, ALL, check_step, builds_on=HALVES),
        Check("bytes", 1, ALL, check_bytes, needs=(*HALVES, "step")),
        Check("memory", 1, (4, 7), check_memory, needs=("step",), builds_on=(*HALVES, "step")),
    ),
)
