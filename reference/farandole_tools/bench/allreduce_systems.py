"""All that `farandole bench allreduce` measures: our all-reduces, others', and what the memory gives.

Each is made for one length of vector, and then used again and again, as a training does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.distributed as dist

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.shared_memory import SharedVectors
from farandole.data_parallel.process_group import join_process_group
from farandole.runtime.communicator import Buffer
from farandole.runtime.world import World
from farandole_tools.bench.allreduce_names import ADD, COPY, IN_THE_WINDOW


@dataclass(frozen=True)
class System:
    """One way to sum up a vector of each rank.

    Attributes:
        vector: this rank's.
        work: what is timed. Collective.
        sums: it is an all-reduce, and its sums are to be right; otherwise it only uses the memory.
        end: gives back what it has taken. Collective.
    """

    vector: Buffer
    work: Callable[[], object]
    sums: bool = True
    end: Callable[[], object] = lambda: None


def make(world: World, name: str, length: int) -> System:
    """Return the system of that name, for float32 vectors of `length`. Collective."""
    if name == IN_THE_WINDOW:
        vectors = SharedVectors(world.comm, length)
        return System(vectors.own, vectors.all_reduce, end=vectors.free)
    vector = np.zeros(length, np.float32)
    if name in ALL_REDUCES:
        return System(vector, partial(ALL_REDUCES[name], world.comm, vector))
    other = np.zeros_like(vector)
    if name == COPY:
        return System(vector, partial(np.copyto, vector, other), sums=False)
    if name == ADD:
        return System(vector, partial(np.add, vector, other, out=vector), sums=False)
    return {"Horovod": _horovod, "Gloo": _gloo}[name](world, vector)


def _horovod(_: World, vector: Buffer) -> System:
    import horovod.torch as hvd

    hvd.init()
    tensor = torch.from_numpy(vector)
    return System(vector, partial(hvd.allreduce_, tensor, op=hvd.Sum, name=f"{len(vector)}"))


def _gloo(world: World, vector: Buffer) -> System:
    join_process_group(world, timeout_s=60.0)
    return System(vector, partial(dist.all_reduce, torch.from_numpy(vector)))
