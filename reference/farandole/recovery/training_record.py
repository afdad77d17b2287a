"""The files of a training that may lose ranks, written by each rank: the record, and the event log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from farandole.data_parallel.loss_log import LossLog
from farandole.recovery.event_log import EventLog, RankWitness
from farandole.recovery.events import What
from farandole.runtime.communicator import broadcast_text
from farandole.runtime.options import RunOptions
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


class TrainingRecord:
    """One rank's part of it. Made by all ranks together; by a joining process alone.

    Attributes:
        recorder: measures on every rank, and writes on the one that leads.
        folder: of the record; every rank must be able to read it.
        event_log: of all starts of this training.
    """

    def __init__(self, world: World, scenario: str, options: RunOptions) -> None:
        self.world = world
        self.recorder = Recorder(world, scenario, options)
        if world.joining:
            self.folder = Path(world.joining.greeting["folder"])
        else:
            self.folder = Path(broadcast_text(world.control, str(self.recorder.folder)))
        self.event_log = EventLog(self.folder / "logbook.jsonl")
        world.witness = RankWitness(self.event_log, world.rank)

    @property
    def leads(self) -> bool:
        """Whether this rank, one of those that train, is the one that writes the record and decides for all."""
        return self.world.control.rank == 0

    def note(self, what: What, step: int, kind: str = "") -> None:
        """Write an event of this rank to the event log, if it leads."""
        if self.leads:
            self.event_log.write(what, self.world.rank, step, kind)

    def take_over(self, losses: LossLog, step: int, first_line: int) -> None:
        """Have the coordinator, perhaps a new one, continue the record of the previous one at `step`. Collective.

        Args:
            first_line: the step from which lines are written anew.
        """
        told = np.empty((self.world.control.size, 2))  # a joining process has no loss, and may have to write it
        self.world.control.Allgather(np.array([losses.following, losses.last]), told)
        losses.last = float(max(told.tolist())[1])  # that of the worker that has come furthest
        written = np.zeros(1, dtype=np.int64)
        if self.leads:
            written[0] = min(first_line, self.recorder.take_over(self.folder))
            self.recorder.go_on_from(int(written[0]))
        self.world.control.Bcast(written)
        losses.go_on_from(step, int(written[0]))
        losses.flush(step)  # at once: the next death may take the last worker that knows what is held back

    @property
    def faults(self) -> list[dict[str, Any]]:
        """Return the failures that the training has survived, on the rank that leads; elsewhere none."""
        return self.event_log.faults() if self.leads else []

    @property
    def joined(self) -> list[dict[str, Any]]:
        """Return the processes that have joined the training, on the rank that leads; elsewhere none."""
        return self.event_log.joined() if self.leads else []
