"""Workers that read, compute and push, in the order of time, and the links of their parameter server.

    events.starts(worker, now, pause_s, takes_s)    it reads the parameters, pauses, computes, and pushes its gradient
    events.many_start()                             before many workers start at once
    events.ticks(time)                              the server looks at the time
    for time, worker in events: …                   a gradient arrives, or the server looks, the earliest first

All workers' messages pass the server's links one after the other. Each of S servers has 1/S of the P bytes and its own
link, which is busy with a message for P/S·β; α later the message arrives. A worker's own link takes Pβ for the whole. A
link that carries both directions at the same time is two. One server's links stand for those of all.

Events of the same time happen in the order in which they were added, as those of `runtime.event_queue` do. That queue
is a heap, whose O(log n) steps through memory would be a third of a simulation. Messages need none, since they keep
their order. Of the computations the earliest eighth is found and sorted by numpy, and taken one by one; those that are
added to it meanwhile are few. Where many workers start at once they are not, so all are sorted anew. Cost: O(1) of
Python for each event, and a few dozen passes over n numbers for n of them.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import deque
from collections.abc import Iterator
from math import inf

import numpy as np

from farandole.cost.setting import Setting

PART = 8  # with a smaller one there are longer lists to insert into, with a larger one more passes over all workers
FEW = 512  # computations: so many are sorted at least, and those of no more workers are in one list from the beginning
READS = 0  # the link that reads pass


class WorkerEvents:
    """Events of workers 0 to n − 1, each of which has at most one computation and one message under way.

    Attributes:
        server: n, the worker whose computation ends when the server looks at the time.
        link_busy_s: for how long a message keeps a link busy.
        comm_s: seconds of all messages, with their time in the queue.
    """

    def __init__(self, setting: Setting) -> None:
        self.server = workers = setting.workers
        self.link_busy_s = setting.link_busy_s
        self.comm_s = 0.0
        self._pushes = int(setting.duplex)  # the link that pushes pass
        self._free = [0.0, 0.0]  # when each link will be
        self._own_s = setting.nbytes * setting.link.beta  # of a message on the worker's own link
        self._alpha = setting.link.alpha
        self._time = array("d", [inf]) * (workers + 1)  # of each worker's computation, unless it is among the earliest
        self._number = array("q", [0]) * (workers + 1)  # in the order in which they were added
        self._times, self._numbers = np.frombuffer(self._time), np.frombuffer(self._number, dtype=np.int64)  # the same
        self._earliest: list[tuple[float, int, int]] = []  # −time, −number, worker; sorted, so the first is the last
        self._border = inf if workers <= FEW else -inf  # a computation up to here is among the earliest
        self._later = 0  # computations that are not among the earliest
        self._messages: deque[tuple[float, int, int]] = deque()
        self._added = 0
        self._until, self._takes = [0.0] * workers, [0.0] * workers  # of each worker's last computation

    def __bool__(self) -> bool:
        return bool(self._messages or self._earliest or self._later)

    def starts(self, worker: int, now: float, pause_s: float, takes_s: float) -> None:
        """Let `worker` read the parameters now, and then compute."""
        free, own = self._free[READS], now + self._own_s
        free = (free if free > now else now) + self.link_busy_s
        read = (free if free > own else own) + self._alpha
        self._free[READS] = free
        self.comm_s += read - now
        self._until[worker] = read + pause_s + takes_s
        self._takes[worker] = takes_s
        self._add(worker, read + takes_s + pause_s)

    def many_start(self) -> None:
        """Let no computation be among the earliest, into which each of the many that follow would be inserted."""
        if self._border == inf:  # as with few workers
            return
        for time, number, worker in self._earliest:
            self._time[worker] = -time
            self._number[worker] = -number
        self._later += len(self._earliest)
        self._earliest.clear()
        self._border = -inf

    def ticks(self, time: float) -> None:
        """Let the server look at the time."""
        self._add(self.server, time)

    def _add(self, worker: int, time: float) -> None:
        """Let the computation of `worker` end at `time`."""
        self._added = added = self._added + 1
        if time <= self._border:
            insort(self._earliest, (-time, -added, worker))
        else:
            self._time[worker] = time
            self._number[worker] = added
            self._later += 1

    def __iter__(self) -> Iterator[tuple[float, int]]:
        """Remove all events, those that are added meanwhile among them, and yield the arrivals and the server's."""
        messages, earliest, server, link_free, pushes = (
            self._messages, self._earliest, self.server, self._free, self._pushes
        )  # fmt: skip
        own_s, busy_s, alpha = self._own_s, self.link_busy_s, self._alpha
        while True:
            if self._later and not earliest:
                self._find_earliest()
            if earliest and not (messages and messages[0] > earliest[-1]):
                time, _, worker = earliest.pop()
                time = -time
                if worker != server:  # the gradient passes the link; none that is sent later arrives earlier
                    free, own = link_free[pushes], time + own_s
                    free = (free if free > time else time) + busy_s
                    arrives = (free if free > own else own) + alpha
                    link_free[pushes] = free
                    self.comm_s += arrives - time
                    self._added = added = self._added + 1
                    messages.append((-arrives, -added, worker))
                    continue
            elif messages:
                time, _, worker = messages.popleft()
                time = -time
            else:
                return
            yield time, worker

    def unfinished(self, time: float) -> Iterator[float]:
        """Yield for how long after `time` each worker's last computation goes on."""
        for until, takes_s in zip(self._until, self._takes, strict=True):
            yield min(max(until - time, 0.0), takes_s)

    def _find_earliest(self) -> None:
        """Sort the earliest part of the computations."""
        last = min(max(self._later // PART, FEW), self._later - 1)
        border = np.partition(self._times, last)[last]
        due = np.flatnonzero(self._times <= border)
        times, numbers = self._times[due], self._numbers[due]
        self._border = float(border)
        order = np.argsort(times)
        if not np.diff(times[order]).all():  # then the numbers decide, too; this sort takes several times as long
            order = np.lexsort((numbers, times))
        order = order[::-1]
        self._earliest += zip((-times[order]).tolist(), (-numbers[order]).tolist(), due[order].tolist(), strict=True)
        self._times[due] = inf
        self._later -= len(due)
