"""Workers that read, compute and push, in the order of time, and the links of their parameter server.

    events.starts(worker, now, since, clock)      it reads the parameters, pauses, computes, and pushes its gradient
    events.ticks(time)                            the server looks at the time
    for time, worker in events: …                 a gradient arrives, or the server looks, the earliest first

All workers' messages pass the server's links one after the other. Each of S servers has 1/S of the P bytes and its own
link, which is busy with a message for P/S·β; α later the message arrives. A worker's own link takes Pβ for the whole. A
link that carries both directions at the same time is two. One server's links stand for those of all.

Events of the same time happen in the order in which they were added, as those of `runtime.event_queue` do.

Computations wait in a heap, O(log n) for each. Messages keep their order and need none. One `EventQueue` for both would
have the same results, and a simulation would take about a tenth longer. With thousands of workers
`cost/event_windows.py` has the same results in half of the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np

from farandole.cost.setting import Draws, Setting, Vector
from farandole.parameter_server.core.policies import Policy

READS = 0  # the link that reads pass


class WorkerEvents:
    """Events of workers 0 to n − 1, each of which has at most one computation and one message under way.

    Attributes:
        server: n, the worker whose computation ends when the server looks at the time.
        compute_s: seconds of all computations that have begun.
        wait_s: seconds of all workers before they started, with their pauses.
        read_s, push_s: seconds of all messages, with their time in the queue.
    """

    def __init__(self, setting: Setting, policy: Policy) -> None:
        self.server = workers = setting.workers
        self.compute_s = self.wait_s = self.read_s = self.push_s = 0.0
        self._busy_s, self._alpha = setting.link_busy_s, setting.link.alpha
        self._own_s = setting.nbytes * setting.link.beta  # of a message on the worker's own link
        self._pushes = int(setting.duplex)  # the link that pushes pass
        self._free = [0.0, 0.0]  # when each link will be
        self._takes_s, self._pause_s = Draws(setting).seconds, policy.pause
        self._iterations = [0] * workers  # that each worker has begun
        self._computations: list[tuple[float, int, int]] = []  # a heap: when it ends, number, worker
        self._messages: deque[tuple[float, int, int]] = deque()  # when it arrives, number, worker
        self._added = 0
        self._until, self._takes = [0.0] * workers, [0.0] * workers  # of each worker's last computation

    def __bool__(self) -> bool:
        return bool(self._messages or self._computations)

    def starts(self, worker: int, now: float, since: float, clock: int) -> None:
        """Let `worker`, which has waited since `since`, read the parameters now, and then compute iteration `clock`."""
        pause_s = self._pause_s(worker, clock)
        takes_s = self._takes_s(worker, self._iterations[worker])
        self._iterations[worker] += 1
        read = self._passed(READS, now)
        self.read_s += read - now
        self.compute_s += takes_s
        self.wait_s += now - since + pause_s
        self._until[worker], self._takes[worker] = read + pause_s + takes_s, takes_s
        self._add(worker, read + takes_s + pause_s)

    def waiting_start(self) -> None:
        """Let workers start that had been waiting."""

    def ticks(self, time: float) -> None:
        """Let the server look at the time."""
        self._add(self.server, time)

    def __iter__(self) -> Iterator[tuple[float, int]]:
        """Remove all events, those that are added meanwhile among them, and yield the arrivals and the server's."""
        computations, messages = self._computations, self._messages
        while self:
            if computations and not (messages and messages[0] < computations[0]):
                time, _, worker = heappop(computations)
                if worker != self.server:  # the gradient passes the link; none that is sent later arrives earlier
                    arrives = self._passed(self._pushes, time)
                    self.push_s += arrives - time
                    self._added += 1
                    messages.append((arrives, self._added, worker))
                    continue
            else:
                time, _, worker = messages.popleft()
            yield time, worker

    def unfinished(self, time: float) -> Vector:
        """Return for how long after `time` each worker's last computation goes on."""
        return np.minimum(np.maximum(np.array(self._until) - time, 0.0), self._takes)

    def _add(self, worker: int, time: float) -> None:
        """Let the computation of `worker` end at `time`."""
        self._added += 1
        heappush(self._computations, (time, self._added, worker))

    def _passed(self, link: int, now: float) -> float:
        """Return when a message submitted to this link now will have arrived."""
        self._free[link] = free = max(self._free[link], now) + self._busy_s
        return max(free, now + self._own_s) + self._alpha
