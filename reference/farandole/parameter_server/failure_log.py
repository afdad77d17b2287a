"""The log of failures: which rank died, when this was detected, and when the training had recovered.

Every rank logs what happens to itself, such as an injected fault. The manager, or its successor, logs the deaths that
were detected. The training has recovered once a worker reports an iteration that it began after the detection, which is
certain for the iteration after the one that it was computing then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from farandole.errors import UsageError
from farandole.parameter_server.chain_replication import ChainReplication
from farandole.parameter_server.header import Header
from farandole.parameter_server.options import ServerOptions
from farandole.parameter_server.placement import Placement
from farandole.recovery import heartbeat, membership
from farandole.recovery.event_log import EventLog, RankWitness
from farandole.runtime import rank
from farandole.runtime.communicator import broadcast_text
from farandole.runtime.faults import WITH_DEATHS
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


class FailureLog:
    """One rank's access to the log, which all ranks share.

    Args:
        folder: of the record.
    """

    def __init__(self, world: World, recorder: Recorder, folder: Path) -> None:
        self.world, self.recorder, self.folder = world, recorder, folder
        self.event_log = EventLog(folder / "logbook.jsonl")
        world.witness = RankWitness(self.event_log, world.rank)
        self._reached: dict[int, int] = {}  # worker → iterations reported
        self._noticed: dict[int, int] | None = None  # the same at the detection of a failure; None: recovered
        if world.rank == 0:
            self.event_log.write("start", 0, 0)

    @classmethod
    def where_possible(
        cls, world: World, recorder: Recorder, options: ServerOptions, placement: Placement
    ) -> FailureLog | None:
        """Return the log; None where a rank's death ends the job. Collective.

        A death ends the job where MPI ends all ranks, where ranks share memory with a rank that may die, where
        aggregators or workers have state that no other rank has, and where messages may be lost, since a message to a
        dead rank would be repeated for ever.

        Raises:
            UsageError: --replicas is given where a death ends the job; or `heartbeat.check` refuses.
        """
        if options.replicas > 1:
            if options.transport == "window":
                raise UsageError("--replicas is for servers with memory of their own: use --transport messages")
            options.refuse_resending(WITH_DEATHS)
            membership.check(world.size, spares=0)
        folder = Path(broadcast_text(world.control, str(recorder.folder)))
        shared = options.transport == "window" or placement.aggregators
        if shared or world.comm.delivery or not options.survives or not rank.outlive_each_other():
            return None
        heartbeat.check(options.hang_after, options.wait_timeout)
        return cls(world, recorder, folder)

    def reported(self, report: Header) -> None:
        """A worker has completed an iteration."""
        self._reached[report.source] = report.clock + 1
        if self._noticed is not None and report.clock > self._noticed.get(report.source, 0):
            self._log_recovery()

    def on_failure(self, replication: ChainReplication) -> None:
        """Log the dead ranks; called on the manager, which may have become it by their death."""
        written = {line.rank for line in self.event_log.lines() if line.what == "departed"}
        for dead in sorted(replication.lost - written):
            self.event_log.write("departed", dead, self._reached.get(dead, self._furthest), "lost")
            self._noticed = dict(self._reached)
        rank.departed(replication.lost)

    def on_hang(self, rank: int, step: int) -> None:
        """Log that a rank hangs and is about to be killed."""
        self.event_log.write("noticed", rank, step, "silent")

    def faults(self) -> list[dict[str, Any]]:
        """Return the record's entry, on the rank that writes it."""
        return self.event_log.faults() if self.recorder.writes else []

    def close(self) -> None:
        """The training is complete; a failure that has not been recovered from counts as recovered now."""
        if self._noticed is not None:
            self._log_recovery()

    @property
    def _furthest(self) -> int:
        return max(self._reached.values(), default=0)

    def _log_recovery(self) -> None:
        self._noticed = None
        step = max(line.step for line in self.event_log.lines())  # no worker repeats an iteration
        self.event_log.write("start", self.world.rank, step)
        self.event_log.write("first step", self.world.rank, step)
