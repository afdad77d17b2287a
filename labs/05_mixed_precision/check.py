"""Checks of lab 5: training in 16 bits gives the result of 32 bits, and all ranks skip the same steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole.data_parallel.loss_scale import LossScale
from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.half_network import ELEMENTS, OUTLIER, HalfNetwork, start
from farandole_tools.lab.summing import Sum, SummingCommunicator

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

    Comm = LabCommunicator

Vector = NDArray[Any]
Parts = Callable[[int, int], list[list[int]]]  # step and number of ranks → each rank's samples

ALL = (1, 2, 3, 4)
SEVERAL = (2, 3, 4)
STEPS = 4
BATCH = 12
RATE = 2.0**-4
SCALE = 2.0**8
NEVER = 10**6  # as many steps without overflow there are nowhere here

TINY = 2.0**-28  # a unit of the loss in which float16 makes 0 of every gradient
SLOWLY = 2.0**-15  # a rate at which float16 shows no single update
MANY_STEPS = 64
SCALES = ((2.0**8, NEVER), (2.0**12, NEVER), (2.0**6, 1))  # to begin with, and its patience

BEFORE_OVERFLOW = 2.0**10
OVERFLOWS = {1: "the last rank has an overflow", 3: "the first and the last rank have one, of opposite signs"}

GOOD, OVERFLOW = True, False
# What to begin with, the patience, and what is observed: how many steps of a kind.
DEFAULTS = 2.0**16, 2000
COURSES: tuple[tuple[float, int, tuple[tuple[int, bool], ...]], ...] = (
    (8.0, 3, ((9, GOOD),)),
    (8.0, 100, ((3, OVERFLOW),)),
    (1024.0, 3, ((2, GOOD), (1, OVERFLOW), (2, GOOD), (1, OVERFLOW), (4, GOOD))),
    (8.0, 1, ((2, GOOD), (1, OVERFLOW), (2, GOOD))),
    (4.0, 2, ((4, OVERFLOW), (3, GOOD), (1, OVERFLOW), (2, GOOD))),
    (*DEFAULTS, ((2001, GOOD), (1, OVERFLOW), (2000, GOOD))),
)


class WatchedScale(LossScale):
    """The project's own, which remembers what it has been told."""

    def __init__(self, value: float, patience: int) -> None:
        super().__init__(value, patience)
        self.told: list[bool] = []

    def observe(self, finite: bool) -> None:
        self.told.append(bool(finite))
        super().observe(bool(finite))


def alike(step: int, size: int) -> list[list[int]]:
    """All ranks have equally many samples."""
    return [part.tolist() for part in np.array_split(np.arange(step * BATCH, (step + 1) * BATCH), size)]


def unlike(step: int, size: int) -> list[list[int]]:
    """The lower a rank's number, the more it has; in every other step the last rank has none."""
    weights = [*range(size, 1, -1), 1 - step % 2 if size > 1 else 1]
    ends = [0, *(round(BATCH * each / sum(weights)) for each in accumulate(weights))]
    return [list(range(step * BATCH + begin, step * BATCH + end)) for begin, end in pairwise(ends)]


def overflowing(step: int, size: int) -> list[list[int]]:
    """Like `alike`, with outliers in two of the steps."""
    parts = alike(step, size)
    if step in OVERFLOWS:
        parts[-1][-1] = OUTLIER + 1
    if step == 3:  # upwards on one rank and downwards on another: their sum is not infinite, but no number
        parts[0][0] = OUTLIER
    return parts


