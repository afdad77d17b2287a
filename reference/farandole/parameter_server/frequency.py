"""Divide the rows of a table between the servers (the centre) and the workers, by measured updates.

Document 000's hybrid keeps the hot parameters at the centre and the others with the clients, to save communication.
With sparse samples this loses nothing. A row that only one worker's samples use is read and updated by that worker
alone, so it can be stored there, and training takes the same steps as with all rows at the centre. Rows that several
workers update are shared: they stay at the centre, or are stored at the worker that updates them most, from which the
others fetch them (`cold_rows`). A hot row is always at the centre. (In Parallax, Kim et al. 2019, too, a parameter's
sparsity decides how it is synchronised.)

A worker counts over one epoch of its samples. Which rows it touches at all does not depend on how
the samples are batched; how often does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.errors import UsageError

CENTRE = -1


@dataclass(frozen=True)
class UpdateCounts:
    """The number of updates of each row by each worker.

    Attributes:
        counts: int64, (workers, rows): in how many of the worker's batches its gradient touches the row.
        batches: int64, (workers,): how many batches each worker has counted.
    """

    counts: NDArray[np.int64]
    batches: NDArray[np.int64]

    @classmethod
    def of(cls, touched: Sequence[Iterable[NDArray[np.int64]]], rows: int) -> UpdateCounts:
        """Count all workers' batches: for each worker, for each batch, the rows it touches, each once."""
        counted = [count_updates(batches, rows) for batches in touched]
        return cls(np.array([counts for counts, _ in counted]), np.array([batches for _, batches in counted]))

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """Updates per batch, over all workers: the part of all batches that touch the row, 0 to 1, (rows,)."""
        return np.asarray(self.counts.sum(axis=0) / max(self.batches.sum(), 1))


@dataclass(frozen=True)
class Division:
    """Where each row lives.

    Attributes:
        owner: int64, (rows,): the number of a worker, or CENTRE.
    """

    owner: NDArray[np.int64]

    @property
    def centre_rows(self) -> NDArray[np.int64]:
        """Return the rows at the centre, ascending."""
        return np.flatnonzero(self.owner == CENTRE)

    def local_rows(self, worker: int) -> NDArray[np.int64]:
        """Return the rows that live with this worker, ascending."""
        return np.flatnonzero(self.owner == worker)


def count_updates(touched: Iterable[NDArray[np.int64]], rows: int) -> tuple[NDArray[np.int64], int]:
    """Return one worker's counts, (rows,), and how many batches they come from.

    Args:
        touched: for each batch, the rows it touches, each once.
    """
    counts = np.zeros(rows, dtype=np.int64)
    batches = 0
    for batch in touched:
        counts[batch] += 1
        batches += 1
    return counts, batches


def divide(counts: UpdateCounts, hot: float = math.inf, *, shared_at_clients: bool = False) -> Division:
    """Give each row an owner: the one worker that updates it, or else the centre.

    Args:
        hot: rows updated more often than this, in updates per batch over all workers (0 to 1), live at
            the centre, whichever worker updates them. From 1 upwards there are no such rows; at 0 every row is
            at the centre, as in a plain parameter server.
        shared_at_clients: whether a row that several workers update, and that is not hot, lives with the one that
            updates it most (in a tie, with the lowest number).

    Returns:
        The division; a row that no worker updates is at the centre.

    Raises:
        UsageError: a threshold below 0, or not a number.
    """
    if not hot >= 0:
        raise UsageError(f"--hot {hot}: must be 0 or more updates per batch")
    updaters = (counts.counts > 0).sum(axis=0)
    local = ((updaters == 1) | (shared_at_clients & (updaters > 1))) & (counts.frequencies <= hot)
    return Division(np.where(local, counts.counts.argmax(axis=0), CENTRE))


def predicted_rows_sent(counts: UpdateCounts, division: Division | None = None) -> int:
    """Rows that travel while all counted batches are processed: one pull and one push for each update of a row.

    Args:
        division: where rows live; a worker's updates of its own rows cause no traffic. None: all rows travel.
    """
    total = 2 * int(counts.counts.sum())
    if division is None:
        return total
    return total - 2 * sum(
        int(counts.counts[worker, division.local_rows(worker)].sum()) for worker in range(len(counts.batches))
    )
