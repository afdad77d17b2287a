"""The worker's side: asks, pushes and goes on computing, while a second thread talks to the servers.

Every call here returns a future at once; what happens until it is done is the thread's business (`conversation`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server.conversation import Conversation, Request
from farandole.parameter_server.header import ENCODED, LAST, NO_TASK, NOBODY, Header, Kind
from farandole.parameter_server.keys import Assignment, KeyRange
from farandole.parameter_server.layout import Layout
from farandole.parameter_server.succession import Succession
from farandole.parameter_server.window import Window
from farandole.runtime.communicator import Communicator

Array = NDArray[Any]
ASKS_EVERY_S = 1.0  # whoever has left, whether the manager is still there


@dataclass(frozen=True)
class Start:
    """Permission to start an iteration.

    Attributes:
        clock: its number.
        number: of the pull that it answers.
        lead: how many iterations we are ahead of the slowest.
        held_s: how long the servers' policies made us wait.
    """

    clock: int
    number: int
    lead: int
    held_s: float


@dataclass(frozen=True)
class Progress:
    """How far the workers are: the samples they have reported, and how many workers are still there."""

    samples: int
    workers: int


class Client:
    """One worker's, or aggregator's, connection to the servers of its application.

    Args:
        assignment: server's rank → its ranges.
        table: an array of the shape and type of what is pulled.
        succession: who takes the place of whom.
        lost: the ranks that have died; None: the first death is the end.
        window: memory shared with the servers, through which whole pulls and pushes then go.
        assign: returns which of the given servers has which ranges, for when they change (`server_manager`).

    Attributes:
        slot: where a gradient may be put together, so that pushing it copies nothing; None without a window.
        lead: histogram, how far we were ahead of the slowest at each start.
        staleness: histogram of the staleness of our gradients when they were applied.
        dropped: how many of our gradients were not applied.
    """

    def __init__(
        self,
        comm: Communicator,
        assignment: Mapping[int, Sequence[KeyRange]],
        table: Array,
        succession: Succession,
        *,
        lost: set[int] | None = None,
        group: int = 0,
        window: Window | None = None,
        assign: Callable[[Sequence[int]], Assignment] | None = None,
    ) -> None:
        self.comm, self.group = comm, group

        def layouts(assignment: Mapping[int, Sequence[KeyRange]]) -> dict[int, Layout]:
            return {server: Layout(ranges, table.shape, table.dtype) for server, ranges in assignment.items()}

        self.layouts = layouts(assignment)
        self.lead: Counter[int] = Counter()
        self.staleness: Counter[int] = Counter()
        self.dropped = 0
        self._last_push: Future[Any] | None = None
        self._conversation = Conversation(
            comm, group, self.layouts, table.dtype, succession, lost, window, self._result,
            relayout=(lambda ring: layouts(assign(ring))) if assign else None,
        )  # fmt: skip
        self.slot = self._conversation.slot

    def __enter__(self) -> Self:
        self._conversation.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self._conversation.end()

    def start(self, into: Array, rows: NDArray[np.int64] | None = None) -> Future[Start | None]:
        """Ask to start the next iteration; the parameters come into `into`.

        Args:
            rows: only these rows of the table, ascending; `into` then has one row for each.

        Returns:
            A future: which iteration it is, or None when there is no work left.
        """
        return self._ask(Header(Kind.PULL), into=into, rows=rows)

    def push(
        self,
        gradient: Array,
        clock: int,
        share: float,
        rows: NDArray[np.int64] | None = None,
        read: int = LAST,
        task: int = NO_TASK,
    ) -> Future[int | None]:
        """Push iteration `clock`'s gradient; it must stay as it is until the future is done.

        Args:
            rows: the gradient's rows of the table, ascending, if it is sparse.
            read: `Start.number` of the pull that it was computed at, if that was not the last one.
            task: the task of the gradient; of several pushes of one task a server counts the first (`tasks`).

        Returns:
            A future: the gradient's staleness when it was applied, or None if it was dropped.
        """
        if self.slot is not None and rows is None:
            if self._last_push:
                self.wait(self._last_push, "the answer to a push")  # until then a server may be reading the slot
            if gradient is not self.slot:
                self.slot[:] = gradient
            gradient = self.slot
        self._last_push = self._ask(
            Header(Kind.PUSH, clock=clock, share=share, read=read, task=task), gradient=gradient, rows=rows
        )
        return self._last_push

    def push_encoded(self, payloads: Mapping[int, Array], clock: int, share: float) -> Future[int | None]:
        """Push iteration `clock`'s gradient, each server's part (`Layout.part`) in the bytes that its decoder knows."""
        self._last_push = self._ask(Header(Kind.PUSH, clock=clock, share=share, count=ENCODED), encoded=payloads)
        return self._last_push

    def push_range(self, gradient: Array, server: int, part: int, clock: int, share: float) -> Future[int | None]:
        """Push only the given one of a server's ranges; the gradient counts once all its ranges are there.

        Args:
            gradient: that range's part alone.
        """
        return self._ask(Header(Kind.PUSH, clock=clock, share=share, part=part), {server}, gradient=gradient)

    def read(self, into: Array) -> Future[dict[int, int]]:
        """Read the parameters as they are now, whatever the policy: for those who do not train.

        Returns:
            A future: each server's version of its part, the number of times that it had moved it.
        """
        return self._ask(Header(Kind.READ), into=into)

    def versions(self) -> Future[dict[int, int]]:
        """Ask for the servers' versions alone."""
        return self._ask(Header(Kind.READ, count=0))

    def end_training(self) -> Future[None]:
        """End the training: no worker begins another iteration. Only for policies that do not work in rounds."""
        return self._ask(Header(Kind.END), {min(self.layouts)})

    def next_task(self, done: int = NO_TASK) -> Future[int | None]:
        """Report the task that is done, and request the next one; a future: None if all are done (`tasks`)."""
        return self._ask(Header(Kind.TASK, task=done), {NOBODY})

    def progress(self) -> Future[Progress]:
        """Ask the manager how far the workers are: for those who do not train."""
        return self._ask(Header(Kind.PROGRESS), {NOBODY})

    def report(self, clock: int, loss: float, samples: int, right: int = 0, baseline: int = 0) -> None:
        """Tell the manager how an iteration went; the last two are for `online`."""
        self._conversation.tell_managers(
            Header(Kind.REPORT, clock=clock, loss=loss, samples=samples, right=right, baseline=baseline)
        )

    def alive(self) -> None:
        """Tell the manager that we are there, if it has not heard so for a while; for whoever waits elsewhere."""
        self._conversation.alive()

    def leave(self) -> Future[None]:
        """Tell the manager that we have finished; the future is done when everybody may go."""
        with self.comm.waiting("answers to pushes", -1), self._conversation.waited_for():
            self._conversation.all_answered()
        return self._ask(Header(Kind.LEAVE), {NOBODY})

    def leave_with_the_others(self) -> None:
        """Leave, and return when everybody may go, however long that takes while the manager answers."""
        left = self.leave()
        while not futures.wait([left], ASKS_EVERY_S).done:
            self.wait(self.progress(), "the end of the others' work")
        left.result()

    def wait(self, future: Future[Any], call: str) -> Any:
        """A future's result, under the eye of the watchdog."""
        server = next(iter(self.layouts)) if len(self.layouts) == 1 else -1
        with self.comm.waiting(call, server), self._conversation.waited_for():
            return future.result()

    def _ask(self, header: Header, of: set[int] | None = None, **what: Any) -> Future[Any]:
        """Ask whoever has these servers' parts, by default all; `NOBODY` stands for the manager."""
        return self._conversation.ask(Request(header, dict.fromkeys(sorted(of or self.layouts)), **what))

    def _result(self, answers: list[Header]) -> Any:
        """What the future of a request gives, now that all servers have answered."""
        kinds = {Kind(answer.kind) for answer in answers}
        if Kind.GRANT in kinds and Kind.FINISHED not in kinds:
            # Servers that have seen different gradients may be at different steps: ours is the furthest.
            start = Start(
                clock=max(answer.clock for answer in answers),
                number=answers[0].number,
                lead=max(answer.lead for answer in answers),
                held_s=max(answer.seconds for answer in answers),
            )
            self.lead[start.lead] += 1
            return start
        if Kind.APPLIED in kinds:
            staleness = max(answer.staleness for answer in answers)
            self.staleness[staleness] += 1
            return staleness
        if Kind.VALUES in kinds:
            return {answer.home: answer.clock for answer in answers}
        if Kind.TASK in kinds:
            return answers[0].task
        if Kind.PROGRESS in kinds:
            return Progress(answers[0].samples, answers[0].workers)
        self.dropped += Kind.DROPPED in kinds
        return None
