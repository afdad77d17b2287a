"""Ending a training in order: all ranks stop after the same step, because one of them was asked to.

A signal reaches the ranks at different steps, or only one of them; a rank that stopped there would leave the others
waiting. So all tell each other now and then whether they have been asked. Slurm asks before a job's time is up
(``--signal=USR1@60``), and mpirun passes the signal on to its ranks. Before it takes a job's nodes for another one it
sends SIGTERM, which asks for the same where FARANDOLE_STOP_ON_TERM is set, and elsewhere ends a rank as usual.

Cost: an all-reduce of 4 bytes for each call. It goes on while the next steps are taken, so that nobody waits for it,
and the answer is one call old.
"""

from __future__ import annotations

import os
import signal

import numpy as np
from mpi4py import MPI

from farandole.runtime.world import World

STOP_ON_TERM = "FARANDOLE_STOP_ON_TERM"  # in the environment, by a batch script whose job may have to make way


class StopRequest:
    """Whether somebody has asked for the end, by a signal to any rank."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked = False
        self._said, self._heard = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
        self._asking = MPI.REQUEST_NULL
        signal.signal(signal.SIGUSR1, self._note)
        if os.environ.get(STOP_ON_TERM):
            signal.signal(signal.SIGTERM, self._note)

    def heard(self) -> bool:
        """Whether any rank had been asked one call before; the same answer on all. Collective."""
        self.complete()
        heard = bool(self._heard[0])
        self._said[0] = self.asked
        self._asking = self.world.control.Iallreduce(self._said, self._heard, MPI.MAX)
        return heard

    def complete(self) -> None:
        """Nothing is under way any more when this returns."""
        with self.world.comm.waiting("whether to stop", -1):
            self._asking.Wait()

    def _note(self, *_: object) -> None:
        self.asked = True