@dataclass(frozen=True)
class Step:
    """One step on this rank.

    Attributes:
        before: master, before it.
        moved: what it has moved by since.
        right: what it should have moved by.
        exact: how far the two may be apart, element by element.
        mistakes: what usual mistakes would have moved it by, and what to say of them.
        sums: what was added up over all ranks.
    """

    before: Vector
    moved: Vector
    right: Vector
    exact: Vector
    mistakes: tuple[tuple[Vector, str], ...]
    sums: tuple[Sum, ...]

    def expect_right(self) -> None:
        if (abs(self.moved - self.right) <= self.exact).all():
            return
        expect(np.isfinite(self.moved).all(), "master is not finite any more")
        expect(self.moved.any(), "master does not move")
        for mistaken, text in self.mistakes:
            expect(near(mistaken, self.right) or not near(self.moved, mistaken), f"master moves by {text}")
        away = int(np.argmax(abs(self.moved - self.right)))
        told = f"element {away} of master moves by {self.moved[away]:.6f}, and should by {self.right[away]:.6f}"
        nearly = ": is something in 16 bits after backward, the gradient, its sum or master?"
        expect(False, told + nearly * near(self.moved, self.right))


class Training:
    """A submission's training on this rank, with what is right worked out beside it.

    What is right is computed anew in every step from the submission's own master: the gradients of all ranks, as
    float16 gives them, and from there on in float64.

    Attributes:
        moved, right: what master has moved by in all steps so far, and what it should have.
    """

    def __init__(
        self,
        student: Any,
        comm: Comm,
        parts: Parts = alike,
        scale: tuple[float, int] = (SCALE, NEVER),
        unit: float = 1.0,
        rate: float = RATE,
    ) -> None:
        self.comm, self.parts, self.rate = comm, parts, rate
        self.network, self.scale, self.summing = HalfNetwork(unit), WatchedScale(*scale), SummingCommunicator(comm)
        self.student = student.MixedPrecision(self.network, start(), rate, self.scale, self.summing)
        self.moved, self.right = np.zeros(ELEMENTS), np.zeros(ELEMENTS)
        self.done = 0

    def master(self) -> Vector:
        """The submission's, as it is now."""
        found = self.student.master
        text = f"master is to be one vector of {ELEMENTS} numbers"
        expect(isinstance(found, np.ndarray) and found.shape == (ELEMENTS,), text)
        return found.copy()

    def step(self) -> Step:
        """Take one."""
        rank, samples = self.comm.rank, self.parts(self.done, self.comm.size)
        shares = [len(part) / BATCH for part in samples]
        before, scale = self.master().astype(np.float64), self.scale.value
        self.summing.sums.clear()
        self.student.step(samples[rank], shares[rank])
        text = f"rank {rank} does not call all_reduce: all have to, whatever their own gradient is, or the others wait"
        expect(self.summing.sums, text)  # before ranks meet again: one that has not would disturb the others
        with np.errstate(all="ignore"):
            found = self._judged(before, self.master() - before, samples, shares, scale)
            self.moved += found.moved
            self.right += found.right
        self.done += 1
        return found

    def _judged(
        self, before: Vector, moved: Vector, samples: list[list[int]], shares: list[float], scale: float
    ) -> Step:
        rank, size, rate = self.comm.rank, self.comm.size, self.rate
        gradients = self._gradients(before, samples, scale)
        each = weighted(gradients, shares)
        mean, total, own = sum(each), sum(gradients), shares[rank]
        late = sum(weighted(self._gradients(start(), samples, scale), shares))
        mistaken = (
            (mean * scale, "the gradient of the scaled loss: divide it by the scale"),
            (mean * scale**2, "the gradient of the scaled loss times the scale: it has to be divided by it"),
            (mean / scale, "too little: is the loss multiplied by the scale once, as the gradient is divided by it?"),
            (late, "the gradient of the first step's parameters: cast master in every step"),
            (total, "the sum of the ranks' gradients: each has to be weighted by its share before it is summed up"),
            (total / size, "the plain mean of the ranks' gradients: one with fewer samples has to count less"),
            (total * own, "the sum, times this rank's share: weight each gradient before it is summed up"),
            (sum(weighted(gradients, np.divide(1, shares))), "gradients that are divided by their shares: multiply"),
            (mean * own, "a gradient that is weighted twice, before and after it is summed up"),
            (gradients[rank], "this rank's own gradient: is it summed up over all ranks?"),
            (each[rank], "this rank's own gradient: is it summed up over all ranks?"),
            (-mean, "the gradient upwards: subtract it"),
        )
        return Step(
            before=before,
            moved=moved,
            right=-rate * mean if np.isfinite(mean).all() else np.zeros(ELEMENTS),
            # Some roundings to float32 of numbers as large as master, or as what it moves by.
            exact=4 * np.finfo(np.float32).eps * (abs(before) + rate * sum(map(abs, each))),
            mistakes=tuple((-rate * gradient, text) for gradient, text in mistaken),
            sums=tuple(self.summing.sums),
        )

    def _gradients(self, values: Vector, samples: Sequence[Sequence[int]], scale: float) -> list[Vector]:
        """Return each rank's gradient, as float16 gives it, divided by the scale."""
        half = values.astype(np.float16)
        return [self.network.backward(half, part, scale).astype(np.float64) / scale for part in samples]

    def expect_moved(self, steps: int, why: str) -> None:
        """Take `steps` steps, and check that master is right afterwards; if not, report `why`."""
        for _ in range(steps):
            self.step()
        far, right = (abs(each).max() for each in (self.moved, self.right))
        told = f"after {steps} steps master has moved by {f'up to {far:.2g}' if far else 'nothing'}"
        apart = f" and is off by {abs(self.moved - self.right).max():.2g}" if far else ""
        expect(near(self.moved, self.right), f"{told}; it should have by up to {right:.2g}{apart}: {why}")


