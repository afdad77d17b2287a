"""Answers a leave with nothing while others are there: what it has made due waits for the next push or start."""

from __future__ import annotations

import math

FAILS = {"leaving": "must be held no longer"}


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
        return [] if self.clocks else self.release()

    def release(self):
        begun = min(self.begun.values(), default=math.inf)
        now = [(worker, clock) for worker, clock in self.held if clock - self.staleness < begun]
        self.held = [gradient for gradient in self.held if gradient not in now]
        return now
