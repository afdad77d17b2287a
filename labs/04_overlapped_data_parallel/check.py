"""Checks of lab 4: the training is synchronous SGD, and its events happen in the right order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.background import OF_NO_USE, BackgroundCommunicator
from farandole_tools.lab.expectations import expect_returned
from farandole_tools.lab.instrumented_network import BRANCHES, RATE, Event, Network, told

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

    Comm = LabCommunicator

Vector = NDArray[Any]
Route = Callable[[int, int], Sequence[int]]  # rank and step → the branches that are used, as backward takes them

ALL = (1, 2, 3, 4)
SEVERAL = (2, 3, 4)
STEPS = 3
BATCH = 20
MOST = 20  # elements of a bucket
# Lengths of parameters, and elements of a bucket.
CUTS = (
    ([4], 4),
    ([2, 3], 5),
    ([2, 3], 4),
    ([5, 3, 9, 1], 10),
    ([1, 1, 1, 1, 1], 2),
    ([30, 4, 4], 9),
    ([4, 30, 4], 9),
    ([4, 4, 30], 9),
    ([30, 40], 9),
    ([3, 3, 3], 100),
    (Network().lengths, MOST),
    ([], 5),
)


def last_first(rank: int, step: int) -> Sequence[int]:
    """Return the usual route: the last branch first, on all ranks."""
    return tuple(reversed(range(BRANCHES)))


def another_way_around(rank: int, step: int) -> Sequence[int]:
    """Every other rank has the middle branch's gradients first, the last one's afterwards."""
    return (1, 2, 0) if rank % 2 else (2, 1, 0)


def some_unused(rank: int, step: int) -> Sequence[int]:
    """The last branch is not used by rank 0 in step 0, the middle one by no rank in step 1."""
    if step == 1:
        return (2, 0)
    return (1, 0) if rank == 0 else (2, 1, 0)


def parts(step: int, size: int) -> list[list[int]]:
    """Return each rank's samples of a step: the lower its number, the more it has."""
    weights = list(range(size, 0, -1))
    ends = [0, *(round(BATCH * each / sum(weights)) for each in accumulate(weights))]
    return [list(range(step * BATCH + start, step * BATCH + stop)) for start, stop in pairwise(ends)]


class Training:
    """A submission's training on this rank, checked after every step.

    Attributes:
        right: the parameters as one process gets them.
        gradients, shares: every rank's, of the last step.
    """

    def __init__(self, student: Any, comm: Comm, overlap: bool = True, route: Route = last_first) -> None:
        self.comm, self.overlap, self.route = comm, overlap, route
        self.network = Network()
        self.right = self.network.values.copy()
        self.gradients: list[Vector] = []
        self.shares: list[float] = []
        self.done = 0
        self.sgd = student.Overlapped(self.network, BackgroundCommunicator(comm, self.network), MOST, overlap)

    def step(self) -> list[Event]:
        """Take a step and return its events."""
        network, samples = self.network, parts(self.done, self.comm.size)
        self.shares = [len(part) / BATCH for part in samples]
        self.gradients = [self._gradient(rank, part) for rank, part in enumerate(samples)]
        self.right -= RATE * sum(self._shared())
        network.route = self.route(self.comm.rank, self.done)
        network.events.clear()
        self.sgd.step(samples[self.comm.rank], self.shares[self.comm.rank])
        expect_all_reduced(network.events)  # before ranks meet again: one that has not would disturb the others
        self.done += 1
        return list(network.events)

    def expect_right(self) -> None:
        """Check that the parameters are those of one process."""
        expect_not_in_use(self.network)
        wrong = self._unlike(self.right)
        if wrong.size:
            number = next(each for each, place in enumerate(self.network.places) if wrong[0] < place.stop)
            where = f"on rank {self.comm.rank} {told([number])}"
            expect(False, f"{where} has other values than in one process that has the whole batch")

    def expect_first_step_right(self, before: Vector) -> None:
        """Check the same after the first step, and identify the usual mistakes by their results."""
        expect_not_in_use(self.network)
        if not self._unlike(self.right).size:
            return
        share = self.shares[self.comm.rank]
        own, total = self.gradients[self.comm.rank], sum(self.gradients)
        for mistaken, text in (
            (total, "the sum of the ranks' gradients: each has to be weighted by its share before it is summed up"),
            (total / self.comm.size, "their plain mean: a rank with fewer samples has to count less"),
            (total * share, "their sum, times this rank's share: weight each gradient before it is summed up"),
            (sum(self._shared()) * share, "weighted twice, before and after it is summed up"),
            (own, "this rank's own gradient: is it summed up over all ranks?"),
            (own * share, "this rank's own gradient: is it summed up over all ranks?"),
        ):
            expect(self._unlike(before - RATE * mistaken).size, f"rank {self.comm.rank} moves by {text}")
        self.expect_right()

    def _shared(self) -> list[Vector]:
        return [share * gradient for share, gradient in zip(self.shares, self.gradients, strict=True)]

    def _gradient(self, rank: int, samples: Sequence[int]) -> Vector:
        """Return the gradient of that rank alone."""
        alone = Network()
        alone.values[:], alone.route = self.right, self.route(rank, self.done)
        alone.backward(samples, lambda number: None)
        return alone.gradients

    def _unlike(self, other: Vector) -> Vector:
        """Return the elements that differ from those of `other`."""
        return np.flatnonzero(~np.isclose(self.network.values, other, rtol=1e-10, atol=1e-12))


