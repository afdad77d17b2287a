"""How much is left to do, where no two ranks are at the same step.

A training of S steps on P ranks is S·P iterations, each on a part of a batch. Who is ready takes the next one, so that
a slow rank does less and is waited for by nobody. Counting them needs one place: rank 0, whose thread hands out
numbers. That is the bookkeeping and not the method, and is not counted as its communication; a rank that asks waits for
its number, not for anybody's work.

    number        of an iteration, 0 and up; those from s·P to s·P + P − 1 count as step s
    staleness     iterations that others have finished while this one was computed, whatever of them has come here
    lead          iterations of this rank, minus those of the rank that has begun the fewest

Cost: a message of 8 bytes and one of 16 an iteration.
"""

from __future__ import annotations

import threading
from collections import Counter

import numpy as np
from mpi4py import MPI

from farandole.decentralised.attendant import Attendant
from farandole.runtime.world import World

NONE_LEFT = -1
ASK, TELL = 1, 2  # MPI tags


class Iterations:
    """So many, handed out one by one; no messages.

    Attributes:
        begun: how many have been handed out.
        staleness, lead: histograms over the iterations that have been finished, or begun.
    """

    def __init__(self, ranks: int, count: int) -> None:
        self.count = count
        self.begun = self._finished = 0
        self.staleness: Counter[int] = Counter()
        self.lead: Counter[int] = Counter()
        self._by_rank = [0] * ranks
        self._under_way: dict[int, int] = {}  # rank → how many had been finished when it began

    def next(self, rank: int, stop: bool = False) -> int:
        """`rank` has finished what it had, and takes the next one; `NONE_LEFT` if there is none.

        Args:
            stop: it has been asked to end the training: nobody will begin another one.
        """
        if rank in self._under_way:
            self.staleness[self._finished - self._under_way.pop(rank)] += 1
            self._finished += 1
        if stop:
            self.count = self.begun
        if self.begun == self.count:
            return NONE_LEFT
        self.lead[self._by_rank[rank] - min(self._by_rank)] += 1
        self._by_rank[rank] += 1
        self._under_way[rank] = self._finished
        self.begun += 1
        return self.begun - 1


class Distribution:
    """The same for all ranks of a launch.

    Attributes:
        iterations: on rank 0.
        begun: how many there were in all, once this rank has been told that none is left.
    """

    def __init__(self, world: World, count: int) -> None:
        self.world = world
        self.begun = 0
        self._control = world.control.Dup()  # its messages meet no others
        self._answer = np.empty(2, dtype=np.int64)
        self._lock = threading.Lock()  # rank 0 asks itself without a message, beside its thread
        self.iterations = Iterations(world.size, count)
        self._attendant = Attendant("iterations", self._look) if world.rank == 0 else None

    def next(self, stop: bool) -> int:
        """The number of this rank's next iteration, or `NONE_LEFT`."""
        if self._attendant:
            self._attendant.check()
            number, self.begun = self._take(0, stop)
            return number
        with self.world.comm.waiting("the next iteration's number", 0):
            self._control.Sendrecv(np.array([stop], dtype=np.int64), 0, ASK, self._answer, 0, TELL)
        number, self.begun = self._answer.tolist()
        return int(number)

    def close(self) -> None:
        """Return when every rank has been told that none is left. Collective."""
        with self.world.comm.waiting("the others' last iterations", -1):
            self._control.Barrier()
        if self._attendant:
            self._attendant.close()
        self._control.Free()

    def _take(self, rank: int, stop: bool) -> tuple[int, int]:
        with self._lock:
            number = self.iterations.next(rank, stop)
            return number, self.iterations.begun

    def _look(self) -> bool:
        """In rank 0's thread."""
        status = MPI.Status()
        if not self._control.Iprobe(MPI.ANY_SOURCE, ASK, status):
            return False
        rank, stop = status.Get_source(), np.empty(1, dtype=np.int64)
        self._control.Recv(stop, rank, ASK)
        self._control.Send(np.array(self._take(rank, bool(stop[0])), dtype=np.int64), rank, TELL)
        return True
