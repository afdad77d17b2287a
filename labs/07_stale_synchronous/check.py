"""Checks of lab 7: the bound holds, no worker waits unnecessarily, and every gradient is applied once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.expectations import expect_returned
from farandole_tools.lab.rank_status import named

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

Vector = NDArray[Any]
Gradient = tuple[int, int]  # worker, number of the iteration

# The workers' numbers, and s.
CASES = (
    ((0, 1), 0),
    ((0, 1, 2), 0),
    ((5,), 1),
    ((0, 1, 2), 1),
    ((4, 7, 9, 12), 2),
    ((0, 1, 2, 3, 4, 5), 3),
)
SEEDS = range(5)
ITERATIONS = 8


class Play:
    """The submission's policy, and what its workers do; records what is pushed and applied.

    Attributes:
        clocks: worker → iterations completed, of those that have not left.
        applied: gradient → the calls that answered with it.
        answers: every call that could apply something, and what it answered.
        late: the first gradient that was due and was not applied, with the number of the call in `answers`.
        last: the last call that could apply something.
    """

    def __init__(self, student: Any, workers: Iterable[int], staleness: int) -> None:
        self.staleness = staleness
        self.clocks = dict.fromkeys(workers, 0)
        self.computing: set[int] = set()
        self.left: list[int] = []
        self.pushed: list[Gradient] = []
        self.applied: dict[Gradient, list[str]] = {}
        self.answers: list[tuple[str, list[Gradient]]] = []
        self.late: tuple[Gradient, int] | None = None
        self.last = "nothing"
        self._student = student
        self._policy = student.StaleSynchronous(list(self.clocks), staleness)

    @property
    def waiting(self) -> list[int]:
        return [worker for worker in self.clocks if worker not in self.computing]

    @property
    def slowest(self) -> int:
        return min(self.clocks, key=self.clocks.__getitem__)

    def lead(self, worker: int) -> int:
        return self.clocks[worker] - self.clocks[self.slowest]

    def from_the_beginning(self) -> Play:
        """Return another play of the same workers, with a new object."""
        return Play(self._student, [*self.clocks, *self.left], self.staleness)

    def may_start(self, worker: int) -> bool:
        answer = self._policy.may_start(worker)
        expect_returned(answer, f"may_start({worker})")
        expect(
            isinstance(answer, bool | np.bool_), f"may_start({worker}) returns {str(answer)[:60]}, not True or False"
        )
        return bool(answer)

    def start(self, worker: int) -> list[Gradient]:
        self.computing.add(worker)
        return self._note(self._policy.started(worker), f"started({worker})")

    def push(self, worker: int) -> list[Gradient]:
        clock = self.clocks[worker]
        self.clocks[worker] += 1
        self.computing.remove(worker)
        self.pushed.append((worker, clock))
        return self._note(self._policy.push(worker, clock), f"push({worker}, {clock})")

    def leave(self, worker: int) -> list[Gradient]:
        del self.clocks[worker]
        self.computing.discard(worker)
        self.left.append(worker)
        return self._note(self._policy.leave(worker), f"leave({worker})")

    def moves(self, seed: int, leaving: float = 0.0) -> Iterator[tuple[str, int]]:
        """Yield the events of a valid order, each before it happens: "start", "push" or "leave", and the worker.

        Some workers are much slower than others. Which worker may start is decided here, not by the
        submission, so that one mistake does not hide what else is right or wrong.
        """
        random = Random(seed)
        pace = {worker: random.choice((1.0, 1.0, 0.3, 0.03)) for worker in self.clocks}
        while True:
            moves = [("push", worker) for worker in sorted(self.computing)]
            for worker in self.waiting:
                if self.clocks[worker] < ITERATIONS and self.lead(worker) <= self.staleness:
                    moves.append(("start", worker))
            if not moves:
                return
            (move, worker) = random.choices(moves, [pace[worker] for _, worker in moves])[0]
            if random.random() < leaving:
                move, worker = "leave", random.choice(list(self.clocks))
            yield move, worker
            getattr(self, move)(worker)

    def all_leave(self) -> None:
        for worker in list(self.clocks):
            self.leave(worker)

    def expect_nothing_lost(self) -> None:
        lost = [gradient for gradient in self.pushed if gradient not in self.applied]
        expect(not lost, f"all workers have left, and {told(lost)} has never been applied{self.why(lost)}")

    def due(self) -> list[Gradient]:
        """Return what is still held and should not be: every remaining worker has begun iteration c − s."""
        begun = min((clock + (worker in self.computing) for worker, clock in self.clocks.items()), default=math.inf)
        return [each for each in self.pushed if each[1] - self.staleness < begun and each not in self.applied]

    def why(self, missing: list[Gradient]) -> str:
        """Say of the first gradient that was late when it was due, and what may have become of it."""
        if self.late is None or not missing:
            return ""
        gradient, number = self.late
        call, answer = self.answers[number]
        which = "It" if gradient == missing[0] else f"The first that was late, {told([gradient])},"
        if answer:
            text = f". {which} was due together with {told(answer)}, which was applied: is it skipped?"
        else:
            text = f". {which} was due at {call}, which returned nothing."
        left = f" Worker {gradient[0]} pushed it and then left: what it has pushed still counts."
        return text + left * (gradient[0] in self.left)

    def _note(self, answer: Any, call: str) -> list[Gradient]:
        self.last = call
        expect_returned(answer, call)
        try:
            gradients = [(int(worker), int(clock)) for worker, clock in answer]
        except (TypeError, ValueError):
            expect(False, f"{call} returns {str(answer)[:60]}: a list of pairs (worker, clock) is needed")
        for gradient in gradients:
            hint = ": a gradient is the pair (worker, clock)" if gradient[::-1] in self.pushed else ""
            expect(gradient in self.pushed, f"{call} applies {told([gradient])}, which has not been pushed{hint}")
            self.applied.setdefault(gradient, []).append(call)
        self.answers.append((call, gradients))
        if self.late is None and (due := self.due()):
            self.late = due[0], len(self.answers) - 1
        return gradients


def check_asking(play: Play, seed: int) -> None:
    """The answers are the same if every worker is asked once or twice before it starts."""
    if seed > 1:  # in two plays of each case it shows
        return
    once, twice = play, play.from_the_beginning()
    for times, each in ((1, once), (2, twice)):
        for move, worker in each.moves(seed):
            answers = [each.may_start(worker) for _ in range(times if move == "start" else 0)]
            expect(
                len(set(answers)) < 2,
                f"called twice in a row, may_start({worker}) returns {answers}: a call must change no state",
            )
    for (call, one), (_, other) in zip(once.answers, twice.answers, strict=True):
        expect(
            one == other,
            f"{call} returns {other} if may_start was called twice before each start, and {one} if once: a "
            "call must change no state",
        )


def check_bound(play: Play, seed: int) -> None:
    for _ in play.moves(seed):
        for worker in play.waiting:
            expect(
                not play.may_start(worker) or play.lead(worker) <= play.staleness,
                f"worker {worker} may start after {count(play.clocks[worker])}, while worker {play.slowest} "
                f"has completed {play.clocks[play.slowest]}: it is {play.lead(worker)} ahead",
            )


def check_liveness(play: Play, seed: int) -> None:
    for _ in play.moves(seed):
        expect_one_can_go_on(play)
        for worker in play.waiting:
            slowest = f"worker {play.slowest}, the slowest, has completed {play.clocks[play.slowest]}"
            expect(
                play.may_start(worker) or play.lead(worker) > play.staleness,
                f"worker {worker} has to wait after {count(play.clocks[worker])}, although "
                + (f"{slowest}: it is only {play.lead(worker)} ahead" if play.lead(worker) else "no worker is slower"),
            )


def expect_one_can_go_on(play: Play) -> None:
    if play.computing or any(play.may_start(worker) for worker in play.waiting):
        return
    clocks = ", ".join(f"worker {worker} after {count(clock)}" for worker, clock in play.clocks.items())
    left = f" ({workers_named(play.left)} left)" if play.left else ""
    expect(False, f"all workers wait for ever: {clocks}{left}; no worker computes, so this will never change")


def check_every_gradient_once(play: Play, seed: int) -> None:
    for _ in play.moves(seed):
        pass
    play.all_leave()
    for gradient, calls in play.applied.items():
        expect(len(calls) == 1, f"{told([gradient])} is applied {len(calls)} times: by {' and by '.join(calls[:2])}")
    play.expect_nothing_lost()


def check_reads(play: Play, seed: int) -> None:
    for move, worker in play.moves(seed):
        if move != "start":
            continue
        clock, s = play.clocks[worker], play.staleness
        missing = [gradient for gradient in play.pushed if gradient[1] < clock - s and gradient not in play.applied]
        expect(
            not missing,
            f"worker {worker} begins iteration {clock} without {told(missing)}: "
            f"everything of iterations up to {clock - s - 1} must have been applied by then{play.why(missing)}",
        )
        for gradient in play.applied:
            needed = gradient[1] - s
            expect(
                needed < clock or needed < 0,
                f"worker {worker} begins iteration {clock} and reads {told([gradient])}: that is to be held "
                f"until worker {worker}, too, has begun iteration {needed}",
            )


def check_promptness(play: Play, seed: int) -> None:
    for _ in play.moves(seed):
        expect_nothing_due(play)
    expect_nothing_due(play)


def check_promptness_after_leaving(play: Play, seed: int) -> None:
    for _ in play.moves(seed, leaving=0.05):
        expect_nothing_due(play)


def expect_nothing_due(play: Play) -> None:
    """Check that no gradient is held if every remaining worker has begun iteration c − s."""
    if not play.clocks:
        return
    if due := play.due():
        since = due[0][1] - play.staleness
        why = f"every remaining worker has begun iteration {since}" if since >= 0 else "it is of the first s"
        expect(False, f"{play.last} does not apply {told(due)}: {why}, so it must be held no longer{play.why(due)}")


def check_staleness_zero(play: Play, seed: int) -> None:
    """Mini-batch synchronous: iteration c begins once all workers have completed c − 1, with just their gradients."""
    for move, worker in play.moves(seed):
        for other in play.waiting:
            clock = play.clocks[other]
            slower = [other for other in play.clocks if play.clocks[other] < clock]
            if play.may_start(other):
                text = f"before {workers_named(slower)} has completed iteration {clock - 1}"
                expect(not slower, f"worker {other} may start iteration {clock} {text}")
            else:
                expect(slower, f"worker {other} may not start iteration {clock}, although no worker is slower")
        if move == "start":
            clock = play.clocks[worker]
            right = {(other, before) for other in play.clocks for before in range(clock)}
            missing, more = sorted(right - play.applied.keys()), sorted(play.applied.keys() - right)
            begins = f"worker {worker} begins iteration {clock}"
            expect(not missing, f"{begins} without {told(missing)}{play.why(missing)}")
            expect(not more, f"{begins} and has read {told(more)}, which mini-batch SGD has not applied yet")


def check_leaving(play: Play, seed: int) -> None:
    """Workers leave one by one, at any moment; then, in the middle of the work, the others do."""
    for number, _ in enumerate(play.moves(seed, leaving=0.05)):
        for worker in play.waiting if play.left else ():
            expect(
                play.lead(worker) or play.may_start(worker),
                f"{workers_named(play.left)} left, and worker {worker} still has to wait after "
                f"{count(play.clocks[worker])}, although no remaining worker is slower",
            )
        if number == 10 * (seed + 1):
            break
    play.all_leave()
    play.expect_nothing_lost()


def in_all_cases(
    *judges: Callable[[Play, int], None], staleness: Iterable[int] = range(4)
) -> Callable[[Any, LabCommunicator], None]:
    """The check that no judge, one after the other, objects to some plays of each case that has such an s."""

    def check(student: Any, comm: LabCommunicator) -> None:
        for judge, (workers, s) in product(judges, CASES):
            if s in staleness:
                with comm.case(f"{len(workers)} worker{'s' if len(workers) > 1 else ''}, s = {s}"):
                    for seed in SEEDS:
                        judge(Play(student, workers, s), seed)

    return check


def count(iterations: int) -> str:
    return f"{iterations} iteration{'s' if iterations != 1 else ''}"


def workers_named(workers: list[int]) -> str:
    return named(workers).replace("rank", "worker")


def told(gradients: list[Gradient]) -> str:
    """The first of them, in words."""
    return "".join(f"worker {worker}'s gradient of iteration {clock}" for worker, clock in gradients[:1])


SERVER = 0
STEPS = 8
RATE = 0.2
GO, DONE, STOP = 0.0, 1.0, 2.0  # the first number of each message of the server; the weights follow


def check_real_ranks(student: Any, comm: LabCommunicator) -> None:
    """Rank 0 is a server that asks the policy, the others train; with s = 2 the last one stops half-way."""
    workers = range(1, comm.size)
    # On every rank, so that what cannot be made fails on all alike.
    servers = {staleness: Play(student, workers, staleness) for staleness in (0, 2)}
    if comm.rank != SERVER:
        all(work(comm) for _ in servers)
        return
    ends = {}
    for staleness, play in servers.items():
        with comm.case(f"s = {staleness}"):
            amounts = dict.fromkeys(workers, STEPS)
            if staleness:
                amounts[comm.size - 1] //= 2
            ends[staleness] = serve(play, comm, amounts)
    for staleness, (weights, received) in ends.items():
        with comm.case(f"s = {staleness}"):
            judge(weights, received, workers, staleness)


def judge(weights: Vector, received: list[Vector], workers: range, staleness: int) -> None:
    moved, alone = np.zeros(3), np.zeros(3)
    for gradient in received:
        moved -= RATE / len(workers) * gradient
    for _ in range(STEPS):
        alone -= RATE * np.mean([gradient_of(worker, alone) for worker in workers], axis=0)
    expect(
        np.allclose(weights, moved),
        f"all {len(received)} gradients that came move the weights to {numbers(moved)}; they are at "
        f"{numbers(weights)}: is one lost, or applied twice?",
    )
    expect(
        staleness or np.allclose(weights, alone),
        f"after {STEPS} iterations the weights are {numbers(weights)}, by mini-batch SGD {numbers(alone)}: "
        "every gradient counts once, but the weights are read too early or too late",
    )


def numbers(vector: Vector) -> list[float]:
    return np.round(vector, 4).tolist()


def gradient_of(worker: int, weights: Vector) -> Vector:
    """Return the gradient of the mean squared error of a line through the worker's own samples."""
    random = np.random.default_rng(worker)
    inputs, targets = random.normal(size=(16, 3)), random.normal(size=16)
    return 2 * inputs.T @ (inputs @ weights - targets) / 16


