"""Worker processes that read and collate a rank's next batches while it trains on the present one.

The methods' samplers are deterministic, so a copy of a sampler tells which rows come next. The workers are those of
torch's `DataLoader`, whose batch sampler is that copy. A batch has the same bits as without workers.

    reader = ahead(shard.on(device), coming, seed)
    batch = reader[rows]                  # the next of `coming`: made already, or waited for

Where other rows are asked for than were foreseen, as after a death that divides the batches anew, the workers end, and
the training process reads until `ahead` is called again.

Cost: num_workers · prefetch_factor batches of memory a rank; a few milliseconds a worker to fork it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from farandole.data import batch as batches
from farandole.data import workers
from farandole.data.batch import Batch

Numbers = NDArray[np.intp]
R = TypeVar("R")


class ReadAhead:
    """A reader whose next batches worker processes make.

    Args:
        dataset: has `__getitem__`.
        collate: makes a batch of a list of samples.
        numbers_of: rows → the data set's numbers of these samples, at least one.
        direct: makes the batch of some rows in this process.
        loader: as `workers.checked` returns it, not empty.
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
        foreseen = Foreseen(coming, self._expected, self.numbers_of)
        self._made = workers.started(self.dataset, self.loader, seed, batch_sampler=foreseen, collate_fn=self.collate)

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
        batch = workers.next_batch(self._made, self.loader["timeout"])
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


def ahead(reader: R, coming: Iterator[Numbers], *seed: int) -> R:
    """Return the reader; if it has workers they read the batches of these rows from now on.

    Args:
        coming: the rows of each batch to come, in order; may be endless.
        seed: of the workers' random numbers, another one on each rank.
    """
    if foresee := getattr(reader, "foresee", None):
        foresee(coming, seed)
    return reader