def weighted(gradients: Sequence[Vector], shares: Sequence[float]) -> list[Vector]:
    return [share * gradient for share, gradient in zip(shares, gradients, strict=True)]


def near(found: Vector, wanted: Vector) -> bool:
    """Return whether the difference is within 2 % of the largest element."""
    return bool(abs(found - wanted).max() <= 0.02 * abs(wanted).max())


def check_scale(student: Any, comm: Comm) -> None:
    first = student.LossScale()
    expect(first.value == 2.0**16, f"LossScale() begins with {first.value}, not with 65536")
    for value, patience, course in COURSES:
        steps = [finite for count, finite in course for _ in range(count)]
        ours = LossScale(value, patience)
        theirs = student.LossScale() if (value, patience) == DEFAULTS else student.LossScale(value, patience)
        with comm.case(f"LossScale({value:g}, patience={patience})"):
            expect(theirs.value == value, f"before the first step the value is {theirs.value}")
            for number, finite in enumerate(steps, start=1):
                ours.observe(finite)
                theirs.observe(finite)
                if theirs.value != ours.value:
                    after = in_words(steps[:number])
                    expect(False, f"after {after} the value is {theirs.value:g}, and should be {ours.value:g}")


def in_words(steps: Sequence[bool]) -> str:
    """ "2 good steps, 1 overflow, 1 good step"."""
    told = []
    for finite, run in groupby(steps):
        count = len(list(run))
        told.append(f"{count} {'good step' if finite else 'overflow'}{'s' * (count > 1)}")
    return ", ".join(told)


def check_steps(student: Any, comm: Comm) -> None:
    training = Training(student, comm)
    for step in range(STEPS):
        with comm.case(f"step {step}"):
            found = training.step()
            kind = training.master().dtype
            expect(kind == np.float32, f"master is {kind}: it is to be float32")
            found.expect_right()


def check_shares(student: Any, comm: Comm) -> None:
    training = Training(student, comm, unlike)
    for step in range(STEPS):
        with comm.case(f"step {step}, on each rank another number of samples"):
            training.step().expect_right()


def check_small_gradients(student: Any, comm: Comm) -> None:
    with comm.case("a loss in a unit of 2^28"):
        training = Training(student, comm, alike, (1 / TINY, NEVER), TINY, RATE / TINY)
        why = "is the loss scaled in backward, and the gradient divided in float32, where it is not too small?"
        training.expect_moved(STEPS, why)


def check_small_updates(student: Any, comm: Comm) -> None:
    with comm.case("a rate of 2^-15"):
        training = Training(student, comm, rate=SLOWLY)
        why = "float16 shows no single update, so is each of them added to master, in float32?"
        training.expect_moved(MANY_STEPS, why)


