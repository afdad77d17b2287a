"""Compares with the fastest worker instead of the slowest: stops those that are behind."""

from __future__ import annotations

import math

FAILS = {
    "bound": "may start after 1 iteration, while worker",
    "liveness": "although nobody is slower",
    "staleness zero": "may start iteration 1 before worker",
    "leaving": "still has to wait",
    "real ranks": "too early or too late",
}


class StaleSynchronous:
    def __init__(self, workers, staleness):
        self.staleness = staleness
        self.clocks = dict.fromkeys(workers, 0)
        self.begun = dict(self.clocks)
        self.held = []

    def may_start(self, worker):
        return max(self.clocks.values()) - self.clocks[worker] <= self.staleness

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
        self.held = [gradient for gradient in self.held if gradient not in now]
        return now
