"""Checkpoints that are written while training continues.

Saving has two parts. The snapshot, a copy in memory, must be of one step, so training waits for it. A thread writes it
to the disk while training changes the original (Mohan et al., "CheckFreq", 2021). Writing in the foreground
is there to compare.

Before a rank writes to a slot, all ranks wait until the previous checkpoint, in the other slot, is on the disk of all.
Otherwise a fast rank could overwrite its part of the only complete checkpoint.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from torch import Tensor

from farandole.errors import PlainError
from farandole.recovery import checkpoint
from farandole.recovery.snapshot import Snapshot
from farandole.recovery.state import TrainingState
from farandole.runtime.world import World

NONE = -1  # slot
SIGN_OF_LIFE_S = 1.0  # while a rank waits for its own disk, which may take longer than ranks wait for each other


class CheckpointFailed(PlainError):
    """A checkpoint could not be written."""


def newest_slot(world: World, folder: Path) -> int | None:
    """Return the slot of the newest whole checkpoint, the same on all ranks. Collective.

    The rank that leads prints a line for each damaged slot.
    """
    slot = np.array([NONE])
    if world.control.rank == 0:
        found, troubles = checkpoint.newest(folder)
        for trouble in troubles:
            print(trouble, file=sys.stderr)
        slot[0] = found.slot if found else NONE
    world.control.Bcast(slot)
    return None if slot[0] == NONE else int(slot[0])


class Checkpointer:
    """Writes one rank's part of every checkpoint.

    Args:
        folder: of the slots; every rank must reach it.
        by: "ranks": each writes its part; "rank-0": it writes all, and receives what is the others' own.
        asynchronous: write in a thread.
        occupied: the slot that holds the newest complete checkpoint, not to be written first.
    """

    def __init__(
        self, world: World, folder: Path, *, by: str = "ranks", asynchronous: bool = True, occupied: int | None = None
    ) -> None:
        self.world, self.folder, self.by, self.asynchronous = world, folder, by, asynchronous
        self.slot = 0 if occupied is None else 1 - occupied
        self.writers = world.comm.size if by == "ranks" else 1
        self.writes = world.comm.rank < self.writers
        self._snapshot: Snapshot | None = None
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    def save(self, state: TrainingState) -> float:
        """Save `state`; return for how many seconds the slowest rank stood still. Collective.

        Raises:
            CheckpointFailed: this checkpoint, or the previous one, could not be written.
        """
        start = time.perf_counter()
        with self.world.communicate("checkpoint"):
            self.finish()
            self._keep(state)
            description = checkpoint.describe(state, self.world.comm.size, self.world.comm.rank, self.writers)
            if self.writes:
                self._writing = self._thread.submit(self._write, self.slot, description)
            if not self.asynchronous:
                self.finish()
            self.slot = 1 - self.slot
            cost = np.array([time.perf_counter() - start])
            with self.world.comm.waiting("cost of the checkpoint", -1):
                self.world.control.Allreduce(MPI.IN_PLACE, cost, MPI.MAX)
        return float(cost[0])

    def finish(self) -> None:
        """Return when the last checkpoint is on the disk of all ranks. Collective.

        Raises:
            CheckpointFailed: it is not.
        """
        trouble = ""
        self._wait_for_the_disk()
        if self._writing is not None:
            try:
                self._writing.result()
            except OSError as error:
                trouble = f"{error.strerror or error}"
            self._writing = None
        failed = np.array([bool(trouble)], dtype=np.int32)
        with self.world.comm.waiting("the checkpoint before", -1):
            self.world.control.Allreduce(MPI.IN_PLACE, failed, MPI.MAX)
        if trouble:
            raise CheckpointFailed(f"no checkpoint could be written in {self.folder}: {trouble}")
        if failed[0]:
            raise CheckpointFailed(f"another rank could not write its part of the checkpoint in {self.folder}")

    def abandon(self) -> None:
        """Return when the thread has ended: the ranks have changed, and another checkpointer begins."""
        self._wait_for_the_disk()
        self._thread.shutdown(wait=True)

    def _wait_for_the_disk(self) -> None:
        while self._writing is not None and not wait([self._writing], SIGN_OF_LIFE_S).done:
            self.world.shows_life()

    def _keep(self, state: TrainingState) -> None:
        """Copy this rank's part."""
        own = self._own(state.own)
        if self.writes:
            tensors = checkpoint.part(state, own, self.world.comm.rank, self.writers)
            if self._snapshot:
                self._snapshot.take(tensors)
            else:
                self._snapshot = Snapshot(tensors)

    def _own(self, own: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
        """Return, by rank, the own tensors that this writer keeps: its own, or on rank 0 those of all ranks."""
        if self.writers == self.world.comm.size:
            return {self.world.comm.rank: dict(own)}
        everyones: dict[int, dict[str, Tensor]] = {rank: {} for rank in range(self.world.comm.size)}
        for name in sorted(own):  # as large on all ranks
            tensor = own[name].contiguous()
            gathered = torch.empty((self.world.comm.size, *tensor.shape), dtype=tensor.dtype)
            with self.world.comm.waiting("the ranks' own part of the checkpoint", 0):
                self.world.comm.mpi.Gather(tensor.numpy(), gathered.numpy() if self.world.comm.rank == 0 else None)
            for rank, its in enumerate(gathered):
                everyones[rank][name] = its
        return everyones

    def _write(self, slot: int, description: Mapping[str, Any]) -> None:
        assert self._snapshot
        checkpoint.write(self.folder, slot, self._snapshot, description)
