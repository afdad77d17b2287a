"""A stream: a data set of torch that yields its samples one after another, and has no sample number i.

Methods that need no more than the next batch train it (`in_batches`). Sample g of the stream, counted through all its
passes, belongs to batch g // B, and of each batch every rank has its part, in order:

    rank r        the samples with start_r ≤ g mod B < start_r + share_r;   Σ_r share_r = B

So every sample is used by exactly one rank, a step's batch does not depend on the number of ranks, and the ranks take
the same number of steps without a message. When the stream ends it begins again.

Each rank passes over the whole stream and keeps its part of it. If that costs too much the data set may divide itself:
a method ``shard(num_shards, index)`` returns the samples of one part, as that of the streams of Hugging Face's
`datasets`. Then each rank goes through its own part, and begins it again when it ends.

Cost: every rank reads all samples; or 1/P of them with ``shard``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, default_collate

from farandole.data import batch as batches
from farandole.data import workers
from farandole.data.batch import Batch
from farandole.errors import UsageError

TAKEN_BY = "sync_sgd, local_sgd, compressed_sgd, dpsgd, ad_psgd, parameter_server and their variants"


@dataclass(frozen=True)
class Stream:
    """The samples of a stream, as far as a method can ask for them: `Samples` that have no numbers.

    Args:
        dataset: yields the same samples in the same order on every rank.
        collate: makes a batch of a list of samples; None: torch's `default_collate`.
        loader: arguments of a DataLoader with one worker (`workers.checked`); empty: no worker.
        batch: samples of a step, over all ranks; None: not known, and the samples cannot be used.
        part: the positions in a batch that are this rank's.

    Raises:
        UsageError: more than one worker, which would not keep the order; a use that needs numbers.
    """

    dataset: Any
    collate: Callable[[Sequence[Any]], Batch] | None = None
    loader: Mapping[str, Any] = field(default_factory=dict)
    batch: int | None = None
    part: range = range(0)

    def __post_init__(self) -> None:
        if self.loader.get("num_workers", 0) > 1:
            raise UsageError("loader= has num_workers, and a stream is read in its order: give 0 or 1")

    def __len__(self) -> int:
        if self.batch is None:
            raise UsageError(
                "an IterableDataset has no sample number i, which this method needs: "
                f"train it by {TAKEN_BY}, or give a map-style Dataset (__len__ and __getitem__) or arrays"
            )
        return len(self.part)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Stream:
        assert isinstance(rows, slice), "the parts of a stream are contiguous"
        return replace(self, part=self.part[rows])

    @property
    def divides_itself(self) -> bool:
        return callable(getattr(self.dataset, "shard", None))

    def share(self, shares: Sequence[int], rank: int) -> Stream:
        """Return a rank's part, of `shares[rank]` samples a batch."""
        first = sum(shares[:rank])
        own = self[first : first + shares[rank]]
        if not (self.divides_itself and shares[rank]):
            return own
        index, parts = sum(map(bool, shares[:rank])), sum(map(bool, shares))
        divided = self.dataset.shard(num_shards=parts, index=index)
        return replace(own, dataset=divided, batch=len(own), part=range(len(own)))

    def on(self, device: torch.device) -> StreamReader:
        return StreamReader(self, device)


def in_batches(samples: Any, batch: int, ranks: int) -> Any:
    """Return the samples; a stream as the samples of one batch, again and again.

    Args:
        ranks: that share each batch.

    Raises:
        UsageError: a stream's batch has no sample for one of the ranks.
    """
    if not isinstance(samples, Stream):
        return samples
    if batch < ranks:
        raise UsageError(f"--batch {batch}: a stream's batch needs a sample for each of the {ranks} ranks")
    return replace(samples, batch=batch, part=range(batch))


def described(stream: Stream, shares: Sequence[int]) -> dict[str, Any]:
    """Return how a stream is divided, for the record."""
    divided = "by the data set's shard(num_shards, index)" if stream.divides_itself else "by position in the batch"
    return {"divided": divided, "samples_of_a_batch": list(shares)}


class StreamReader:
    """Yields the samples of a stream's part, batch by batch, whatever the rows that are asked for."""

    def __init__(self, stream: Stream, device: torch.device) -> None:
        self.stream, self.device = stream, device
        self.samples = _chained(stream)
        self._made: Iterator[Batch] | None = None

    def foresee(self, coming: Iterator[NDArray[np.intp]], seed: Sequence[int]) -> None:
        """Have the worker, if there is to be one, read ahead; all batches have the size of the part."""
        if not (self.stream.loader and len(self.stream.part)):
            return
        self._made = workers.started(Parts(self.stream), self.stream.loader, seed, batch_size=None)

    def __getitem__(self, rows: NDArray[np.intp]) -> Batch:
        if self._made is None:
            return batches.to(self.device, _collated(self.stream, islice(self.samples, len(rows))))
        assert len(rows) == len(self.stream.part)
        return batches.to(self.device, workers.next_batch(self._made, self.stream.loader["timeout"]))


class Parts(IterableDataset[Batch]):
    """The parts of all batches, for a worker: it collates them as well."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[Batch]:
        samples = _chained(self.stream)
        while True:
            yield _collated(self.stream, islice(samples, len(self.stream.part)))


def _collated(stream: Stream, samples: Iterator[Any]) -> Batch:
    return (stream.collate or default_collate)(list(samples))


def _chained(stream: Stream) -> Iterator[Any]:
    """Yield the part's samples of one pass after another.

    Raises:
        UsageError: a pass without any sample.
    """
    assert stream.batch
    position = count()
    while True:
        is_empty = True
        for sample in stream.dataset:
            is_empty = False
            if next(position) % stream.batch in stream.part:
                yield sample
        if is_empty:
            raise UsageError("the IterableDataset yields no sample")
