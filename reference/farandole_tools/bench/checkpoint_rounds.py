"""Checkpoints of one state by several systems, in turn: the program of the ranks.

    mpirun -n 4 python -m farandole_tools.bench.checkpoint_rounds FOLDER '[[BYTES, ROUNDS], …]'

Rank 0 prints, for each size, every system's seconds as JSON: {system: {"stall_s": […], "written_s": […]}}.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from mpi4py import MPI
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save

from farandole.data_parallel.process_group import join_process_group
from farandole.recovery import checkpoint
from farandole.recovery.checkpointer import Checkpointer
from farandole.recovery.state import TrainingState
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole_tools.bench.checkpoint import OURS, TIMES

TENSORS = 24  # as many layers
TIMEOUT_S = 120.0

State = dict[str, Tensor]


class System(Protocol):
    """A system that saves a state."""

    def begin(self, state: State) -> Callable[[], object]:
        """Return when the training can go on: what returns when the state is on the disk. Collective."""
        ...

    def read(self, state: State) -> State:
        """Return what was saved last, of tensors like those of `state`. Collective."""
        ...


class Ours:
    """Each rank writes its part in a thread."""

    def __init__(self, world: World, folder: Path) -> None:
        self.folder, self.checkpointer, self.saved = folder, Checkpointer(world, folder), 0

    def begin(self, state: State) -> Callable[[], object]:
        self.saved += 1
        self.checkpointer.save(TrainingState(self.saved, state))
        return self.checkpointer.finish

    def read(self, _: State) -> State:
        found, troubles = checkpoint.newest(self.folder)
        assert found, troubles
        return found.shared


class Dcp:
    """torch's distributed checkpoint, into a new folder each time."""

    def __init__(self, folder: Path, *, asynchronous: bool) -> None:
        self.folder, self.asynchronous, self.saved = folder, asynchronous, 0

    def begin(self, state: State) -> Callable[[], object]:
        self.saved += 1
        writer = FileSystemWriter(self.folder / str(self.saved))
        if self.asynchronous:
            written = async_save(state, storage_writer=writer)
            assert isinstance(written, Future)
            return written.result
        save(state, storage_writer=writer)
        return lambda: None

    def read(self, state: State) -> State:
        found = {name: torch.empty_like(each) for name, each in state.items()}
        load(found, storage_reader=FileSystemReader(self.folder / str(self.saved)))
        return found


class ByRank0:
    """torch.save of everything, by one rank."""

    def __init__(self, world: World, folder: Path) -> None:
        self.rank, self.file = world.rank, folder / "state.pt"

    def begin(self, state: State) -> Callable[[], object]:
        if self.rank == 0:
            self.file.parent.mkdir(exist_ok=True)
            with self.file.open("wb") as stream:
                torch.save(state, stream)
                stream.flush()
                os.fsync(stream.fileno())
        return lambda: None

    def read(self, _: State) -> State:
        found: State = torch.load(self.file, weights_only=True)
        return found


def timed(world: World, system: System, state: State) -> dict[str, float]:
    """Save once. Collective; the slowest rank's seconds from a common start."""
    world.control.Barrier()
    start = time.perf_counter()
    finish = system.begin(state)
    stall = time.perf_counter() - start
    finish()
    seconds = np.array([stall, time.perf_counter() - start])
    world.control.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
    return dict(zip(TIMES, seconds.tolist(), strict=True))


def measure(world: World, folder: Path, nbytes: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return each system's seconds, round after round. Collective.

    What a system has written is read back and compared before the rounds and after them.
    """
    systems: dict[str, System] = {
        OURS: Ours(world, folder / "ours"),
        "torch DCP async": Dcp(folder / "dcp-async", asynchronous=True),
        "torch DCP": Dcp(folder / "dcp", asynchronous=False),
        "torch.save by rank 0": ByRank0(world, folder / "by-rank-0"),
    }
    numbers = nbytes // 4 // TENSORS
    state = {f"layer {layer}": torch.full((numbers,), 1.0 + layer) for layer in range(TENSORS)}
    found: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in TIMES} for name in systems}
    for name, system in systems.items():
        system.begin(state)()
        world.control.Barrier()
        check(name, system, state)
    for number in range(rounds):
        for tensor in state.values():
            tensor += 1 + number
        for name, system in systems.items():
            for kind, seconds in timed(world, system, state).items():
                found[name][kind].append(seconds)
    for name, system in systems.items():
        check(name, system, state)
    return found


def check(name: str, system: System, state: State) -> None:
    """Assert that the system reads back the state. Collective."""
    again = system.read(state)
    assert again.keys() == state.keys(), f"{name} has other tensors"
    assert all(torch.equal(again[each], state[each]) for each in state), f"{name} has other values"


def main(folder: Path, cases: list[tuple[int, int]]) -> None:
    with World.start(RunOptions(device="cpu")) as world:
        join_process_group(world, TIMEOUT_S, "gloo")
        found = []
        for nbytes, rounds in cases:
            its = folder / str(nbytes)
            if world.rank == 0:
                its.mkdir()
            world.control.Barrier()
            found.append(measure(world, its, nbytes, rounds))
            world.control.Barrier()
            if world.rank == 0:
                shutil.rmtree(its)
    if world.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [(nbytes, rounds) for nbytes, rounds in json.loads(sys.argv[2])])
