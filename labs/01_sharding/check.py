"""Checks of lab 1: every sample once, the same number of steps on all ranks, and the gradient of one process."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.expectations import counted, expect_returned
from farandole_tools.lab.rank_status import named

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

Rows = list[int]

# samples, ranks: without and with a remainder, one rank, one sample each, and the digits' training set
CASES = ((12, 4), (10, 4), (39, 4), (7, 1), (5, 5), (1437, 8))
# samples, ranks, steps of an epoch
EPOCHS = ((37, 4, 4), (12, 4, 3), (10, 3, 1), (30, 1, 7), (1437, 8, 45))


def check_shares(student: Any, comm: LabCommunicator) -> None:
    for samples, ranks in CASES:
        call = f"shares({samples}, {ranks})"
        given = whole_numbers(student.shares(samples, ranks), call)
        expect(len(given) == ranks, f"{call} has {len(given)} shares for {ranks} ranks: {given}")
        missing = samples - sum(given)
        expect(missing <= 0, f"{call} is {given}, together {sum(given)}: {counted(missing, 'sample')} never used")
        expect(missing >= 0, f"{call} is {given}, together {sum(given)}: there are only {samples} samples")
        spread = max(given) - min(given)
        expect(
            spread <= 1,
            f"{call} is {given}: the largest share is {spread} more than the smallest, and all ranks wait for it; "
            "spread the remainder, one sample each",
        )
        right = right_shares(samples, ranks)
        expect(given == right, f"{call} is {given}: the first ranks get the larger shares, {right}")


def check_rows(student: Any, comm: LabCommunicator) -> None:
    for samples, ranks in CASES:
        rows = [
            rows_of(student.my_rows(samples, rank, ranks), samples, f"my_rows({samples}, {rank}, {ranks})")
            for rank in range(ranks)
        ]
        each_once(rows, samples, f"{samples} samples on {ranks} ranks", "")
        together = [row for part in rows for row in part]
        expect(
            together == sorted(together),
            f"{samples} samples on {ranks} ranks: the shares should lie one after the other, in rank order",
        )
        lengths, right = [len(part) for part in rows], right_shares(samples, ranks)
        expect(lengths == right, f"{samples} samples on {ranks} ranks: the ranks have {lengths} rows, and not {right}")


def check_every_sample_once(student: Any, comm: LabCommunicator) -> None:
    for samples, ranks, steps in EPOCHS:
        rows = [together(epoch_of(student, samples, rank, ranks, steps)) for rank in range(ranks)]
        hint = ": does every rank shuffle all rows with a different seed, before cutting?"
        each_once(rows, samples, f"{samples} samples on {ranks} ranks in {steps} steps", hint)


def check_same_steps(student: Any, comm: LabCommunicator) -> None:
    for samples, ranks, steps in EPOCHS:
        epochs = [epoch_of(student, samples, rank, ranks, steps) for rank in range(ranks)]
        for rank, epoch in enumerate(epochs):
            expect(
                len(epoch) == steps,
                f"{samples} samples on {ranks} ranks: rank {rank} has {counted(len(epoch), 'batch', 'batches')} "
                f"where all ranks take {counted(steps, 'step')}: the others would wait for it for ever",
            )
        for rank, epoch in enumerate(epochs):
            sizes = [len(batch) for batch in epoch]
            expect(
                max(sizes) - min(sizes) <= 1,
                f"{samples} samples on {ranks} ranks: rank {rank} has batches of {sizes} rows, "
                "which may differ by one at most",
            )


def check_shuffled(student: Any, comm: LabCommunicator) -> None:
    def some(rank: int = 1, seed: int = 0, epoch: int = 0) -> list[Rows]:
        return epoch_of(student, 200, rank, 4, 5, seed, epoch)

    for rank in range(4):
        rows = together(some(rank))
        expect(rows != sorted(rows), f"rank {rank} uses its rows in their own order: shuffle them")
        follow = sum(after == before + 1 for before, after in pairwise(rows))
        expect(
            follow < len(rows) / 2,
            f"of {len(rows)} rows that rank {rank} uses, {follow} follow the row that they follow in the data set: "
            "every row needs another place, and not only whole batches",
        )
    epochs, seeds = [some(epoch=epoch) for epoch in range(4)], [some(seed=seed) for seed in range(4)]
    for one, other in combinations(range(4), 2):
        expect(
            together(epochs[one]) != together(epochs[other]),
            f"epochs {one} and {other} have the same order: the epoch's number should change it",
        )
        expect(together(seeds[one]) != together(seeds[other]), f"seeds {one} and {other} give the same order")
    batches = [{frozenset(batch) for batch in epoch} for epoch in epochs[:2]]
    expect(
        batches[0] != batches[1],
        "the batches of epochs 0 and 1 are of the same rows: shuffle the rows first, and cut them into batches then",
    )


def check_restart(student: Any, comm: LabCommunicator) -> None:
    samples = 203  # so that the batches are not all equally long
    whole = epoch_of(student, samples, 1, 4, 5, epoch=3)
    epoch_of(student, samples, 1, 4, 5, epoch=4)  # a generator that runs on from call to call is elsewhere now
    expect(
        whole == epoch_of(student, samples, 1, 4, 5, epoch=3),
        "the same call twice gives two orders: make the generator anew in each call, "
        "from seed and epoch: np.random.default_rng([seed, …])",
    )
    for start in range(6):
        rest = epoch_of(student, samples, 1, 4, 5, epoch=3, start=start)
        expect(
            rest == whole[start:],
            f"start={start} of 5 steps gives {counted(len(rest), 'batch', 'batches')}, which should be "
            f"the last {5 - start} of the same epoch from the beginning",
        )


def check_mean_gradient(student: Any, comm: LabCommunicator) -> None:
    cases: tuple[tuple[list[float], list[int]], ...] = (([1, 3], [5, 5]), ([1, 4], [3, 1]), ([2, 5, 8], [3, 0, 1]))
    for values, counts in cases:
        gradients = [np.array([value, -value]) for value in values]
        given = np.asarray(student.mean_gradient(gradients, counts))
        said = f"gradients {values} from {counts} samples"
        expect(given.shape == (2,), f"{said}: the result has shape {given.shape}, a gradient here has (2,)")
        right, plain = np.average(values, weights=counts), np.mean(values)
        result = given[0]
        hint = ", the plain mean: weigh each by its share of all samples" if np.isclose(result, plain) else ""
        added = right * sum(counts)
        if np.isclose(result, added) or np.isclose(result, added / len(counts)):
            hint = f": divide the weighted sum by the {sum(counts)} samples of all ranks"
        expect(
            np.allclose(given, [right, -right]), f"{said}: the mean over all samples is {right:g}, not {result:g}{hint}"
        )
    expect(
        all(np.array_equal(gradient, [value, -value]) for gradient, value in zip(gradients, values, strict=True)),
        "the gradients given to mean_gradient are changed: make a new array for the result",
    )


def check_training(student: Any, comm: LabCommunicator) -> None:
    """An epoch of least squares on this many ranks, against one process on the batches put together."""
    samples, steps, rate = 37, 4, 0.1
    random = np.random.default_rng(1)
    inputs, targets = random.normal(size=(samples, 3)), random.normal(size=samples)

    def gradient(rows: Rows, weights: NDArray[Any]) -> NDArray[Any]:
        error = inputs[rows] @ weights - targets[rows]
        return 2 * inputs[rows].T @ error / max(len(rows), 1)

    weights = alone = np.zeros(3)
    for step, rows in enumerate(epoch_of(student, samples, comm.rank, comm.size, steps)):
        call = f"the all-reduce of step {step}"
        gradients = comm.everybodys(gradient(rows, weights), call)
        everybodys_rows = [part.tolist() for part in comm.everybodys(np.array(rows, dtype=np.int64), call)]
        combined = student.mean_gradient(gradients, [len(part) for part in everybodys_rows])
        weights = weights - rate * np.asarray(combined)
        alone = alone - rate * gradient(together(everybodys_rows), alone)
        expect(
            np.allclose(weights, alone),
            f"after step {step} the weights are {np.round(weights, 4).tolist()}; "
            f"one process on the same rows has {np.round(alone, 4).tolist()}",
        )


def right_shares(samples: int, ranks: int) -> list[int]:
    return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]


def epoch_of(
    student: Any, samples: int, rank: int, ranks: int, steps: int, seed: int = 0, epoch: int = 0, start: int = 0
) -> list[Rows]:
    """Return what the submission's `batches` returns, as lists of numbers; report anything else."""
    call = f"batches({samples}, {rank}, {ranks}, {steps}, {seed}, {epoch}, {start})"
    given = student.batches(samples, rank, ranks, steps, seed, epoch, start)
    expect_returned(given, call)
    return [rows_of(batch, samples, call) for batch in given]


