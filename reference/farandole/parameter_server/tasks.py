"""A coordinator that assigns computing tasks: which worker computes which mini-batches is decided during training.

In document 001's parameter server with DistBelief the centre submits all computing tasks to the workers. A worker only
receives a task, computes gradients at the parameters of that time, and pushes their sum. A task is a number t. It
stands for the mini-batches t·m … t·m + m − 1 of all epochs, in an order that every rank knows from the seed, so any
worker can compute it. A fast worker receives more tasks than a slow one.

    worker → coordinator    TASK    task t is done (or none yet); requests the next
    coordinator → worker    TASK    task u; or FINISHED

A task whose worker has died is submitted again. When all tasks are given out and some are not done, an idle worker
receives a *backup task*: the one that another worker has had for the longest time. So a task may be computed twice;
each server counts the first gradient of a task, and drops the second.

Cost: two headers per task. Backup tasks waste at most one task per worker, at the end.
Sources: Dean et al., "Large scale distributed deep networks", 2012 (the coordinator of Sandblaster L-BFGS hands out
small portions of work, and backup copies of the slowest); Dean & Ghemawat, "MapReduce", 2004 (backup tasks).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from farandole.parameter_server.chain_replication import ChainReplication
from farandole.parameter_server.header import NO_TASK, Header, Kind
from farandole.parameter_server.message_queue import ANSWER, MessageQueue


class TaskQueue:
    """The state of every task: not yet given out, being computed, or done. Sends no messages.

    Args:
        tasks: their number; they are 0 … tasks − 1, given out in this order.

    Attributes:
        done_by: worker → how many tasks it was the first to complete.
        resubmitted: how many were given out again because their worker had died.
        backups: how many were given to a second worker because the first was slow.
    """

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks
        self.done_by: Counter[int] = Counter()
        self.resubmitted = self.backups = 0
        self._next = 0
        self._lost: list[int] = []  # their worker has died
        self._with: dict[int, list[int]] = {}  # task → its workers; the task given out longest ago comes first
        self._done: set[int] = set()

    @property
    def is_finished(self) -> bool:
        return len(self._done) == self.tasks

    def give(self, worker: int) -> int | None:
        """Return the next task for an idle worker; None: there is none for it at present."""
        if self._lost:
            self.resubmitted += 1
            task = self._lost.pop(0)
        elif self._next < self.tasks:
            task, self._next = self._next, self._next + 1
        else:
            slow = [task for task, workers in self._with.items() if len(workers) == 1 and worker not in workers]
            if not slow:
                return None
            self.backups += 1
            task = slow[0]
        self._with.setdefault(task, []).append(worker)
        return task

    def done(self, worker: int, task: int) -> None:
        """Note a task as done: every server has answered `worker`'s push of it."""
        self._with.pop(task, None)
        if task in self._lost:
            self._lost.remove(task)
        if task not in self._done:
            self._done.add(task)
            self.done_by[worker] += 1

    def lose(self, worker: int) -> None:
        """Note a worker's death: tasks that no other worker computes will be given out again."""
        for task, workers in list(self._with.items()):
            if worker in workers:
                workers.remove(worker)
                if not workers:
                    del self._with[task]
                    self._lost.append(task)

    def figures(self) -> dict[str, Any]:
        """Return the record's entry (`Summary.tasks`)."""
        done_by = {str(worker): count for worker, count in sorted(self.done_by.items())}
        return {"done_by": done_by, "resubmitted": self.resubmitted, "backups": self.backups}


class Coordinator:
    """The manager's part: it gives each idle worker a task as soon as there is one."""

    kinds = frozenset({Kind.TASK})

    def __init__(self, messages: MessageQueue, replication: ChainReplication, queue: TaskQueue) -> None:
        self.messages, self.replication, self.queue = messages, replication, queue
        self._idle: list[Header] = []
        self._dead: set[int] = set()

    def handle(self, header: Header) -> None:
        if header.task != NO_TASK:
            self.queue.done(header.source, header.task)
        self._idle.append(header)
        self._answer()

    def tick(self) -> None:
        pass

    def on_failure(self) -> None:
        """Have the tasks of workers that have died computed by others."""
        for worker in sorted(self.replication.lost - self._dead):
            self.queue.lose(worker)
        self._dead |= self.replication.lost
        self._idle = [header for header in self._idle if header.source not in self._dead]
        self._answer()

    def stop(self) -> None:
        pass

    def _answer(self) -> None:
        waiting, self._idle = self._idle, []
        for header in waiting:
            if self.queue.is_finished:
                self.messages.send(header.source, ANSWER, Header(Kind.FINISHED, request_id=header.request_id))
            elif (task := self.queue.give(header.source)) is not None:
                self.messages.send(header.source, ANSWER, Header(Kind.TASK, request_id=header.request_id, task=task))
            else:
                self._idle.append(header)
