"""Applies what may be applied now, and forgets the rest instead of holding it."""

from __future__ import annotations

import math

FAILS = {
    "every gradient once": "has never been applied",
    "reads": "without worker",
    "staleness zero": "without worker",
    "leaving": "has never been applied",
    "real ranks": "is one lost",
}


class StaleSynchronous:
    def __init__(self, workers, staleness):
        self.staleness = staleness
        self.clocks = dict.fromkeys(workers, 0)
        self.begun = dict(self.clocks)
        self.held = []

    def may_start(self, worker):
        return self.clocks[worker] - min(self.clocks.values()) <= self.staleness

    def started(self, worker):
        self.begun[worker] += 1
        return self.release()

    def push(self, worker, clock):
        self.clocks[worker] += 1
        self.held.append((worker, clock))
        return self.release()

    def leave(self, worker):
        del self.clocks[worker], self.begun[worker]
        return self.release()

    def release(self):
        begun = min(self.begun.values(), default=math.inf)
        now = [(worker, clock) for worker, clock in self.held if clock - self.staleness < begun]
        self.held = []
        return now
