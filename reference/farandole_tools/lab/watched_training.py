"""The judge's side of lab 12: what the workers of a submission do is replayed on workers that check each step.

The submission may run in another process (`recorded_training`), so what it tells is not trusted: each computation and
each update is made again here, from the state that it is said to begin with, which has to be the right one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import Any

import numpy as np

from farandole_tools.lab.labs import expect
from farandole_tools.lab.rank_threads import Answer, Computes, Ended, Halt, Made, Step
from farandole_tools.lab.recorded_training import PARTS, Begin, NotSurvived
from farandole_tools.lab.small_training import Worker

STEPS = 4
LAST = STEPS - 1
SUMS = 2  # before a `recover`
LAUNCHES = count(1)  # of ranks, by number


def right_states() -> list[np.ndarray]:
    """Parameters and momentum before each step and after the last, as one worker alone gets them."""
    worker, states = Worker(0), []
    for _ in range(STEPS):
        states.append(state_of(worker))
        worker.compute(worker.batch())
        worker.update()
    return [*states, state_of(worker)]


def right_random(number: int) -> list[Any]:
    """The state of a worker's random numbers before each step and after the last."""
    worker, states = Worker(number, dropout=True), []
    for _ in range(STEPS):
        states.append(worker.random.getstate())
        worker.compute([])
    return [*states, worker.random.getstate()]


def state_of(worker: Worker) -> np.ndarray:
    return np.concatenate([worker.parameters, worker.momentum])


STATES = right_states()
RANDOM = [right_random(number) for number in range(5)]


class Watched(Worker):
    """A worker that is checked at every computation and every update."""

    def __init__(self, number: int, dropout: bool) -> None:
        super().__init__(number, dropout)
        self.part: tuple[int, list[int]] = -1, []  # the step, and what it has worked on
        self.stale = False
        self.updates: list[int] = []

    def replay(self, events: str) -> None:
        """Do what a worker of the submission has done; `events` are a list of `Event`, as JSON."""
        for name, samples, step, parts, random in json.loads(events):
            self.step = int(step)
            for part, values in zip(PARTS, parts, strict=True):
                setattr(self, part, np.array(values, dtype=np.float64))
            if random is not None:
                words, gauss = random
                self.random.setstate(
                    (Random.VERSION, tuple(np.frombuffer(bytes.fromhex(words), dtype=np.uint32).tolist()), gauss)
                )
            if name == "compute":
                self.compute(samples)
            elif name == "update":
                self.update()

    def compute(self, samples: Sequence[int]) -> None:
        samples, who = list(samples), f"rank {self.number}"
        expect(0 <= self.step < STEPS, f"{who} takes step {self.step}: there are only steps 0 to {LAST}")
        if not self.dropout:
            expect_state(self, self.step, f"{who} takes step {self.step}")
        elif self.random.getstate() != RANDOM[self.number][self.step]:
            states = RANDOM[self.number]
            found = [step for step, state in enumerate(states) if state == self.random.getstate()]
            which = f"those of step {found[0]}" if found else "none of any step"
            expect(False, f"{who} takes step {self.step} with other random numbers than before: {which}")
        self.stale = bool(self.gradient.any())
        self.part = self.step, samples
        super().compute(samples)

    def update(self) -> None:
        who = f"rank {self.number}"
        again = "the rank with the most steps decides, and no step is done twice"
        expect(self.step not in self.updates, f"{who} has done step {self.step} and does it again: {again}")
        self.updates.append(self.step)
        step = self.step
        super().update()
        if not self.dropout:
            expect_state(self, step + 1, f"after the update of step {step} {who} is")

    def samples_of(self, step: int) -> list[int]:
        """Return the samples that it has processed, if they were for this step."""
        return self.part[1] if self.part[0] == step else []


def expect_state(worker: Worker, step: int, who: str) -> None:
    """Check that the worker has the parameters and the momentum with which `step` begins."""
    state = state_of(worker)
    for name, part in (("parameters", slice(2)), ("momentum", slice(2, 4))):
        if not np.array_equal(state[part], STATES[step][part]):
            found = [number for number, right in enumerate(STATES) if np.array_equal(state[part], right[part])]
            which = f"the {name} of step {found[0]}" if found else f"{name} of no step, {state[part]}"
            expect(False, f"{who} with {which}, not of step {step}")


class Trainings:
    """The submission's `train` on some ranks, as `SimulatedRanks.drive` runs them.

    Args:
        workers: rank → the worker that is told what the submission's worker does.
        stalled: is told where a rank is that makes no call.
    """

    def __init__(
        self,
        student: Any,
        size: int,
        workers: Mapping[int, Watched],
        stalled: Callable[[str], None] = lambda where: None,
    ) -> None:
        self.workers, self.stalled = workers, stalled
        self._harness = student
        self._begin = partial(Begin, next(LAUNCHES), size)

    def resume(self, answers: Mapping[int, Answer | None]) -> Iterator[Halt]:
        begin = {number: self._begin("train", (STEPS, worker.dropout)) for number, worker in self.workers.items()}
        return self.steps({number: answer or begin[number] for number, answer in answers.items()})

    def end(self, number: int) -> None:
        self._harness.resume({number: Answer(killed=True)})

    def steps(self, answers: Mapping[int, Answer | Begin]) -> Iterator[Halt]:
        """Continue each of these ranks; yield their next steps, and replay what each has done before that."""
        left = dict(answers)
        while left:
            told = self._harness.resume(left)
            expect(told, "a rank does nothing")
            for number, (step, events) in zip(tuple(left), told, strict=False):
                del left[number]
                yield self._next(number, step, events)

    def _next(self, number: int, step: Step, events: str) -> Halt:
        """Return the next call of a rank or its end, and replay what it has done before that."""
        while True:
            if number in self.workers:
                self.workers[number].replay(events)
            if not isinstance(step, Computes):
                break
            self.stalled(f"rank {number}{f' at line {step.line}' * bool(step.line)}")
            step, events = self._harness.wait(number)
        if isinstance(step, Ended) and isinstance(step.value, NotSurvived):
            expect(False, f"the death is not survived: {step.value.text}")
        return step


class Recoveries(Trainings):
    """Two sums on each rank, which this process makes, and then the submission's `recover`.

    Attributes:
        done: rank → whether no death has interrupted its sums.
    """

    def __init__(self, student: Any, size: int) -> None:
        super().__init__(student, size, {})
        self.done: dict[int, bool] = {}
        self._sums = dict.fromkeys(range(size), 0)

    def resume(self, answers: Mapping[int, Answer | None]) -> Iterator[Halt]:
        ours: dict[int, Halt] = {}
        theirs: dict[int, Answer | Begin] = {}
        for number, answer in answers.items():
            if answer and number in self.done:
                theirs[number] = answer
            elif answer and answer.killed:
                ours[number] = Ended()
            elif self._sums[number] < SUMS and not (answer and answer.lost):
                self._sums[number] += 1
                ours[number] = Made("all_reduce", 0, np.ones(1))
            else:
                self.done[number] = not (answer and answer.lost)
                theirs[number] = self._begin("recover", (self.done[number],))
        steps = self.steps(theirs)
        for number in answers:
            step = ours[number] if number in ours else next(steps)
            wrong = step.value if isinstance(step, Ended) and isinstance(step.value, str) else ""
            expect(not wrong, f"recover returns {wrong}, where a communicator or None is needed")
            yield step

    def end(self, number: int) -> None:
        if number in self.done:
            super().end(number)
