"""The events of `WorkerEvents` for thousands of workers: computed in numpy, a window of time at once.

A gradient that arrives may let its worker start again. That computation ends no earlier than

    arrival + a read + the computing time, which is drawn beforehand

and until the first of these ends, it is known which gradients arrive, and when: those whose computations have begun.
So the simulator is given a window of arrivals, and the workers that start meanwhile enter together after it. Where
others start, which had been waiting, the window ends early, and the rest of it comes again in the next one.

Links with both directions at the same time are assumed, or ones that are never busy. With the others each read delays
the pushes after it, and only the policy knows whether a worker reads.

The earliest quarter of the computations is found and sorted by numpy; a window is a part of it. Cost: a few dozen calls
of numpy for each window, and a few dozen passes over n numbers for n events. Where messages and computing take some
milliseconds at least, a window of 10,000 workers has a thousand arrivals; where they may take no time, √n.

Such a bound on what can still happen is the lookahead of parallel simulation: Chandy & Misra, "Distributed simulation",
1979.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

import numpy as np

from farandole.cost.setting import Draws, Numbers, Setting, Vector, numbers, vector
from farandole.cost.worker_events import WorkerEvents
from farandole.parameter_server.core.policies import Policy

PART = 4  # of the computations that are sorted at once: with fewer there are more passes over all workers
FEW = 512  # computations that are sorted at least, and the most workers whose events come one by one


def events_of(setting: Setting, policy: Policy) -> EventWindows | WorkerEvents:
    """Return the events of this setting, in windows where that is faster and its assumptions hold."""
    are_apart = setting.duplex or not setting.link_busy_s
    if setting.workers > FEW and are_apart and not setting.straggler.recorded:
        return EventWindows(setting, policy)
    return WorkerEvents(setting, policy)


class _Tick(NamedTuple):
    """The server looks at the time; when that was decided, workers had started `starts` times."""

    time: float
    starts: int


class EventWindows:
    """As `WorkerEvents`, with the same attributes."""

    def __init__(self, setting: Setting, policy: Policy) -> None:
        self.server = workers = setting.workers
        self.compute_s = self.wait_s = self.read_s = self.push_s = 0.0
        self._draws = Draws(setting)
        self._busy_s, self._alpha = setting.link_busy_s, setting.link.alpha
        self._own_s = setting.nbytes * setting.link.beta  # of a message on the worker's own link
        self._reads_free = self._pushes_free = 0.0  # when the links will be
        self._iterations = np.zeros(workers, dtype=np.intp)  # that each worker has begun
        self._until, self._takes = np.zeros(workers), np.zeros(workers)  # of each worker's last computation
        self._names = np.array(list(policy.clocks), dtype=object)  # its dictionaries find their own keys fastest
        self._pauses = policy.pauses if type(policy).pause is not Policy.pause else None
        # For each start in this window: its worker, when, since when the worker has waited, its iteration's number.
        self._started: list[int] = []
        self._started_at: list[float] = []
        self._since: list[float] = []
        self._clocks: list[int] = []
        self._starts = 0  # before this window
        self._numbers = np.zeros(workers, dtype=np.intp)  # of each worker's last start, in the order of all starts
        self._ends = np.full(workers, inf)  # of each worker's computation, unless it is among the earliest
        self._later = 0  # computations that are not
        self._border = -inf  # a computation that ends up to here is among the earliest
        self._earliest, self._due = np.empty(0, dtype=np.intp), np.empty(0)  # their workers, and when they end
        self._cut = False  # the window, since workers start that had been waiting
        self._tick, self._last_tick = _Tick(inf, 0), _Tick(-inf, 0)

    def __bool__(self) -> bool:
        return bool(self._later or len(self._earliest) or self._started)

    def starts(self, worker: int, now: float, since: float, clock: int) -> None:
        """Let `worker`, which has waited since `since`, read the parameters now, and then compute iteration `clock`."""
        self._started.append(worker)
        self._started_at.append(now)
        self._since.append(since)
        self._clocks.append(clock)

    def waiting_start(self) -> None:
        """Let workers start that had been waiting."""
        self._cut = True

    def ticks(self, time: float) -> None:
        """Let the server look at the time."""
        self._tick = _Tick(time, self._starts + len(self._started))

    def __iter__(self) -> Iterator[tuple[float, int]]:
        """Remove all events, those that are added meanwhile among them, and yield the arrivals and the server's."""
        while self or self._tick.time < inf:
            self._enter()
            ends = self._due[: self._sure()]
            free = self._pushes_free
            frees = [free := (free if free > end else end) + self._busy_s for end in ends.tolist()]
            arrives = np.maximum(frees, ends + self._own_s) + self._alpha
            times, workers = arrives.tolist(), self._names[self._earliest[: len(ends)]].tolist()
            done, self._cut = 0, False
            tick_time = self._tick.time
            for time, worker in zip(times, workers, strict=True):
                while time >= tick_time and not self._cut and not self._is_before_the_tick(time, done):
                    yield self._ticked()
                    tick_time = self._tick.time
                if self._cut:
                    break
                yield time, worker
                done += 1
            if done:
                self._pushes_free = frees[done - 1]
                self.push_s = _sum(self.push_s, arrives[:done] - ends[:done])
                self._earliest, self._due = self._earliest[done:], self._due[done:]
            if not times:
                yield self._ticked()

    def unfinished(self, time: float) -> Vector:
        """Return for how long after `time` each worker's last computation goes on."""
        return np.minimum(np.maximum(self._until - time, 0.0), self._takes)

    def _enter(self) -> None:
        """Let the workers that have started in the last window read, and compute."""
        if self._started:
            workers, at, since = numbers(self._started), vector(self._started_at), vector(self._since)
            pauses: Vector | float = 0.0
            if self._pauses:
                pauses = np.asarray(self._pauses(workers.astype(np.uint64), numbers(self._clocks).astype(np.uint64)))
            free = self._reads_free
            frees = [free := (free if free > now else now) + self._busy_s for now in self._started_at]
            self._reads_free = free
            takes = self._draws.drawn(workers, self._iterations[workers])
            read = np.maximum(frees, at + self._own_s) + self._alpha
            self.read_s = _sum(self.read_s, read - at)
            self.compute_s = _sum(self.compute_s, takes)
            self.wait_s = _sum(self.wait_s, at - since + pauses)
            self._until[workers], self._takes[workers] = read + pauses + takes, takes
            self._iterations[workers] += 1
            self._numbers[workers] = np.arange(self._starts, self._starts + len(workers))
            self._starts += len(workers)
            self._add(workers, read + takes + pauses)
            for noted in (self._started, self._started_at, self._since, self._clocks):
                noted.clear()
        if self._later and not len(self._earliest):
            self._find_earliest()

    def _add(self, workers: Numbers, ends: Vector) -> None:
        """Let the computations of these workers end then."""
        early = np.flatnonzero(ends <= self._border)
        self._ends[workers], self._ends[workers[early]] = ends, inf
        self._later += len(workers) - len(early)
        if len(early):
            early = early[np.argsort(ends[early], kind="stable")]
            places = np.searchsorted(self._due, ends[early], side="right")
            self._earliest = np.insert(self._earliest, places, workers[early])
            self._due = np.insert(self._due, places, ends[early])

    def _find_earliest(self) -> None:
        """Sort the earliest part of the computations."""
        last = min(max(self._later // PART, FEW), self._later - 1)
        self._border = float(np.partition(self._ends, last)[last])
        due = np.flatnonzero(self._ends <= self._border)
        self._earliest = due[np.argsort(self._ends[due])]
        self._due = self._ends[self._earliest]
        if (self._due[1:] == self._due[:-1]).any():  # of equal ones the first to start
            self._earliest = due[np.lexsort((self._numbers[due], self._ends[due]))]
        self._ends[due] = inf
        self._later -= len(due)

    def _sure(self) -> int:
        """Return how many of the earliest computations end before any that has not begun."""
        again_s = self._draws.known(self._earliest, self._iterations[self._earliest])
        again = self._due + self._own_s + self._alpha + self._own_s + self._alpha + again_s
        open_to = np.flatnonzero(self._due[1:] > np.minimum.accumulate(again)[:-1])
        return int(open_to[0]) + 1 if len(open_to) else len(self._due)

    def _is_before_the_tick(self, arrives: float, place: int) -> bool:
        """Return whether this gradient of the earliest arrives first: at the same time, if its message is older."""
        begun = float(self._due[place]), int(self._numbers[self._earliest[place]])
        return arrives == self._tick.time and begun < self._last_tick

    def _ticked(self) -> tuple[float, int]:
        """Return the event that the server looks at the time."""
        self._last_tick, self._tick = self._tick, _Tick(inf, 0)
        return self._last_tick.time, self.server


def _sum(total: float, values: Vector) -> float:
    """Add the values to the total one after the other."""
    return float(np.add.accumulate(np.append(total, values))[-1])