def work(comm: LabCommunicator) -> bool:
    """Run a worker; return False if the server has stopped it before the end."""
    message = np.empty(4)
    while True:
        comm.receive(message, SERVER)
        if message[0] != GO:
            return bool(message[0] == DONE)
        comm.send(gradient_of(comm.rank, message[1:]), SERVER)


def serve(play: Play, comm: LabCommunicator, iterations: dict[int, int]) -> tuple[Vector, list[Vector]]:
    """Train until every worker has left; return the weights, and all gradients received.

    A worker's send lasts until it is received, so the server decides which worker is slow: the last one.
    """
    random = Random(play.staleness)
    share = 1 / len(iterations)
    weights = np.zeros(3)
    received: dict[Gradient, Vector] = {}

    def tell(worker: int, what: float) -> None:
        comm.send(np.array([what, *weights]), worker)

    def receive(worker: int) -> Vector:
        gradient = np.empty(3)
        comm.receive(gradient, worker)
        return gradient

    def apply(gradients: list[Gradient]) -> None:
        for gradient in gradients:
            weights[:] -= RATE * share * received[gradient]

    try:
        while play.clocks:
            expect_one_can_go_on(play)
            ready = [worker for worker in play.clocks if worker in play.computing or play.may_start(worker)]
            worker = random.choices(ready, [0.2 if worker == comm.size - 1 else 1.0 for worker in ready])[0]
            if worker not in play.computing:
                tell(worker, GO)
                apply(play.start(worker))
                continue
            received[worker, play.clocks[worker]] = receive(worker)
            apply(play.push(worker))
            if play.clocks[worker] == iterations[worker]:
                tell(worker, DONE)
                apply(play.leave(worker))
    finally:  # if something goes wrong, no rank is left waiting
        for worker in play.clocks:
            if worker in play.computing:
                receive(worker)
            tell(worker, STOP)
    return weights, list(received.values())


ONE_BY_ONE = ("bound", "liveness", "every gradient once", "reads")
LAB = Lab(
    title="Stale synchronous",
    file="stale_synchronous.py",
    checks=(
        Check("bound", 2, (1,), in_all_cases(check_asking, check_bound)),
        Check("liveness", 2, (1,), in_all_cases(check_liveness), builds_on=("bound",)),
        Check("every gradient once", 2, (1,), in_all_cases(check_every_gradient_once)),
        Check(
            "reads", 1, (1,), in_all_cases(check_reads, check_promptness), builds_on=("bound", "every gradient once")
        ),
        Check("staleness zero", 1, (1,), in_all_cases(check_staleness_zero, staleness=(0,)), builds_on=ONE_BY_ONE),
        Check(
            "leaving",
            1,
            (1,),
            in_all_cases(check_leaving, check_promptness_after_leaving, staleness=(1, 2, 3)),
            builds_on=ONE_BY_ONE,
        ),
        Check("real ranks", 1, (2, 4), check_real_ranks, builds_on=(*ONE_BY_ONE, "staleness zero", "leaving")),
    ),
)
