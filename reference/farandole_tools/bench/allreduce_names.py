"""The names of what `farandole bench allreduce` measures, without MPI and torch, which only its ranks import."""

from __future__ import annotations

from farandole.collectives.schedules import ALL_REDUCE_NAMES

IN_THE_WINDOW = "shared window"  # shared memory for vectors that live there, as gradients may
COPY, ADD = "copy", "add"
OURS = [*(name for name in ALL_REDUCE_NAMES if name != "mpi"), IN_THE_WINDOW]
