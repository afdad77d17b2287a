"""Programs of several ranks in threads of one process. One runs at a time, from one of its calls to the next.

A thread stops in each call that its program makes of a `CallingCommunicator`, and continues with the answer. The
answers come from `simulated_ranks` or from MPI. In the checks of lab 12 this file runs in the sandbox, and the answers
come from the process of the checks; so it imports numpy and the standard library alone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farandole_tools.lab.ulfm_communicator import PeerLost, UlfmCommunicator

if TYPE_CHECKING:
    from farandole.runtime.communicator import Buffer

STALLED_S = 1.0  # of computing, after which `Computes` tells the line
UNDEAD = 100  # calls of a rank that has been killed, and catches that

Program = Callable[[UlfmCommunicator], Any]


class Killed(BaseException):
    """Raised in a rank's thread to end it."""


@dataclass(frozen=True)
class Made:
    """A rank has made a call, and waits for the answer.

    Attributes:
        group: the number of the communicator, by which the answers know it; 0 is the first one.
        value: the array, the number or the flag.
        source: the rank whose array is broadcast.
    """

    name: str
    group: int
    value: Any = None
    source: int = -1


@dataclass(frozen=True)
class Ended:
    """A rank's program has returned `value`, or was ended; `went_on` is the first call that it made after that."""

    value: Any = None
    went_on: str = ""


@dataclass(frozen=True)
class Computes:
    """A rank has made no call for a while, and is at this line; 0 if that is not known."""

    line: int


@dataclass(frozen=True)
class Answer:
    """The answer to a call.

    Attributes:
        value: the result. Of a call that has failed: what its array then holds. Of a `shrink`: the number of the new
            communicator, the rank in it, and its size.
        lost: the text of the `PeerLost` that the call raises.
        killed: the rank ends here.
    """

    value: Any = None
    lost: str = ""
    killed: bool = False


Halt = Made | Ended
Step = Halt | Computes


class RankThreads:
    """The threads of some ranks.

    Args:
        path: the file in which to look for the line of a rank that computes.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._threads: dict[int, _RankThread] = {}
        self._stopped = _held_lock()  # released by a thread that has nothing more to do for now

    def start(self, number: int, size: int, program: Program) -> Step:
        """Begin the program of rank `number` of `size`; return its first step.

        Raises:
            BaseException: what the program raises before its first call; later `resume` does.
        """
        self._threads[number] = _RankThread(self._stopped, number, size, program)
        return self.wait(number)

    def resume(self, number: int, answer: Answer) -> Step:
        """Continue a rank with the answer to its call; return its next step."""
        if not self._threads[number].ended:
            self._threads[number].go_on(answer)
        return self.wait(number)

    def wait(self, number: int) -> Step:
        """Wait for the next step of a rank that computes."""
        thread = self._threads[number]
        if thread.ended:
            return Ended()
        if not self._stopped.acquire(timeout=STALLED_S):
            return Computes(thread.line(self._path))
        thread.ended = isinstance(thread.step, Ended)
        if thread.error is not None:
            raise thread.error
        return thread.step


def _held_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


class _RankThread:
    """One rank's thread."""

    def __init__(self, stopped: threading.Lock, number: int, size: int, program: Program) -> None:
        self.step: Step = Ended()
        self.error: BaseException | None = None
        self.ended = False  # and that is known
        self._stopped, self._go = stopped, _held_lock()
        self._answer = Answer()
        self._went_on: list[str] = []  # the calls made since it was killed
        comm = CallingCommunicator(self, 0, number, size)
        self._thread = threading.Thread(target=self._run, args=(program, comm), daemon=True)
        self._thread.start()

    def call(self, made: Made) -> Answer:
        """Make a call in this thread, and return its answer."""
        if self._answer.killed:
            self._went_on.append(made.name)
            if len(self._went_on) > UNDEAD:  # it will not end: leave it alone
                self._stop(Ended(went_on=self._went_on[0]))
            raise Killed
        self._stop(made)
        if self._answer.killed:
            raise Killed
        return self._answer

    def go_on(self, answer: Answer) -> None:
        self._answer = answer
        self._go.release()

    def line(self, path: str) -> int:
        """Return the innermost line of the file at which this thread is; 0 if it is elsewhere."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        while frame is not None and frame.f_code.co_filename != path:
            frame = frame.f_back
        return frame.f_lineno if frame else 0

    def _run(self, program: Program, comm: UlfmCommunicator) -> None:
        value = None
        try:
            value = program(comm)
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.step = Ended(value, *self._went_on[:1])
        self._stopped.release()

    def _stop(self, step: Step) -> None:
        self.step = step
        self._stopped.release()
        self._go.acquire()


class CallingCommunicator(UlfmCommunicator):
    """The verbs of `ulfm_communicator`, for a program in such a thread."""

    def __init__(self, thread: _RankThread, group: int, rank: int, size: int) -> None:
        self._thread, self.group = thread, group
        self.rank, self.size = rank, size

    def revoke(self) -> None:
        self._thread.call(Made("revoke", self.group))

    def agree(self, flag: bool) -> bool:
        return bool(self._result(Made("agree", self.group, bool(flag))))

    def shrink(self) -> CallingCommunicator:
        return CallingCommunicator(self._thread, *self._result(Made("shrink", self.group)))

    def _all_reduce(self, array: Buffer) -> None:
        self._fill(array, Made("all_reduce", self.group, array.copy()))

    def _all_gather(self, number: int) -> list[int]:
        return list(self._result(Made("all_gather", self.group, number)))

    def _broadcast(self, array: Buffer, source: int) -> None:
        self._fill(array, Made("broadcast", self.group, array.copy(), source))

    def _result(self, made: Made) -> Any:
        answer = self._thread.call(made)
        if answer.lost:
            raise PeerLost(answer.lost)
        return answer.value

    def _fill(self, array: Buffer, made: Made) -> None:
        answer = self._thread.call(made)
        array[...] = answer.value
        if answer.lost:
            raise PeerLost(answer.lost)
