"""Worker processes of a rank that read its samples: those of torch's `DataLoader`, among ranks of MPI.

Workers are forked by default: a data set need not be picklable, and a program without ``if __name__ == "__main__"``
works. They have a copy of MPI's memory and never call MPI. The kernel ends them with the rank that made them. Where an
MPI's network does not bear forks, as an old InfiniBand, give {"multiprocessing_context": "spawn"}: such workers import
the program anew, without initialising MPI.

A rank looks for dead workers while it waits for a batch. Torch by itself raises the error in its handler of SIGCHLD, so
wherever the rank is: between two messages, or within an import whose caller takes any error for a missing package. Then
the death goes unnoticed, and the rank waits for a batch that never arrives.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from farandole.data.batch import Batch
from farandole.errors import UsageError

ARGUMENTS = ("num_workers", "prefetch_factor", "timeout", "pin_memory", "worker_init_fn", "multiprocessing_context")
USUAL: dict[str, Any] = {"multiprocessing_context": "fork", "timeout": 120}  # seconds; torch's 0 waits for ever
LOOK_EVERY_S = 1.0  # for workers that have died
PR_SET_PDEATHSIG = 1  # of Linux's prctl


def checked(loader: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a user's arguments for a DataLoader, completed by ours; empty where there are to be no workers.

    Raises:
        UsageError: an argument that decides about the batches, which is the method's to decide; or a value that a
            DataLoader refuses.
    """
    given = dict(loader or {})
    if strange := [name for name in given if name not in ARGUMENTS]:
        raise UsageError(f"loader= has {strange[0]}, which the method decides: it takes {', '.join(ARGUMENTS)}")
    if not given.get("num_workers"):
        return {}
    try:
        DataLoader(TensorDataset(torch.zeros(1)), **USUAL | given)  # starts nothing
    except (TypeError, ValueError) as error:
        raise UsageError(f"loader={given}: {error}") from error
    return USUAL | given


class WorkerLost(RuntimeError):
    """A process that reads ahead has died, or has not made its batch in time."""


def started(dataset: Any, loader: Mapping[str, Any], seed: Sequence[int], **options: Any) -> Iterator[Batch]:
    """Start the workers, and return the batches that they make.

    Args:
        loader: as `checked` returns it, not empty.
        seed: of the workers' random numbers. Those of the training process stay as they are.
        options: of the DataLoader: which batches, and how they are made.
    """
    ours = {"timeout": LOOK_EVERY_S, "worker_init_fn": Begin.of(loader), "generator": generator_of(seed)}
    with without_mpi(), same_signal_handler():
        return iter(DataLoader(dataset, **options, **{**loader, **ours}))


def next_batch(made: Iterator[Batch], patience: float) -> Batch:
    """Wait for the next batch, and look every second for workers that have died.

    Args:
        patience: seconds; 0: without end, as long as the workers live.

    Raises:
        WorkerLost: a worker has died, or the time is over.
    """
    began = time.monotonic()
    while True:
        try:
            return next(made)
        except RuntimeError as error:
            said = str(error).partition("\n")[0]
            if not said.startswith("DataLoader"):  # the data set's own, with its traceback in the worker
                raise
            if not said.startswith("DataLoader timed out"):
                raise WorkerLost(f"loader=: {said}") from error
            if patience and time.monotonic() - began >= patience:
                raise WorkerLost(f"loader=: no batch within timeout={patience} seconds") from error


class Begin:
    """The initialisation of a worker process, which makes sure that it ends with its rank.

    Args:
        rank: the process that the batches are for.
        then: the user's own `worker_init_fn`.
    """

    def __init__(self, rank: int, then: Callable[[int], None] | None) -> None:
        self.rank, self.then = rank, then

    @classmethod
    def of(cls, loader: Mapping[str, Any]) -> Begin:
        """Return it for a worker of this process."""
        return cls(os.getpid(), loader.get("worker_init_fn"))

    def __call__(self, number: int) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if not os.path.exists(f"/proc/{self.rank}") and os.path.exists("/proc/self"):  # it has died just before
            os._exit(1)
        if self.then:
            self.then(number)


def generator_of(seed: Sequence[int]) -> torch.Generator:
    """Return the source of the workers' seeds, which leaves the training process's random numbers as they are."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))


@contextmanager
def without_mpi() -> Iterator[None]:
    """Have processes that are started within, and import mpi4py, not initialise MPI: they are no ranks."""
    name = "MPI4PY_RC_INITIALIZE"
    before = os.environ.get(name)
    os.environ[name] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def same_signal_handler() -> Iterator[None]:
    """Keep the handler of SIGCHLD, of which a DataLoader sets its own as its iteration begins in the main thread."""
    before = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():  # None: not set by Python
            signal.signal(signal.SIGCHLD, before)