def expect_all_reduced(events: Sequence[Event]) -> None:
    """Check that each parameter is reduced once, whether or not it has a gradient."""
    came = {number for event in events if event.name == "gradient" for number in event.parameters}
    expect(came, "backward is never called")
    times = Counter(number for event in events if event.name == "begin" for number in event.parameters)
    every = range(len(Network().lengths))
    missing = [number for number in every if not times[number]]
    why = ""
    if set(missing) - came:
        why = (
            ": a parameter that is not used gets no gradient, so its bucket is never complete: begin it after backward"
        )
    elif not times:
        why = ": is the rest begun when backward is over?"
    expect(not missing, f"{told(missing)} {are(missing)} never reduced{why}")
    twice = [number for number in every if times[number] > 1]
    expect(not twice, f"{told(twice)} {are(twice)} reduced more than once in a step")


def expect_not_in_use(network: Network) -> None:
    """Check that no update used a part of the gradients while it was being reduced."""
    moved = [each for each, place in enumerate(network.places) if abs(network.values[place]).max() > OF_NO_USE / 1e9]
    expect(
        not moved,
        f"{told(moved)} {are(moved)} updated with a gradient that is still being reduced: does the step "
        "wait for every reduction before the update?",
    )


def expect_early(events: Sequence[Event], step: int) -> None:
    """Each reduction begins as soon as its gradients, and those of the reductions before it, are there."""
    why = "is the first bucket that of the last parameters, and is it begun in is_there?"
    again = f"In step {step - 1} all began in time: do you start every step with the full counts?"
    gradients = [index for index, event in enumerate(events) if event.name == "gradient"]
    begins = [index for index, event in enumerate(events) if event.name == "begin"]
    first = events[begins[0]]
    expect(
        begins[0] < gradients[-1],
        f"the first reduction, of {told(first.parameters)}, begins when backward is over"
        + (f". {again}" if step else f": {why}"),
    )
    needed: set[int] = set()
    for number, begin in enumerate(begins):
        needed |= set(events[begin].parameters)
        complete = max(index for index in gradients if events[index].parameters[0] in needed)
        later = [events[index] for index in gradients if complete < index < begin]
        expect(
            not later,
            f"reduction {number + 1}, of {told(events[begin].parameters)}, can begin after {events[complete]}, and "
            f"begins after {later[-1] if later else ''}" + (f". {again}" if step else ""),
        )


def expect_waits(events: Sequence[Event]) -> None:
    """Check that all waits come after the last gradient and before the update, and that there is one update."""
    names = [event.name for event in events]
    last = max(index for index, name in enumerate(names) if name == "gradient")
    for index, event in enumerate(events[:last]):
        later = next(each for each in events[index:] if each.name == "gradient")
        expect(
            event.name != "wait",
            f"the step waits for the reduction of {told(event.parameters)} before {later} is there: backward stands "
            "still meanwhile",
        )
    expect("update" in names, "there is no update")
    expect(names.count("update") == 1, f"there are {names.count('update')} updates in one step")
    waited = {event.parameters for event in events[: names.index("update")] if event.name == "wait"}
    early = [event for event in events if event.name == "begin" and event.parameters not in waited]
    expect(not early, f"the update comes before the wait for {told(early[0].parameters) if early else ''}")


def begun(events: Sequence[Event]) -> list[list[int]]:
    """The parameters of each reduction, in the order in which they were begun."""
    return [sorted(event.parameters) for event in events if event.name == "begin"]


def are(parameters: Sequence[int]) -> str:
    return "is" if len(parameters) == 1 else "are"


def check_buckets(student: Any, comm: Comm) -> None:
    for lengths, most in CUTS:
        with comm.case(f"cut({lengths}, {most})"):
            answer = student.cut(list(lengths), most)
            expect_returned(answer, "it")
            judge_buckets([sorted(bucket) for bucket in answer], lengths, most)


