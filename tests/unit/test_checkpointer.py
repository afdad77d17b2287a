"""A rank waits for its disk as long as necessary, and sends heartbeats meanwhile. Whole checkpoints: tests/parallel."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from mpi4py import MPI

from farandole.recovery import checkpoint, checkpointer
from farandole.recovery.checkpoint_part import Damaged
from farandole.recovery.checkpointer import Checkpointer, newest_slot
from farandole.recovery.on_disk import OnDisk
from farandole.recovery.snapshot import Snapshot
from farandole.recovery.state import TrainingState
from farandole.runtime.world import World


class SlowDisk:
    """A world of one rank, whose disk completes a write after the rank's third heartbeat."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.signs, self.watched, self.ready = 0, 0, threading.Event()
        write = checkpoint.write

        def slowly(*arguments: Any) -> None:
            assert self.ready.wait(30)
            write(*arguments)

        monkeypatch.setattr(checkpoint, "write", slowly)
        monkeypatch.setattr(checkpointer, "SIGN_OF_LIFE_S", 0.01)
        comm = SimpleNamespace(rank=0, size=1, waiting=self.waiting)
        self.world = cast(
            World,
            SimpleNamespace(
                comm=comm,
                control=MPI.COMM_SELF,
                rank=0,
                shows_life=self.shows_life,
                communicate=lambda name: self.waiting("", 0),
            ),
        )

    @contextmanager
    def waiting(self, call: str, peer: int) -> Iterator[None]:
        self.watched += bool(call)
        yield
        self.watched -= bool(call)

    def shows_life(self) -> None:
        assert not self.watched, "--wait-timeout is for waiting for others"
        self.signs += 1
        if self.signs == 3:
            self.ready.set()


@pytest.mark.parametrize("end", [Checkpointer.finish, Checkpointer.abandon])
def test_a_rank_that_waits_for_its_own_disk_has_all_time_and_shows_that_it_lives(
    end: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = SlowDisk(monkeypatch)
    writing = Checkpointer(disk.world, tmp_path)
    writing.save(TrainingState(5, {"parameters": torch.arange(3.0)}))
    assert newest_slot(disk.world, tmp_path) is None
    end(writing)
    assert disk.signs >= 3
    assert newest_slot(disk.world, tmp_path) == 0
    assert checkpoint.read(tmp_path, 0).step == 5


def test_parts_that_different_groups_have_written_do_not_fit_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Same step and number of workers, but other workers: a death had interrupted the first attempt."""
    disk = SlowDisk(monkeypatch)
    disk.ready.set()
    own = {"parameters": torch.arange(4.0)}
    for change in (1, 2):
        kept = OnDisk(disk.world, tmp_path / f"{change}", 5)
        kept.save(TrainingState(5, own), change)
        kept.abandon()
    parts = []
    for change in (1, 2):
        saved = checkpoint.read(tmp_path / f"{change}" / checkpoint.CHECKPOINTS, 0)
        parts.append(TrainingState(saved.step, saved.shared, {}, saved.values))
    for rank, state in enumerate(parts):
        tensors = checkpoint.part(state, {}, rank, 2)
        checkpoint.write(tmp_path / "mixed", 0, Snapshot(tensors), checkpoint.describe(state, 2, rank, 2))
    with pytest.raises(Damaged, match="rank-1 is of values"):
        checkpoint.read(tmp_path / "mixed", 0)
