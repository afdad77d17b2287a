"""Worker processes that read and collate a rank's next batches while it trains on the present one.

The methods' samplers are deterministic, so a copy of a sampler tells which rows come next. The workers are those of
torch's `DataLoader`, whose batch sampler is that copy. A batch has the same bits as without workers.

    reader = ahead(shard.on(device), coming, seed)
    batch = reader[rows]                  # the next of `coming`: made already, or waited for

Where other rows are asked for than were foreseen, as after a death that divides the batches anew, the workers end, and
the training process reads until `ahead` is called again.

Workers are forked by default: a data set need not be picklable, and a program without ``if __name__ == "__main__"``
works. They have a copy of MPI's memory and never call MPI. The kernel ends them with the rank that made them. Where an
MPI's network does not bear forks, as an old InfiniBand, give {"multiprocessing_context": "spawn"}: such workers import
the program anew, without initialising MPI.

Cost: num_workers · prefetch_factor batches of memory a rank; a few milliseconds a worker to fork it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, TensorDataset

from farandole.data import batch as batches
from farandole.data.batch import Batch
from farandole.errors import UsageError

Numbers = NDArray[np.intp]
ARGUMENTS = ("num_workers", "prefetch_factor", "timeout", "pin_memory", "worker_init_fn", "multiprocessing_context")
USUAL: dict[str, Any] = {"multiprocessing_context": "fork", "timeout": 120}  # seconds; torch's 0 waits for ever
R = TypeVar("R")
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

    @classmethod
    @contextmanager
    def named(cls) -> Iterator[None]:
        """Raise it in place of what a DataLoader raises then, within."""
        try:
            yield
        except RuntimeError as error:
            if not str(error).startswith("DataLoader"):  # the data set's own, with its traceback in the worker
                raise
            raise cls(f"loader=: {str(error).splitlines()[0]}") from error


class ReadAhead:
    """A reader whose next batches worker processes make.

    Args:
        dataset: has `__getitem__`.
        collate: makes a batch of a list of samples.
        numbers_of: rows → the data set's numbers of these samples, at least one.
        direct: makes the batch of some rows in this process.
        loader: as `checked` returns it, not empty.
    """

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[list[Any]], Batch],
        numbers_of: Callable[[Numbers], list[int]],
        direct: Callable[[Numbers], Batch],
        loader: Mapping[str, Any],
        device: torch.device,
    ) -> None:
        self.dataset, self.collate, self.numbers_of, self.direct = dataset, collate, numbers_of, direct
        self.loader, self.device = loader, device
        self._expected: deque[Numbers] = deque()
        self._made: Iterator[Batch] | None = None

    def foresee(self, coming: Iterator[Numbers], seed: Sequence[int]) -> None:
        """Have the workers make the batches of `coming`, in order; they begin at once.

        Args:
            seed: of the workers' random numbers. Those of the training process stay as they are.
        """
        self.close()
        loader = DataLoader(
            self.dataset,
            batch_sampler=Foreseen(coming, self._expected, self.numbers_of),
            collate_fn=self.collate,
            generator=generator_of(seed),
            **{**self.loader, "worker_init_fn": Begin.of(self.loader)},
        )
        with without_mpi():
            self._made = iter(loader)

    def close(self) -> None:
        """End the workers. They end as well when this reader is dropped, and with the process."""
        self._made = None
        self._expected.clear()

    def __getitem__(self, rows: Numbers) -> Batch:
        if self._made is None:
            return batches.to(self.device, self.direct(rows))
        if not (self._expected and np.array_equal(self._expected.popleft(), rows)):
            self.close()
            return self[rows]
        with WorkerLost.named():
            batch = next(self._made)
        return batches.to(self.device, batch if len(rows) else batches.mapped(lambda part: part[:0], batch))


class Foreseen:
    """The batch sampler of a DataLoader: the data set's numbers of each batch to come.

    Args:
        expected: to which the rows of each batch are appended as it is drawn.
    """

    def __init__(
        self, coming: Iterator[Numbers], expected: deque[Numbers], numbers_of: Callable[[Numbers], list[int]]
    ) -> None:
        self.coming, self.expected, self.numbers_of = coming, expected, numbers_of

    def __iter__(self) -> Iterator[list[int]]:
        for rows in self.coming:
            self.expected.append(rows)
            yield self.numbers_of(rows)


class Begin:
    """What a worker process does first: it makes sure that it ends with its rank.

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


def ahead(reader: R, coming: Iterator[Numbers], *seed: int) -> R:
    """Return the reader; if it has workers they read the batches of these rows from now on.

    Args:
        coming: the rows of each batch to come, in order; may be endless.
        seed: of the workers' random numbers, another one on each rank.
    """
    if foresee := getattr(reader, "foresee", None):
        foresee(coming, seed)
    return reader
