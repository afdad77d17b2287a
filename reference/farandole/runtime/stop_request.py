"""Ending a training in order: after a signal to any rank, all ranks stop after the same step.

A signal reaches the ranks at different steps, or only one of them; a rank that stopped there would leave the others
waiting. So the ranks regularly exchange whether they have received one. Slurm sends one before a job's time is up
(``--signal=USR1@60``), and mpirun forwards it to its ranks. Before Slurm gives a job's nodes to another job it sends
SIGTERM, which is such a request where FARANDOLE_STOP_ON_TERM is set, and otherwise ends a rank as usual.

Cost: an all-reduce of 4 bytes for each call. It overlaps the next steps, so that no rank waits for it, and the answer
is one call old.
"""

from __future__ import annotations

import os
import signal

import numpy as np
from mpi4py import MPI

from farandole.runtime.world import World

STOP_ON_TERM = "FARANDOLE_STOP_ON_TERM"  # in the environment, by a batch script whose job may have to make way


class StopRequest:
    """Whether a signal to any rank has requested the end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked = False
        self._said, self._heard = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
        self._asking = MPI.REQUEST_NULL
        signal.signal(signal.SIGUSR1, self._note)
        if os.environ.get(STOP_ON_TERM):
            signal.signal(signal.SIGTERM, self._note)

    def heard(self) -> bool:
        """Return whether any rank had received a request one call before; the same on all ranks. Collective."""
        self.complete()
        heard = bool(self._heard[0])
        self._said[0] = self.asked
        self._asking = self.world.control.Iallreduce(self._said, self._heard, MPI.MAX)
        return heard

    def complete(self) -> None:
        """Complete the last exchange."""
        with self.world.comm.waiting("whether to stop", -1):
            self._asking.Wait()

    def _note(self, *_: object) -> None:
        self.asked = True