def rows_of(given: Any, samples: int, call: str) -> Rows:
    """Row numbers from a slice, range, list or array."""
    if isinstance(given, slice):
        given = range(samples)[given]
    rows = whole_numbers(given, call)
    outside = [row for row in rows if not 0 <= row < samples]
    expect(not outside, f"{call} contains row {outside[:1]}: the rows are 0 to {samples - 1}")
    return rows


def whole_numbers(given: Any, call: str) -> list[int]:
    expect_returned(given, call)
    numbers = np.asarray(given)
    expect(
        numbers.ndim == 1 and (numbers.dtype.kind in "iu" or not numbers.size),
        f"{call} returns {str(given)[:60]}: whole numbers in a list, range or array are needed",
    )
    return [int(number) for number in numbers]


def each_once(rows: list[Rows], samples: int, where: str, hint: str) -> None:
    """Every row exactly once over all ranks."""
    users: dict[int, Rows] = {row: [] for row in range(samples)}
    for rank, part in enumerate(rows):
        for row, times in Counter(part).items():
            expect(times == 1, f"{where}: rank {rank} uses row {row} {times} times")
            users[row].append(rank)
    shared = [row for row in users if len(users[row]) > 1]
    unused = [row for row in users if not users[row]]
    if shared:
        many = hint if len(shared) >= len(rows) else ""  # more than the borders of the shares
        if all(sorted(part) == list(range(len(part))) for part in rows):
            many = ": every rank numbers its rows from 0; add the row at which its share begins"
        expect(False, f"{where}: row {shared[0]} is used by {named(users[shared[0]])}{many}")
    if unused:
        expect(False, f"{where}: {counted(len(unused), 'row')} never used, for instance row {unused[0]}")


def together(batches: list[Rows]) -> Rows:
    return [row for batch in batches for row in batch]


LAB = Lab(
    title="Sharding",
    file="sharding.py",
    checks=(
        Check("shares", 1, (1,), check_shares),
        Check("rows", 1, (1,), check_rows, builds_on=("shares",)),
        Check("every sample once", 2, (1,), check_every_sample_once, builds_on=("rows",)),
        Check("same steps", 1, (1,), check_same_steps),
        Check("shuffled", 1, (1,), check_shuffled),
        Check("restart", 1, (1,), check_restart),
        Check("mean gradient", 1, (1,), check_mean_gradient),
        Check("training", 2, (4,), check_training, builds_on=("every sample once", "same steps", "mean gradient")),
    ),
)
