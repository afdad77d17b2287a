"""The cleaning node: removes what workers that are gone have left behind on the servers.

Document 000's fourth role. A worker that has finished, or died, leaves a clock that others would
wait for, perhaps an unanswered pull, and perhaps a push of which only a part has come. The cleaning
node has every server remove these; what comes from such a worker later is dropped there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.mailbox import REQUEST, Mailbox
from farandole.runtime.world import World


class CleaningNode:
    """One rank's part in it.

    Attributes:
        removed: how many clients, pulls, clocks and incomplete pushes.
    """

    kinds = frozenset({Kind.GONE, Kind.CLEANED})

    def __init__(self, world: World, mailbox: Mailbox, servers: Sequence[int], manager: int) -> None:
        self.world, self.mailbox, self.servers, self.manager = world, mailbox, servers, manager
        self.removed: Counter[str] = Counter(clients=0, pulls=0, clocks=0, pushes=0)
        self._missing: dict[int, set[int]] = {}  # client → the servers that have not cleaned up yet

    def handle(self, header: Header) -> None:
        with self.world.trace.span(f"clean up after rank {header.worker}", "compute"):
            if header.kind == Kind.GONE:
                self._missing[header.worker] = set(self.servers)
                for server in self.servers:
                    self.mailbox.send(server, REQUEST, Header(Kind.CLEAN, worker=header.worker, group=header.group))
                return
            self.removed.update(pulls=header.pulls, clocks=header.clocks, pushes=header.pushes)
            missing = self._missing[header.worker]
            missing.discard(header.source)
            if not missing:
                self.removed["clients"] += 1
                self.mailbox.send(self.manager, REQUEST, Header(Kind.TIDY, worker=header.worker))

    def tick(self) -> None:
        pass
