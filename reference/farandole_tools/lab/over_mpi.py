"""The verbs of `ulfm_communicator` on real processes, by an MPI that has ULFM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from farandole.runtime.communicator import Buffer
from farandole.runtime.failure import PeerLost
from farandole.runtime.wait import LOST
from farandole_tools.lab.rank_threads import Answer, Made
from farandole_tools.lab.ulfm_communicator import UlfmCommunicator

__all__ = ["OverMpi", "answered"]


class OverMpi(UlfmCommunicator):
    """A communicator of MPI.

    Args:
        before: is told the name of each call before it is made; the communicators that follow tell it, too.
    """

    def __init__(self, mpi: MPI.Intracomm, before: Callable[[str], None] = lambda name: None) -> None:
        self.mpi, self.before = mpi, before
        self.rank, self.size = mpi.rank, mpi.size

    def revoke(self) -> None:
        self.before("revoke")
        self.mpi.Revoke()

    def agree(self, flag: bool) -> bool:
        self.before("agree")
        try:
            return bool(self.mpi.Agree(int(flag)))
        except MPI.Exception as error:
            if error.Get_error_class() in LOST:
                return False
            raise

    def shrink(self) -> OverMpi:
        self.before("shrink")
        return OverMpi(MPI.Intracomm(self.mpi.Shrink()), self.before)

    def _all_reduce(self, array: Buffer) -> None:
        self._call("all_reduce", lambda: self.mpi.Allreduce(MPI.IN_PLACE, array))

    def _all_gather(self, number: int) -> list[int]:
        numbers = np.empty(self.size, dtype=np.int64)
        self._call("all_gather", lambda: self.mpi.Allgather(np.array([number], dtype=np.int64), numbers))
        return [int(each) for each in numbers]

    def _broadcast(self, array: Buffer, source: int) -> None:
        self._call("broadcast", lambda: self.mpi.Bcast(array, source))

    def _call(self, name: str, call: Callable[[], object]) -> None:
        self.before(name)
        try:
            call()
        except MPI.Exception as error:
            if error.Get_error_class() in LOST:
                raise PeerLost(f"found a rank dead, or the communicator revoked, in {name}") from error
            raise


def answered(made: Made, communicators: list[UlfmCommunicator]) -> Answer:
    """Make a call that a program elsewhere has made; return its answer.

    Args:
        communicators: those of this rank, by number; a `shrink` adds one.
    """
    comm = communicators[made.group]
    value: Any = np.array(made.value) if made.name in ("all_reduce", "broadcast") else made.value
    try:
        if made.name == "revoke":
            comm.revoke()
        elif made.name == "agree":
            value = comm.agree(value)
        elif made.name == "shrink":
            communicators.append(new := comm.shrink())
            value = len(communicators) - 1, new.rank, new.size
        elif made.name == "all_gather":
            value = comm.all_gather(value)
        elif made.name == "all_reduce":
            comm.all_reduce(value)
        else:
            comm.broadcast(value, made.source)
    except PeerLost as error:
        return Answer(value, lost=str(error))
    return Answer(value)
