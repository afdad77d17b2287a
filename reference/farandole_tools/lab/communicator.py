"""The communicator of a learner's code: four verbs, counted, and strict.

It is the project's communicator with the comforts of MPI taken away that hide a mistake:
a send returns only once it is being received, as with large messages in any MPI, so an algorithm
that relies on small ones being buffered deadlocks here at every size; a message must fill its
array exactly; what is sent and what is received at the same time must not overlap.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn, Self

import numpy as np
from mpi4py import MPI

from farandole.runtime import rank
from farandole.runtime.communicator import Buffer, Communicator
from farandole.runtime.failure import Failure
from farandole.runtime.flight_recorder import NO_STEP
from farandole_tools.lab.deadlock_detector import DeadlockDetector
from farandole_tools.lab.rank_status import NOBODY, StatusFile


class LabCommunicator(Communicator):
    """Typed messages between ranks 0 … size − 1.

    Give it a `link`, such as `slow_link.SlowLink`, and messages take as long as over that.

    Attributes:
        rank, size: this process's number, and how many there are.
        bytes_sent, messages_sent: what this rank has sent since the communicator was made.
        partners: the ranks this one has sent to or received from.
    """

    def __init__(self, mpi: MPI.Intracomm, status: StatusFile | None = None) -> None:
        super().__init__(mpi)
        self.partners: set[int] = set()
        self._status = status or StatusFile(mpi.rank)
        self.current_case = ""

    @classmethod
    def world(cls) -> Self:
        """Return all ranks of this launch, for a ``%%mpi`` cell; a deadlock is then found and told at once."""
        folder = rank.scratch()
        status = StatusFile(MPI.COMM_WORLD.rank, folder)
        comm = cls(MPI.COMM_WORLD.Dup(), status)  # collective: from here on every rank's status file is there
        if folder:
            DeadlockDetector(folder, comm.rank, comm.size, _give_up, launcher=rank.launcher_pid(), looks=25).start()
            atexit.register(status.returned)
        return comm

    def send(self, array: Buffer, to: int) -> None:
        """Send `array` to rank `to`; returns once that rank receives it."""
        self._check("send", array, to)
        self._carry(array.nbytes, to)
        with self._status.waiting("send", to=to), self.waiting("send", to):
            self.mpi.Ssend(array, to)

    def receive(self, array: Buffer, source: int) -> None:
        """Fill `array` with the next message of rank `source`."""
        self._check("receive", array, source)
        status = MPI.Status()
        with self._status.waiting("receive", source=source), self.waiting("receive", source), _whole(array, source):
            self.mpi.Recv(array, source, status=status)
        _check_filled(status, array, source)
        self._arrived(array.nbytes, source)

    def take(self, buffer: Buffer, source: int, tag: int) -> None:
        """Fill `buffer` with the next message of rank `source` that has this tag."""
        with self._status.waiting("receive", source=source):
            super().take(buffer, source, tag)

    def exchange(self, send: Buffer, to: int, receive: Buffer, source: int) -> None:
        """Send one array to rank `to` and fill another from rank `source`, both at the same time."""
        self._check("exchange", send, to)
        self._check("exchange", receive, source)
        if np.may_share_memory(send, receive):
            raise ValueError(
                "exchange: the array to send and the array to receive into overlap, so that what arrives "
                "would overwrite what has still to leave"
            )
        self._carry(send.nbytes, to)
        status = MPI.Status()
        waiting = self._status.waiting("exchange", to, source)
        with waiting, self.waiting("exchange", source), _whole(receive, source):
            self.mpi.Sendrecv(send, to, 0, receive, source, 0, status)
        _check_filled(status, receive, source)
        self._arrived(receive.nbytes, source)

    def barrier(self) -> None:
        """Return once every rank has called it."""
        with self._status.waiting("barrier"):
            super().barrier()

    def everybodys(self, array: Buffer, call: str = "the comparison of results") -> list[Buffer]:
        """Return every rank's `array` (lengths may differ), in rank order, on all ranks. Collective.

        For looking at results, in checks and notebooks; it is not counted.
        """
        with self._status.waiting(call), self.waiting(call, NOBODY):
            lengths = np.empty(self.size, dtype=np.int64)
            self.mpi.Allgather(np.array([array.size], dtype=np.int64), lengths)
            together = np.empty(int(lengths.sum()), dtype=array.dtype)
            self.mpi.Allgatherv(np.ascontiguousarray(array), [together, lengths])
        return np.split(together, np.cumsum(lengths)[:-1])

    @contextmanager
    def case(self, name: str) -> Iterator[None]:
        """Within the body, what goes wrong is told together with `name`, for instance "length 3"."""
        self.current_case = name
        try:
            yield
        except BaseException as error:
            error.add_note(name)
            raise
        finally:
            self.current_case = ""

    def _check(self, call: str, array: Buffer, peer: int) -> None:
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{call} takes numpy arrays, not {type(array).__name__}")
        if array.dtype.hasobject:
            raise TypeError(f"{call} takes arrays of numbers, not of Python objects")
        if not array.flags.c_contiguous:
            raise ValueError(f"{call} takes contiguous arrays: a part like array[2:5] is, every other element is not")
        if not 0 <= peer < self.size:
            raise ValueError(f"{call}: there is no rank {peer}; the ranks are 0 to {self.size - 1}")
        if peer == self.rank and call != "exchange":
            raise ValueError(f"{call}: rank {peer} cannot wait for itself")
        self.partners.add(peer)


@contextmanager
def _whole(array: Buffer, source: int) -> Iterator[None]:
    """Say in plain words that a message was too long for its array."""
    try:
        yield
    except MPI.Exception as error:
        if error.Get_error_class() == MPI.ERR_TRUNCATE:
            text = f"the message from rank {source} has more bytes than the {array.nbytes:,} of the array to fill"
            raise ValueError(f"{text}: {_question(array.nbytes)}") from error
        raise


def _check_filled(status: MPI.Status, array: Buffer, source: int) -> None:
    arrived = status.Get_count(MPI.BYTE)
    if arrived != array.nbytes:
        text = f"the message from rank {source} has {arrived:,} bytes, the array to fill {array.nbytes:,}"
        raise ValueError(f"{text}: {_question(min(arrived, array.nbytes))}")


def _question(shorter: int) -> str:
    """Return the question about two lengths that differ: an empty message may have its partner in another step."""
    same = "the same length and type on both sides?"
    return same if shorter else f"{same} Or does it belong to another step: has a rank left out an empty chunk?"


def _give_up(reason: str) -> NoReturn:
    text = f"has found that nothing goes on: {reason}"
    rank.abort(Failure(MPI.COMM_WORLD.rank, NO_STEP, "timeout", time.time(), text))
