"""The surroundings of a call of MPI: a time-out on it, and the number of a rank that has died in it.

A class for the `with` statement, since one made of a generator takes 2 µs more: on two ranks MPI's own all-reduce of a
short vector takes no longer.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from mpi4py import MPI

from farandole.runtime.failure import PeerLost
from farandole.runtime.watchdog import Watchdog

# Error classes of a lost process (ULFM); an MPI without them reports losses by ending the job.
LOST = {getattr(MPI, name, None) for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")} - {None}


class Wait:
    """One call of MPI.

    Args:
        lost: makes the error that names the dead ranks, from `call` and `peer`.
        call: what is done, for messages.
        peer: the rank of the group with which it is done; -1: all.
        watchdog: ends the job when the body takes too long; None: the body does not wait.
        member: the number of `peer` among all ranks.

    Raises:
        PeerLost: a rank has died.
    """

    __slots__ = ("_call", "_lost", "_member", "_outer", "_peer", "_watchdog")

    def __init__(
        self,
        lost: Callable[[str, int], PeerLost],
        call: str,
        peer: int,
        watchdog: Watchdog | None = None,
        member: int = -1,
    ) -> None:
        self._lost = lost
        self._call = call
        self._peer = peer
        self._watchdog = watchdog
        self._member = member

    def __enter__(self) -> None:
        if self._watchdog:
            self._outer = self._watchdog.begin(self._call, self._member)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if isinstance(error, MPI.Exception) and error.Get_error_class() in LOST:
                raise self._lost(self._call, self._peer) from error
        finally:
            if self._watchdog:
                self._watchdog.end(self._outer)
