"""A stream's samples: each used once in a pass, by one rank, in batches that do not depend on the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import IterableDataset

from farandole.data.read_ahead import ahead
from farandole.data.samples import samples_of
from farandole.data.shares import equal_shares
from farandole.data.stream import Stream, described, in_batches

CPU = torch.device("cpu")


class Numbers(IterableDataset[int]):
    def __init__(self, samples: range) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[int]:
        return iter(self.samples)


class InParts(Numbers):
    def shard(self, num_shards: int, index: int) -> InParts:
        return InParts(self.samples[index::num_shards])


def steps_of(dataset: Any, batch: int, ranks: int, steps: int, **loader: Any) -> list[list[list[int]]]:
    """Return the samples of each rank in each step."""
    shares, of_rank = equal_shares(batch, ranks), []
    stream = in_batches(samples_of(dataset, loader=loader), batch, ranks)
    for rank, share in enumerate(shares):
        rows = np.arange(share)
        reader = ahead(stream.share(shares, rank).on(CPU), iter([rows] * steps), 0)
        of_rank.append([reader[rows].tolist() for _ in range(steps)])
    return [list(step) for step in zip(*of_rank, strict=True)]


@given(st.integers(1, 30), st.integers(1, 5), st.integers(0, 6))
def test_the_ranks_parts_make_up_the_stream(samples: int, ranks: int, more: int) -> None:
    steps = steps_of(Numbers(range(samples)), ranks + more, ranks, 5)
    in_order = [sample for step in steps for part in step for sample in part]
    assert in_order == [number % samples for number in range(5 * (ranks + more))]


def test_a_worker_reads_the_same() -> None:
    assert steps_of(Numbers(range(7)), 5, 2, 4, num_workers=1) == steps_of(Numbers(range(7)), 5, 2, 4)


def test_a_stream_may_divide_itself() -> None:
    steps = steps_of(InParts(range(12)), 4, 2, 3)
    assert steps == [[[0, 2], [1, 3]], [[4, 6], [5, 7]], [[8, 10], [9, 11]]]


def test_a_rank_without_a_part_is_none_of_those_that_divide_it() -> None:
    stream = in_batches(samples_of(InParts(range(12))), 4, 2)
    parts = [stream.share([0, 2, 2], rank) for rank in range(3)]
    assert len(parts[0]) == 0
    assert [list(part.dataset) for part in parts[1:]] == [list(range(0, 12, 2)), list(range(1, 12, 2))]


def test_the_record_says_how_it_is_divided() -> None:
    ours, own = Stream(Numbers(range(3))), Stream(InParts(range(3)))
    assert described(ours, [2, 1]) == {"divided": "by position in the batch", "samples_of_a_batch": [2, 1]}
    assert described(own, [2, 1])["divided"] == "by the data set's shard(num_shards, index)"


def test_other_samples_stay_as_they_are() -> None:
    samples = samples_of(np.zeros(3))
    assert in_batches(samples, 1, 5) is samples


@pytest.mark.parametrize("use", [len, lambda stream: in_batches(stream, 2, 3)])
def test_what_needs_numbers_is_refused(use: Any) -> None:
    with pytest.raises(Exception, match=r"IterableDataset has no sample number|a sample for each of the 3 ranks"):
        use(samples_of(Numbers(range(3))))
