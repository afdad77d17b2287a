"""Holds whoever has reached the bound until the slowest has caught up with it altogether."""

from __future__ import annotations

import math

FAILS = {"liveness": "it is only 1 ahead"}


class StaleSynchronous:
    def __init__(self, workers, staleness):
        self.staleness = staleness
        self.clocks = dict.fromkeys(workers, 0)
        self.begun = dict(self.clocks)
        self.held = []
        self.stopped = set()

    def may_start(self, worker):
        lead = self.clocks[worker] - min(self.clocks.values())
        if lead > self.staleness:
            self.stopped.add(worker)
        elif lead == 0:
            self.stopped.discard(worker)
        return worker not in self.stopped

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
