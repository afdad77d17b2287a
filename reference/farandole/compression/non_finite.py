"""A NaN or an infinity in one rank's gradient: every rank finds it in the same step, and no memory keeps it.

Error feedback would carry one NaN from step to step, and a compressor that leaves entries out could hide it. Here
whatever a rank encodes of a vector that is not finite decodes to one that is not finite (the contract of
`compressor`). All ranks decode the same sum, to the bit, so all come to the same decision without another message or
byte; only then do they exchange who it was. A residual, velocity or basis stays as it was before the step.

The training ends with one line. A step may be left out instead where the cause is a loss scale that is too large, as
`data_parallel.mixed_precision` does; without one the next gradient of the same parameters would be no better.

Cost: one pass over the decoded sum. Source of the distinction: Micikevicius et al., "Mixed precision training", 2018,
section 3.2.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from farandole.compression.compressor import Vector
from farandole.errors import PlainError

ADVICE = "look at that rank's data and loss, or give a smaller --lr"


class NotFinite(PlainError):
    """Something that was to be compressed has a NaN or an infinity."""


class Gather(Protocol):
    """MPI's Allgather on some communicator."""

    def __call__(self, own: NDArray[np.int64], everybodys: NDArray[np.int64], /) -> None: ...


def check_sum(total: Vector, own: Vector, ranks: int, all_gather: Gather) -> None:
    """Refuse a decoded sum that is not finite. Collective in that case, and without a message in any other.

    Args:
        total: the sum of what all ranks have encoded, the same bits on all of them.
        own: what this rank has encoded.

    Raises:
        NotFinite: on all ranks, with the same message.
    """
    if np.isfinite(total).all():
        return
    counts = np.zeros(ranks, np.int64)
    all_gather(np.array([np.count_nonzero(~np.isfinite(own))]), counts)
    found = np.flatnonzero(counts)
    if not len(found):
        raise NotFinite(
            "the sum of the ranks' gradients is not finite though each gradient is: numbers are too large for this "
            "--compressor (float16 ends at 65504); give a smaller --lr, or --compressor bfloat16"
        )
    several = "gradients of ranks" if len(found) > 1 else "gradient of rank"
    raise NotFinite(
        f"the {several} {', '.join(map(str, found))} has a NaN or an infinity in {counts.sum()} of {len(own)} entries: "
        f"{ADVICE}"
    )


def check_own(vector: NDArray[np.floating], what: str = "its gradient") -> None:
    """Refuse what this rank alone is about to encode and send, to a server or to neighbours.

    Raises:
        NotFinite: it is not finite.
    """
    bad = vector.size - int(np.count_nonzero(np.isfinite(vector)))
    if bad:
        raise NotFinite(f"{what} has a NaN or an infinity in {bad} of {vector.size} entries: {ADVICE}")
