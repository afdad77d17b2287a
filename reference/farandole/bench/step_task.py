"""What `farandole bench step` trains, and in which ways of ours."""

from __future__ import annotations

from itertools import pairwise

DEPTH, SHAPE, CLASSES = 3, (1, 28, 28), 10
SAMPLES = 8  # of each rank
LR = 0.01
BUCKET_BYTES = 4 << 20
# Which all-reduce, and whether it overlaps.
OURS = {
    "ring": ("ring", False),
    "MPI_Allreduce": ("mpi", False),
    "window": ("window", False),
    "ring, overlapped": ("ring", True),
    "window, overlapped": ("window", True),
}


def parameters(width: int) -> int:
    """How many a model has whose hidden layers are so wide."""
    widths = [28 * 28, *[width] * DEPTH, CLASSES]
    return sum(before * after + after for before, after in pairwise(widths))
