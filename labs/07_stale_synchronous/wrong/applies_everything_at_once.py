"""Applies each gradient as it comes: a slower worker then reads some that are too new."""

from __future__ import annotations

FAILS = {
    "reads": "that is to be held until worker",
    "staleness zero": "which mini-batch SGD has not applied yet",
    "real ranks": "too early or too late",
}


class StaleSynchronous:
    def __init__(self, workers, staleness):
        self.staleness = staleness
        self.clocks = dict.fromkeys(workers, 0)

    def may_start(self, worker):
        return self.clocks[worker] - min(self.clocks.values()) <= self.staleness

    def started(self, worker):
        return []

    def push(self, worker, clock):
        self.clocks[worker] += 1
        return [(worker, clock)]

    def leave(self, worker):
        del self.clocks[worker]
        return []
