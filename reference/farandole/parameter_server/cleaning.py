"""The cleaning node: removes what workers that are gone have left behind on the servers.

Document 000's fourth role. A worker that has finished, or died, leaves a clock that others would
wait for, perhaps an unanswered pull, and perhaps a push of which only a part has come. The cleaning
node has every server remove these; what comes from such a worker later is dropped there.
"""

from __future__ import annotations

from collections import Counter

from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.mailbox import REQUEST, Mailbox
from farandole.parameter_server.succession import Succession
from farandole.runtime.world import World


class CleaningNode:
    """One rank's part in it.

    Attributes:
        removed: how many clients, pulls, clocks and incomplete pushes.
    """

    kinds = frozenset({Kind.GONE, Kind.CLEANED})

    def __init__(self, world: World, mailbox: Mailbox, succession: Succession) -> None:
        self.world, self.mailbox, self.succession = world, mailbox, succession
        self.removed: Counter[str] = Counter(clients=0, pulls=0, clocks=0, pushes=0)
        self._missing: dict[int, tuple[int, set[int]]] = {}  # client → its group, and the parts not cleaned up yet
        self._manager = succession.manager

    def handle(self, header: Header) -> None:
        with self.world.trace.span(f"clean up after rank {header.worker}", "compute"):
            if header.kind == Kind.GONE:
                self._begin(header.worker, header.group)
                return
            _, missing = self._missing.get(header.worker, (0, set()))
            if header.home in missing:  # else it has been asked, or answers, a second time
                self.removed.update(pulls=header.pulls, clocks=header.clocks, pushes=header.pushes)
                missing.discard(header.home)
                if not missing:
                    self.removed["clients"] += 1
                    self._say_tidy(header.worker)

    def tick(self) -> None:
        pass

    def miss(self) -> None:
        """A server that has died may not have heard what it was to clean up, nor a manager what is tidy: so once more.

        Raises:
            NobodyToSucceed: nobody has some part of the parameters any more, or takes the manager's place.
        """
        before, self._manager = self._manager, self.succession.manager
        for client, (_, missing) in self._missing.items():
            if missing:
                self._order(client)
            elif self._manager != before:
                self._say_tidy(client)

    def stop(self) -> None:
        pass

    def _begin(self, client: int, group: int) -> None:
        if client not in self._missing:
            self._missing[client] = group, set(self.succession.homes)
            self._order(client)
        elif not self._missing[client][1]:  # a new manager does not know
            self._say_tidy(client)

    def _say_tidy(self, client: int) -> None:
        self.mailbox.send(self.succession.manager, REQUEST, Header(Kind.TIDY, worker=client))

    def _order(self, client: int) -> None:
        """Have every part cleaned up that has not been."""
        group, missing = self._missing[client]
        for home in sorted(missing):
            self.mailbox.send(
                self.succession.head(home), REQUEST, Header(Kind.CLEAN, worker=client, home=home, group=group)
            )
