"""Audit of all-reduced gradients (梯度校验): is the sum right, and do all ranks have the same?

A bit that flips in a message, or in the memory of a host or a card, need not end a training: all copies of the model
may move by a wrong gradient, or one copy may move away from the others, and nothing looks wrong but the loss (silent
data corruption, 静默数据损坏). After each all-reduce of g = Σ_r x_r the ranks therefore exchange four numbers each:

    Σ_i x_r[i], Σ_i |x_r[i]|    of what the rank has contributed
    Σ_i g[i], CRC-32 of g       of what it has received

1. All checksums of g must be equal. This finds what happened after the sum was formed, down to a single bit.
2. Σ_i g[i] must equal Σ_r Σ_i x_r[i] but for rounding: P·ε·Σ_r Σ_i |x_r[i]| with P ranks and the vector's precision ε.
   This finds what happened while it was formed, on all copies alike, if it is larger than what rounding may do.

What a rank computed wrongly before it contributed it passes: that takes a second computation. Cost: four float64 per
rank and all-reduce, which the record's bytes do not contain; four passes over the vector, and memory for a copy of it.
Sources: Huang & Abraham, "Algorithm-based fault tolerance for matrix operations", 1984; Dixit et al., "Silent data
corruptions at scale", 2021.
"""

from __future__ import annotations

import zlib
from collections import Counter

import numpy as np

from farandole.collectives.executor import AllReduce
from farandole.errors import PlainError
from farandole.runtime.communicator import Buffer, Communicator


class WrongSum(PlainError):
    """An audit has found that an all-reduced gradient is not the sum of the ranks' gradients, or not equal on all."""


def audited(all_reduce: AllReduce) -> AllReduce:
    """Return an all-reduce that checks each of its results, together with all ranks.

    Raises:
        WrongSum: from the all-reduce, on all ranks.
    """

    def reduce(comm: Communicator, buffer: Buffer) -> None:
        contributed = [buffer.sum(dtype=np.float64), np.abs(buffer).sum(dtype=np.float64)]
        all_reduce(comm, buffer)
        received = [buffer.sum(dtype=np.float64), zlib.crc32(buffer.data)]
        every = np.empty((comm.size, 4))
        with comm.waiting("the sums of an audit", -1):
            comm.mpi.Allgather(np.array([*contributed, *received]), every)
        check_equal(every[:, 3], comm.members)
        check_sum(every, float(np.finfo(buffer.dtype).eps))

    return reduce


def check_equal(checksums: np.ndarray, ranks: list[int]) -> None:
    """Compare the ranks' checksums of the sum.

    Raises:
        WrongSum: they differ; it names the ranks whose checksum is not the most frequent.
    """
    most, number = Counter(checksums.tolist()).most_common(1)[0]
    if number == len(ranks):
        return
    others = [rank for rank, checksum in zip(ranks, checksums.tolist(), strict=True) if checksum != most]
    same = [rank for rank in ranks if rank not in others]
    raise WrongSum(f"--audit: {_named(others)} received another sum of gradients than {_named(same)}")


def check_sum(every: np.ndarray, precision: float) -> None:
    """Compare the sum's entries, added up, with what the ranks contributed.

    A sum that is not finite passes where a contribution is not: loss scaling or the loss tell of it.

    Args:
        every: per rank the four numbers above.
        precision: ε of the vector.

    Raises:
        WrongSum: they differ by more than rounding may do.
    """
    expected, found = float(every[:, 0].sum()), float(every[0, 2])
    bound = len(every) * precision * float(every[:, 1].sum())
    if np.isfinite(expected) and not abs(found - expected) <= bound:
        raise WrongSum(
            f"--audit: the entries of the summed gradient add up to {found:.9g}, those of the ranks' own gradients to "
            f"{expected:.9g}: more apart than rounding may do, {bound:.1g}"
        )


def _named(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
