"""Assigns the iterations of `iterations` over MPI: rank 0 counts them for all ranks.

A thread of rank 0 answers each request with a number. Its messages are not part of the method and are not counted. A
rank waits for its number, never for another rank's computation.

Cost: a message of 8 bytes and one of 16 per iteration.
"""

from __future__ import annotations

import threading

import numpy as np
from mpi4py import MPI

from farandole.decentralised.iterations import Iterations
from farandole.decentralised.responder_thread import ResponderThread
from farandole.runtime.world import World

REQUEST, REPLY = 1, 2  # MPI tags


class IterationServer:
    """One on each rank; rank 0's has the thread.

    Args:
        count: iterations of the whole training.

    Attributes:
        iterations: counted on rank 0.
        begun: number of all iterations, known once this rank has received that none is left.
    """

    def __init__(self, world: World, count: int) -> None:
        self.world = world
        self.begun = 0
        self._control = world.control.Dup()  # its messages meet no others
        self._reply = np.empty(2, dtype=np.int64)
        self._lock = threading.Lock()  # rank 0 takes its own numbers without a message, beside its thread
        self.iterations = Iterations(world.size, count)
        self._responder = ResponderThread("iterations", self._answer) if world.rank == 0 else None

    def next(self, stop: bool) -> int:
        """Return the number of this rank's next iteration, or `NONE_LEFT`."""
        if self._responder:
            self._responder.check()
            number, self.begun = self._take(0, stop)
            return number
        with self.world.comm.waiting("the next iteration's number", 0):
            self._control.Sendrecv(np.array([stop], dtype=np.int64), 0, REQUEST, self._reply, 0, REPLY)
        number, self.begun = self._reply.tolist()
        return int(number)

    def close(self) -> None:
        """Return when every rank has received that none is left. Collective."""
        with self.world.comm.waiting("the others' last iterations", -1):
            self._control.Barrier()
        if self._responder:
            self._responder.close()
        self._control.Free()

    def _take(self, rank: int, stop: bool) -> tuple[int, int]:
        with self._lock:
            number = self.iterations.next(rank, stop)
            return number, self.iterations.begun

    def _answer(self) -> bool:
        """Answer one request, if there is one; in rank 0's thread."""
        status = MPI.Status()
        if not self._control.Iprobe(MPI.ANY_SOURCE, REQUEST, status):
            return False
        rank, stop = status.Get_source(), np.empty(1, dtype=np.int64)
        self._control.Recv(stop, rank, REQUEST)
        self._control.Send(np.array(self._take(rank, bool(stop[0])), dtype=np.int64), rank, REPLY)
        return True