def judge_buckets(buckets: Sequence[list[int]], lengths: Sequence[int], most: int) -> None:
    expect(all(buckets), "a bucket is empty")
    times = Counter(number for bucket in buckets for number in bucket)
    missing = [number for number in range(len(lengths)) if not times[number]]
    expect(not missing, f"{told(missing)} {are(missing)} in no bucket")
    unknown = sorted(set(times) - set(range(len(lengths))))
    expect(not unknown, f"there is no {told(unknown)}")
    twice = [number for number in times if times[number] > 1]
    expect(not twice, f"{told(twice)} {are(twice)} in more than one bucket")
    order = [number for bucket in buckets for number in reversed(bucket)]
    backwards = order == list(range(len(lengths)))[::-1]
    expect(
        backwards,
        f"the first bucket is of {told(buckets[0] if buckets else ())}: backward has the last parameters' gradients "
        "first, and each bucket goes on where the one before has stopped",
    )
    for bucket in buckets:
        elements = sum(lengths[number] for number in bucket)
        text = f"the bucket of {told(bucket)} has {elements} elements, and {most} are allowed"
        expect(elements <= most or len(bucket) == 1, text)
    for bucket, after in pairwise(buckets):
        elements = sum(lengths[number] for number in [*bucket, after[-1]])
        text = f"the bucket of {told(bucket)} would have had room for {told([after[-1]])}"
        expect(elements > most, f"{text}: {elements} elements")


def check_weighted_mean(student: Any, comm: Comm) -> None:
    training = Training(student, comm)
    before = training.network.values.copy()
    with comm.case("step 0"):
        training.step()
        training.expect_first_step_right(before)
    expect_right(training)


def expect_right(training: Training) -> None:
    """Take the steps that are left, and after each compare the parameters with one process's."""
    for step in range(training.done, STEPS):
        with training.comm.case(f"step {step}{'' if training.overlap else ', without overlap'}"):
            training.step()
            training.expect_right()


def check_same_bits(student: Any, comm: Comm) -> None:
    overlapped, delayed = Training(student, comm), Training(student, comm, overlap=False)
    for step in range(STEPS):
        with comm.case(f"step {step}"):
            early = overlapped.step()
            expect_not_in_use(overlapped.network)
        with comm.case(f"step {step}, without overlap"):
            events = delayed.step()
            names = [event.name for event in events]
            last = len(names) - 1 - names[::-1].index("gradient")
            expect(
                "begin" not in names[:last],
                f"a reduction begins before {events[last]}: without overlap all wait for the end of backward",
            )
        with comm.case(f"step {step}"):
            differ = np.count_nonzero(overlapped.network.values != delayed.network.values)
            expect(
                not differ,
                f"{differ} parameters differ with and without overlap: are the same parts reduced, in the same order?",
            )
            for number, (one, other) in enumerate(zip(begun(early), begun(events), strict=False), start=1):
                expect(
                    one == other,
                    f"reduction {number} is of {told(one)} with overlap, and of {told(other)} without: the order is "
                    "to be the same",
                )
    everybodys = comm.everybodys(overlapped.network.values)
    for rank, values in enumerate(everybodys):
        expect(np.array_equal(values, everybodys[0]), f"ranks 0 and {rank} end with different parameters")


def check_early(student: Any, comm: Comm) -> None:
    training = Training(student, comm)
    buckets = [sorted(bucket) for bucket in student.cut(list(Network().lengths), MOST)]
    for step in range(STEPS):
        with comm.case(f"step {step}"):
            events = training.step()
            expect_early(events, step)
            for number, (one, bucket) in enumerate(zip(begun(events), buckets, strict=False), start=1):
                expect(
                    one == bucket,
                    f"reduction {number} is of {told(one)}, and the bucket of {told(bucket)}: are the buckets those of "
                    f"cut(network.lengths, {MOST})?",
                )


def check_waits(student: Any, comm: Comm) -> None:
    for overlap in (True, False):
        training = Training(student, comm, overlap)
        for step in range(STEPS):
            with comm.case(f"step {step}{'' if overlap else ', without overlap'}"):
                expect_waits(training.step())


def check_one_order(student: Any, comm: Comm) -> None:
    training = Training(student, comm, route=another_way_around)
    for step in range(STEPS):
        with comm.case(f"step {step}, gradients come in another order on odd ranks"):
            expect_early(training.step(), step)
            training.expect_right()


def check_unused_parameters(student: Any, comm: Comm) -> None:
    for overlap in (True, False):
        expect_right(Training(student, comm, overlap, some_unused))


LAB = Lab(
    title="Overlapped data parallel",
    file="overlapped_sgd.py",
    checks=(
        Check("buckets", 2, (1,), check_buckets),
        Check("weighted mean", 2, ALL, check_weighted_mean, builds_on=("buckets",)),
        Check("same bits", 1, ALL, check_same_bits, needs=("weighted mean",), builds_on=("weighted mean",)),
        Check("early", 2, ALL, check_early, needs=("weighted mean",), builds_on=("weighted mean",)),
        Check("waits", 1, ALL, check_waits, needs=("weighted mean",), builds_on=("weighted mean",)),
        Check("one order", 1, SEVERAL, check_one_order, needs=("weighted mean",), builds_on=("weighted mean", "early")),
        Check("unused parameters", 1, ALL, check_unused_parameters, builds_on=("weighted mean", "early")),
    ),
)
