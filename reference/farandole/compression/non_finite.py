"""A NaN or an infinity in one rank's gradient: every rank detects it in the same step, and no state keeps it.

Error feedback would carry one NaN from step to step, and a compressor that leaves entries out could hide it. By the
contract of `compressor`, a vector that is not finite decodes to one that is not finite. All ranks decode bitwise the
same sum, so all reach the same decision without another message. Only if it is not finite do they exchange whose
gradient it was. A residual, velocity or basis stays as it was before the step.

The training ends with a message of one line. Where the cause may be a loss scale that is too large, the step is skipped
instead (`data_parallel.mixed_precision`). Without a loss scale the next gradient at the same parameters would be no
better.

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
    """A vector to be compressed has a NaN or an infinity."""


class Gather(Protocol):
    """MPI's Allgather on some communicator."""

    def __call__(self, own: NDArray[np.int64], everybodys: NDArray[np.int64], /) -> None: ...


def check_sum(total: Vector, own: Vector, ranks: int, all_gather: Gather) -> None:
    """Refuse a decoded sum that is not finite. Collective; only in that case does it exchange messages.

    Args:
        total: the decoded sum of all ranks' vectors, bitwise the same on all of them.
        own: the vector that this rank has encoded.

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
            "the sum of the ranks' gradients is not finite though each gradient is: entries are too large for this "
            "--compressor (the largest float16 is 65504); give a smaller --lr, or --compressor bfloat16"
        )
    subject, verb = ("gradients of ranks", "have") if len(found) > 1 else ("gradient of rank", "has")
    raise NotFinite(
        f"the {subject} {', '.join(map(str, found))} {verb} a NaN or an infinity "
        f"in {counts.sum()} of {len(found) * len(own)} entries: {ADVICE}"
    )


def check_own(vector: NDArray[np.floating], what: str = "its gradient") -> None:
    """Refuse a vector that is not finite before this rank sends it to a server or to neighbours.

    Args:
        what: names the vector in the message.

    Raises:
        NotFinite: the vector has a NaN or an infinity.
    """
    bad = vector.size - int(np.count_nonzero(np.isfinite(vector)))
    if bad:
        raise NotFinite(f"{what} has a NaN or an infinity in {bad} of {vector.size} entries: {ADVICE}")
