"""The part of lab 12 in a submission's process: it runs its functions in threads, and reports their calls and steps.

It judges nothing: `watched_training` replays the events in the process of the checks. A submission can change this
code, and so what is reported, not what is right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from farandole_tools.lab import learner
from farandole_tools.lab.rank_threads import (
    Answer,
    CallingCommunicator,
    Computes,
    Ended,
    Killed,
    Program,
    RankThreads,
    Step,
)
from farandole_tools.lab.small_training import Worker
from farandole_tools.lab.ulfm_communicator import PeerLost, UlfmCommunicator

MOST = 1000  # events that are told of a rank that has made no call yet
PARTS = ("parameters", "momentum", "gradient")

# "compute", "update" or "now"; the samples; the step; the three PARTS; the state of the random numbers, if judged.
Event = tuple[str, list[int], int, list[list[float]], Any]
Told = tuple[Step, str]  # and the events since the last step, as JSON: one text is sent faster than many numbers


@dataclass(frozen=True)
class NotSurvived:
    """The value that a rank returns whose function a `PeerLost` has ended; in words, with the line."""

    text: str


class RecordedWorker(Worker):
    """A worker that notes in which state each computation and each update begins."""

    def __init__(self, number: int, dropout: bool = False) -> None:
        super().__init__(number, dropout)
        self.__events: list[Event] = []  # a submission may add attributes, under any name
        self.__killed = False

    def compute(self, samples: Sequence[int]) -> None:
        samples = list(samples)
        self.__begin("compute", samples)
        super().compute(samples)

    def update(self) -> None:
        self.__begin("update")
        super().update()

    def take_events(self, step: Step) -> str:
        """Return the events before a step, as JSON, and forget them."""
        if not isinstance(step, Computes):
            self.__note("now", with_random=isinstance(step, Ended))
        events = self.__events[:MOST] if isinstance(step, Computes) else list(self.__events)
        del self.__events[: len(events)]  # a rank that computes appends others meanwhile
        return json.dumps(events)

    def kill(self) -> None:
        """End the rank at its next computation or update, too."""
        self.__killed = True

    def __begin(self, name: str, samples: Sequence[int] = ()) -> None:
        if self.__killed:
            raise Killed
        self.__note(name, samples, with_random=name == "compute")

    def __note(self, name: str, samples: Sequence[int] = (), with_random: bool = True) -> None:
        parts = [np.asarray(getattr(self, part), dtype=np.float64).ravel().tolist() for part in PARTS]
        random = None
        if self.dropout and with_random:
            _, words, gauss = self.random.getstate()
            random = np.array(words, dtype=np.uint32).tobytes().hex(), gauss
        self.__events.append((name, [int(sample) for sample in samples], int(self.step), parts, random))


@dataclass(frozen=True)
class Begin:
    """Takes the place of a rank's first answer.

    Attributes:
        launch: the number of the launch of ranks; with a new one that before is forgotten.
        size: how many ranks that has.
        function: the one of the submission that the rank runs.
        arguments: beside the communicator and the worker.
    """

    launch: int
    size: int
    function: str
    arguments: tuple[Any, ...]


class Harness:
    """Runs the functions of a submission, as programs of the ranks of one launch after the other.

    Args:
        submission: its module.
    """

    def __init__(self, submission: ModuleType) -> None:
        self.submission = submission
        self._launch = 0
        self._threads = RankThreads()
        self._workers: dict[int, RecordedWorker] = {}

    def divide(self, samples: list[int], rank: int, size: int) -> Any:
        return self.submission.divide(samples, rank, size)

    def resume(self, answers: Mapping[int, Answer | Begin]) -> list[Told]:
        """Continue each of these ranks with the answer to its call; stop at one that computes for long."""
        found: list[Told] = []
        for number, answer in answers.items():
            found.append(self._told(number, self._step(number, answer)))
            if isinstance(found[-1][0], Computes):
                break
        return found

    def wait(self, number: int) -> Told:
        """Wait for the next step of a rank that computes."""
        return self._told(number, self._threads.wait(number))

    def _step(self, number: int, answer: Answer | Begin) -> Step:
        if isinstance(answer, Begin):
            if answer.launch != self._launch:
                self._launch, self._threads, self._workers = (
                    answer.launch,
                    RankThreads(str(self.submission.__file__)),
                    {},
                )
            call = partial(getattr(self, f"_{answer.function}"), number, *answer.arguments)
            return self._threads.start(number, answer.size, partial(self._surviving, call))
        if answer.killed and number in self._workers:
            self._workers[number].kill()
        return self._threads.resume(number, answer)

    def _surviving(self, call: Program, comm: UlfmCommunicator) -> Any:
        try:
            return call(comm)
        except PeerLost as error:
            return NotSurvived(learner.explain(error, Path(str(self.submission.__file__))))

    def _train(self, number: int, steps: int, dropout: bool, comm: UlfmCommunicator) -> None:
        worker = self._workers[number] = RecordedWorker(number, dropout)
        self.submission.train(comm, worker, steps)

    def _recover(self, number: int, done: bool, comm: UlfmCommunicator) -> Any:
        """Return None, the number of the new communicator, or in words what else `recover` returns."""
        new = self.submission.recover(comm, done)
        if isinstance(new, CallingCommunicator):
            return new.group
        return None if new is None else f"{new!r:.60}"

    def _told(self, number: int, step: Step) -> Told:
        worker = self._workers.get(number)
        return step, worker.take_events(step) if worker else "[]"
