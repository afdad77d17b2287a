"""What is written down of ranks that die: who, when, and when the training had got over it.

Every rank writes down what happens to itself, such as that it is told to fail. What the others have found out the
manager writes, or whoever has taken its place. The training has got over a death once a worker reports an
iteration that it cannot have begun before: the one after the one it may already have been at when the death was
noticed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from farandole.errors import UsageError
from farandole.parameter_server.header import Header
from farandole.parameter_server.options import ServerOptions
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.succession import Succession
from farandole.recovery import heartbeat, membership
from farandole.recovery.event_log import EventLog, RankWitness
from farandole.runtime import rank
from farandole.runtime.communicator import broadcast_text
from farandole.runtime.faults import WITH_DEATHS, refuse_message_faults
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


class Departures:
    """One rank's part in it, on all of them.

    Args:
        folder: of the record.
    """

    def __init__(self, world: World, recorder: Recorder, folder: Path) -> None:
        self.world, self.recorder, self.folder = world, recorder, folder
        self.event_log = EventLog(folder / "logbook.jsonl")
        world.witness = RankWitness(self.event_log, world.rank)
        self._reached: dict[int, int] = {}  # worker → iterations reported
        self._noticed: dict[int, int] | None = None  # the same, when a death was noticed that is not got over yet
        if world.rank == 0:
            self.event_log.write("start", 0, 0)

    @classmethod
    def where_possible(
        cls, world: World, recorder: Recorder, options: ServerOptions, placement: Placement
    ) -> Departures | None:
        """None where a rank's death ends the job. Collective.

        That is so where ranks do not outlive each other, where they share memory with ranks that may die, where
        aggregators or workers have state that no other rank has, and where messages may be lost: a message to a dead
        rank would be repeated in vain.

        Raises:
            UsageError: it is not possible, and is asked for; or `heartbeat.check` refuses.
        """
        if options.replicas > 1:
            if options.transport == "window":
                raise UsageError("--replicas is for servers with memory of their own: use --transport messages")
            refuse_message_faults(options.fail, WITH_DEATHS)
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
            self._got_over_it()

    def missed(self, succession: Succession) -> None:
        """Ranks have died, and this one is the manager, perhaps only now."""
        written = {line.rank for line in self.event_log.lines() if line.what == "departed"}
        for dead in sorted(succession.lost - written):
            self.event_log.write("departed", dead, self._reached.get(dead, self._furthest), "lost")
            self._noticed = dict(self._reached)
        rank.departed(succession.lost)

    def silent(self, rank: int, step: int) -> None:
        """A rank hangs, and is about to be ended."""
        self.event_log.write("noticed", rank, step, "silent")

    def faults(self) -> list[dict[str, Any]]:
        """What the record says of them, on the rank that writes it."""
        return self.event_log.faults() if self.recorder.writes else []

    def close(self) -> None:
        """The training is over, and with it what there was to get over."""
        if self._noticed is not None:
            self._got_over_it()

    @property
    def _furthest(self) -> int:
        return max(self._reached.values(), default=0)

    def _got_over_it(self) -> None:
        self._noticed = None
        step = max(line.step for line in self.event_log.lines())  # nobody has to go back
        self.event_log.write("start", self.world.rank, step)
        self.event_log.write("first step", self.world.rank, step)
