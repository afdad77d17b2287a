"""The next iteration of a training without common steps; pure.

A training of S steps on P ranks is S·P iterations, each on a part of a batch. A rank that is ready takes the next one,
so a slow rank computes fewer of them, and no rank waits for it.

    number        of an iteration, from 0; numbers s·P to s·P + P − 1 count as step s
    staleness     iterations that other ranks have finished while this one was computed
    lead          iterations that this rank has begun, minus those of the slowest rank

`iteration_server` counts them over MPI, the simulator (`cost.pairs`) counts them by events. Cost: O(1) an iteration.
"""

from __future__ import annotations

from collections import Counter

NONE_LEFT = -1


class Iterations:
    """`count` iterations, given out one by one.

    Attributes:
        begun, finished: how many there are so far.
        begun_by: how many each rank has begun.
        staleness: histogram over the iterations that have been finished.
        lead: histogram over the iterations that have been begun.
    """

    def __init__(self, ranks: int, count: int) -> None:
        self.count = count
        self.begun = self.finished = 0
        self.begun_by = [0] * ranks
        self.staleness: Counter[int] = Counter()
        self.lead: Counter[int] = Counter()
        self._ranks_at = [ranks]  # how many ranks have begun 0, 1, 2, … iterations
        self._slowest = 0  # how many the slowest rank has begun
        self._finished_before: dict[int, int] = {}  # rank → `finished` when it began the iteration that it computes

    def next(self, rank: int, stop: bool = False) -> int:
        """Finish the iteration of `rank`, if it computes one, and return the number of its next one, or `NONE_LEFT`.

        Args:
            stop: the rank has been told to end the training: no further iteration begins on any rank.
        """
        if rank in self._finished_before:
            self.finish(rank)
        if stop:
            self.count = self.begun
        return self.begin(rank)

    def begin(self, rank: int) -> int:
        """Return the number of the next iteration, which `rank` computes, or `NONE_LEFT`."""
        if self.begun == self.count:
            return NONE_LEFT
        own = self.begun_by[rank]
        self.lead[own - self._slowest] += 1
        self.begun_by[rank] += 1
        if own + 1 == len(self._ranks_at):
            self._ranks_at.append(0)
        self._ranks_at[own] -= 1
        self._ranks_at[own + 1] += 1
        while not self._ranks_at[self._slowest]:
            self._slowest += 1
        self._finished_before[rank] = self.finished
        self.begun += 1
        return self.begun - 1

    def finish(self, rank: int) -> None:
        """Count the iteration that `rank` has computed."""
        self.staleness[self.finished - self._finished_before.pop(rank)] += 1
        self.finished += 1