def check_any_scale(student: Any, comm: Comm) -> None:
    trainings = [Training(student, comm, unlike, scale) for scale in SCALES]
    for step in range(STEPS):
        used = [training.scale.value for training in trainings]
        with comm.case(f"step {step}"):
            for training in trainings:
                training.step()
            expected, *others = (training.master() for training in trainings)
            for value, other in zip(used[1:], others, strict=True):
                differ = np.count_nonzero(other != expected)
                expect(
                    not differ,
                    f"{differ} parameters differ between a scale of {value:g} and one of {used[0]:g}: a power of "
                    "two loses no bit if the same one is used before and after backward",
                )


def check_skip(student: Any, comm: Comm) -> None:
    training = Training(student, comm, overflowing, (BEFORE_OVERFLOW, NEVER))
    for step in range(max(OVERFLOWS) + 2):
        overflow = step in OVERFLOWS
        with comm.case(f"step {step}, {OVERFLOWS[step]}" if overflow else f"step {step}"):
            before = training.step().before
            masters = comm.everybodys(training.master().astype(np.float64))  # MPI knows no float16
            told = comm.everybodys(np.array(training.scale.told, dtype=np.float64))
            for rank, master in enumerate(masters):
                if overflow:
                    expect_left_out(rank, before, master)
                else:
                    expect_taken(rank, before, master, masters[0])
                expect_told(rank, told[rank].tolist(), step)


def expect_left_out(rank: int, before: Vector, after: Vector) -> None:
    moved = np.count_nonzero(after != before)
    infinite = np.count_nonzero(~np.isfinite(after))
    told = f"{infinite} parameters of rank {rank} are infinite or no numbers" if infinite else f"rank {rank} moves"
    expect(not moved, f"{told}: all ranks have to skip this step; the sum, which they all have, shows the overflow")


def expect_taken(rank: int, before: Vector, after: Vector, other: Vector) -> None:
    expect((after != before).any(), f"rank {rank} leaves out a step without an overflow")
    expect(np.array_equal(after, other), f"ranks 0 and {rank} have different parameters")


def expect_told(rank: int, told: list[bool], step: int) -> None:
    """Check the calls of observe that a rank's scale has received until now."""
    often = f"{len(told)} time{'s' * (len(told) != 1)} in {step + 1} step{'s' * (step > 0)}"
    expect(len(told) == step + 1, f"rank {rank} calls observe {often}: call it once for each step")
    text = "no overflow, and there was one" if step in OVERFLOWS else "an overflow, and there was none"
    hint = "; observe takes whether the summed gradient is finite"
    expect(told[step] == (step not in OVERFLOWS), f"rank {rank} tells its scale of {text}{hint}")


def check_one_message(student: Any, comm: Comm) -> None:
    training = Training(student, comm, overflowing, (BEFORE_OVERFLOW, NEVER))
    for step in range(3):
        with comm.case(f"step {step}, {OVERFLOWS[step]}" if step in OVERFLOWS else f"step {step}"):
            first, *others = training.step().sums
            text = f"all_reduce is called {1 + len(others)} times: once is enough, for the sum tells of an overflow"
            expect(not others, text)
            expect(first.elements == ELEMENTS, f"{first.elements} elements are added up, of {ELEMENTS}")
            expect(first.kind == np.float32, f"{first.kind} is added up over the ranks: it is to be float32")


LAB = Lab(
    title="Mixed precision",
    file="mixed_precision.py",
    checks=(
        Check("scale", 2, (1,), check_scale),
        Check("steps", 2, ALL, check_steps),
        Check("shares", 1, SEVERAL, check_shares, builds_on=("steps",)),
        Check("small gradients", 1, ALL, check_small_gradients, builds_on=("steps",)),
        Check("small updates", 1, ALL, check_small_updates, builds_on=("steps",)),
        Check("any scale", 1, ALL, check_any_scale, builds_on=("steps",)),
        Check("skip", 1, ALL, check_skip, builds_on=("steps",)),
        Check("one message", 1, ALL, check_one_message, needs=("steps",), builds_on=("steps",)),
    ),
)
