"""The worker's side of the key-value store: pull, push, and requests to the manager.

Every call returns a future at once. A second thread sends the request and receives the answer (`rpc_channel`). As
`KVWorker` in ps-lite (Li et al., OSDI 2014).
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

from farandole.parameter_server.chain_replication import ChainReplication
from farandole.parameter_server.header import ENCODED, LAST, NO_PARTITION, NO_TASK, Header, Kind
from farandole.parameter_server.keys import Assignment, KeyRange
from farandole.parameter_server.layout import Layout
from farandole.parameter_server.request import Progress, Request
from farandole.parameter_server.rpc_channel import RpcChannel
from farandole.parameter_server.window import Window
from farandole.runtime.communicator import Communicator

Array = NDArray[Any]
PROBE_EVERY_S = 1.0  # how often a client that has left checks that the manager is alive


@dataclass(frozen=True)
class Start:
    """Permission to start an iteration.

    Attributes:
        clock: the iteration's number.
        request_id: of the pull that it answers.
        lead: the worker's lead over the slowest worker, in iterations.
        held_s: how long the servers' policies held the pull back.
        parameters: where the servers' parameters lie, unchanged until this worker has pushed; None: nowhere in one
            piece that this worker can read.
    """

    clock: int
    request_id: int
    lead: int
    held_s: float
    parameters: Array | None = None


class KVWorker:
    """The connection of one worker, aggregator or reader to the servers of its application.

    Args:
        assignment: server's rank → its key ranges.
        table: an array of the shape and type of what is pulled.
        replication: which rank has which role.
        lost: the dead ranks; None: the first failure ends the job.
        window: memory shared with the servers, through which whole pulls and pushes then go.
        assign: returns which of the given servers has which ranges, for when they change (`server_manager`).

    Attributes:
        slot: this rank's array in the window; a gradient computed there is pushed without a copy. None: no window.
        lead: histogram of the lead over the slowest worker at each start.
        staleness: histogram of the staleness of this worker's gradients when they were applied.
        dropped: how many of its gradients were not applied.
    """

    def __init__(
        self,
        comm: Communicator,
        assignment: Mapping[int, Sequence[KeyRange]],
        table: Array,
        replication: ChainReplication,
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
        self.window, self.slot = window, window.slot(comm.rank) if window else None
        self.lead: Counter[int] = Counter()
        self.staleness: Counter[int] = Counter()
        self.dropped = 0
        self._last_push: Future[Any] | None = None
        self._channel = RpcChannel(
            comm, group, self.layouts, table.dtype, replication, lost, window, self._result,
            relayout=(lambda ring: layouts(assign(ring))) if assign else None,
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._channel.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self._channel.close()

    def pull(self, into: Array | None, rows: NDArray[np.int64] | None = None) -> Future[Start | None]:
        """Request to start the next iteration; the parameters are received into `into`.

        Args:
            into: None: they are read where they lie (`Window.lends`).
            rows: only these rows of the table, ascending; `into` then has one row for each.

        Returns:
            A future: which iteration it is, or None when there is no work left.
        """
        return self._call(Header(Kind.PULL), into=into, rows=rows)

    def push(
        self,
        gradient: Array,
        clock: int,
        share: float,
        rows: NDArray[np.int64] | None = None,
        read: int = LAST,
        task: int = NO_TASK,
    ) -> Future[int | None]:
        """Push iteration `clock`'s gradient, which must not change until the future is done.

        Args:
            share: the part of the whole batch that the gradient is the mean of, n_r / N.
            rows: the gradient's rows of the table, ascending, if it is sparse.
            read: `Start.request_id` of the pull that it was computed at, if that was not the last one.
            task: the task of the gradient; of several pushes of one task a server counts the first (`tasks`).

        Returns:
            A future: the gradient's staleness when it was applied, or None if it was dropped.
        """
        in_window = self.slot is not None and rows is None
        if in_window:
            assert self.slot is not None
            if self._last_push:
                self.wait(self._last_push, "the answer to a push")  # until then a server may be reading the slot
            if gradient is not self.slot:
                self.slot[:] = gradient
        header = Header(Kind.PUSH, clock=clock, share=share, read=read, task=task)
        self._last_push = self._call(header, gradient=gradient, rows=rows, in_window=in_window)
        return self._last_push

    def push_encoded(self, payloads: Mapping[int, Array], clock: int, share: float) -> Future[int | None]:
        """Push iteration `clock`'s gradient, each server's part (`Layout.part`) in the bytes that its decoder knows."""
        self._last_push = self._call(Header(Kind.PUSH, clock=clock, share=share, count=ENCODED), encoded=payloads)
        return self._last_push

    def push_range(self, gradient: Array, server: int, part: int, clock: int, share: float) -> Future[int | None]:
        """Push only the given one of a server's ranges; the gradient counts once all its ranges have arrived.

        The paper that document 004's parameter server is from pushes ranges (Li et al. 2014, section 3.2). The
        scenarios push whole gradients; this is for a program that computes a range before the rest.

        Args:
            gradient: that range's part alone.
        """
        return self._call(Header(Kind.PUSH, clock=clock, share=share, part=part), {server}, gradient=gradient)

    def read(self, into: Array) -> Future[dict[int, int]]:
        """Read the current parameters, whatever the policy; for clients that do not train.

        Returns:
            A future: server → the version of its part, which is the number of updates.
        """
        return self._call(Header(Kind.READ), into=into)

    def versions(self) -> Future[dict[int, int]]:
        """Request the servers' versions alone."""
        return self._call(Header(Kind.READ, count=0))

    def end_training(self) -> Future[None]:
        """End the training: no worker begins another iteration. Only for policies that do not work in rounds."""
        return self._call(Header(Kind.END), {min(self.layouts)})

    def next_task(self, done: int = NO_TASK) -> Future[int | None]:
        """Report a completed task and request the next one; a future: None if all are done (`tasks`)."""
        return self._call(Header(Kind.TASK, task=done), {NO_PARTITION})

    def progress(self) -> Future[Progress]:
        """Request the workers' progress from the manager; for clients that do not train."""
        return self._call(Header(Kind.PROGRESS), {NO_PARTITION})

    def report(self, clock: int, loss: float, samples: int, right: int = 0, baseline: int = 0) -> None:
        """Report a completed iteration to the manager; the last two are for `online`."""
        self._channel.notify_managers(
            Header(Kind.REPORT, clock=clock, loss=loss, samples=samples, right=right, baseline=baseline)
        )

    def heartbeat(self) -> None:
        """Send the manager a heartbeat, if the last one is old enough; for a caller that waits for other messages."""
        self._channel.heartbeat()

    def leave(self) -> Future[None]:
        """Report to the manager that this client has finished; the future is done when every client may exit."""
        with self.comm.waiting("answers to pushes", -1), self._channel.waiting():
            self._channel.wait_for_all()
        return self._call(Header(Kind.LEAVE), {NO_PARTITION})

    def leave_with_the_others(self) -> None:
        """Leave, and block until every client may exit, however long that takes while the manager answers."""
        left = self.leave()
        while not futures.wait([left], PROBE_EVERY_S).done:
            self.wait(self.progress(), "the end of the others' work")
        left.result()

    def wait(self, future: Future[Any], call: str) -> Any:
        """Return a future's result; the watchdog reports `call` if it takes too long."""
        server = next(iter(self.layouts)) if len(self.layouts) == 1 else -1
        with self.comm.waiting(call, server), self._channel.waiting():
            return future.result()

    def _call(self, header: Header, partitions: set[int] | None = None, **fields: Any) -> Future[Any]:
        """Send a request to the servers of these partitions, by default all; `NO_PARTITION` stands for the manager."""
        return self._channel.call(Request(header, dict.fromkeys(sorted(partitions or self.layouts)), **fields))

    def _result(self, answers: list[Header]) -> Any:
        """Return the result of a request that all servers have answered."""
        kinds = {Kind(answer.kind) for answer in answers}
        if Kind.GRANT in kinds and Kind.FINISHED not in kinds:
            # Servers that have seen different gradients may be at different steps: the furthest one counts.
            clock = max(answer.clock for answer in answers)
            start = Start(
                clock=clock,
                request_id=answers[0].request_id,
                lead=max(answer.lead for answer in answers),
                held_s=max(answer.seconds for answer in answers),
                parameters=self.window.lent(clock) if self.window else None,
            )
            self.lead[start.lead] += 1
            return start
        if Kind.APPLIED in kinds:
            staleness = max(answer.staleness for answer in answers)
            self.staleness[staleness] += 1
            return staleness
        if Kind.VALUES in kinds:
            return {answer.partition: answer.clock for answer in answers}
        if Kind.TASK in kinds:
            return answers[0].task
        if Kind.PROGRESS in kinds:
            return Progress(answers[0].samples, answers[0].workers)
        self.dropped += Kind.DROPPED in kinds
        return None
