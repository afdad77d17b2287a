"""The cleaning node: removes the state of workers that have left or died from the servers.

Document 000's fourth role. Such a worker leaves a clock that other workers would wait for, perhaps an unanswered pull,
and perhaps a push of which only some ranges have arrived. The cleaning node has every server remove these. Messages of
the worker that arrive later are dropped there.
"""

from __future__ import annotations

from collections import Counter

from farandole.parameter_server.chain_replication import ChainReplication
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.message_queue import REQUEST, MessageQueue
from farandole.runtime.world import World


class CleaningNode:
    """The cleaning node's role on one rank.

    Attributes:
        removed: how many clients, pulls, clocks and incomplete pushes.
    """

    kinds = frozenset({Kind.GONE, Kind.CLEANED})

    def __init__(self, world: World, messages: MessageQueue, replication: ChainReplication) -> None:
        self.world, self.messages, self.replication = world, messages, replication
        self.removed: Counter[str] = Counter(clients=0, pulls=0, clocks=0, pushes=0)
        self._missing: dict[int, tuple[int, set[int]]] = {}  # client → its group, and the parts not cleaned up yet
        self._manager = replication.manager

    def handle(self, header: Header) -> None:
        with self.world.trace.span(f"clean up after rank {header.worker}", "compute"):
            if header.kind == Kind.GONE:
                self._begin(header.worker, header.group)
                return
            _, missing = self._missing.get(header.worker, (0, set()))
            if header.partition in missing:  # else it is a second answer
                self.removed.update(pulls=header.pulls, clocks=header.clocks, pushes=header.pushes)
                missing.discard(header.partition)
                if not missing:
                    self.removed["clients"] += 1
                    self._report_tidy(header.worker)

    def tick(self) -> None:
        pass

    def on_failure(self) -> None:
        """Send again what a dead server or manager may not have received.

        Raises:
            NoSuccessor: all servers of a partition are dead, or all ranks that could be the manager.
        """
        before, self._manager = self._manager, self.replication.manager
        for client, (_, missing) in self._missing.items():
            if missing:
                self._send_clean(client)
            elif self._manager != before:
                self._report_tidy(client)

    def stop(self) -> None:
        pass

    def _begin(self, client: int, group: int) -> None:
        if client not in self._missing:
            self._missing[client] = group, set(self.replication.partitions)
            self._send_clean(client)
        elif not self._missing[client][1]:  # a new manager does not know
            self._report_tidy(client)

    def _report_tidy(self, client: int) -> None:
        self.messages.send(self.replication.manager, REQUEST, Header(Kind.TIDY, worker=client))

    def _send_clean(self, client: int) -> None:
        """Have every server clean up that has not reported to have done so."""
        group, missing = self._missing[client]
        for partition in sorted(missing):
            clean = Header(Kind.CLEAN, worker=client, partition=partition, group=group)
            self.messages.send(self.replication.head(partition), REQUEST, clean)
