"""Who does what once ranks have died: chain replication (链式复制) for servers, successors for manager and cleaner.

The servers stand in a ring, and with ``--replicas 2`` each one's part is also with the next. These two are
the part's chain. A request goes to its *head*, which carries it out and hands it on; the *tail* does the
same, in the same order, so both come to the same parameters; and only the tail answers. What has been
answered is therefore with both.

    worker ──push──▶ head ──push──▶ tail ──answer──▶ worker

Every rank learns of a death by itself and computes from it who is what: nobody needs to be asked, nobody
elected, since a process that MPI calls dead is. If a head has died, its part's tail is the head of a chain
of one, and clients ask it again for what has not been answered. If a tail has died, the head answers again
what the tail may not have. A request that comes twice is carried out once (`sessions`). The manager's and the
cleaning node's work goes to the first server that lives.

Cost: a gradient is sent once more, between servers; a pull comes from the tail at no further cost; a worker
tells each possible manager of its iterations.
Sources: van Renesse & Schneider, "Chain replication for supporting high throughput and availability", 2004;
Li et al., OSDI 2014, whose servers replicate so. Longer chains would need each server to keep what it has
handed on until the tail confirms it, for a middle one takes along what it had not handed on.
"""

from __future__ import annotations

from farandole.errors import PlainError, UsageError
from farandole.parameter_server.placement import MANAGER, Placement


class NobodyToSucceed(PlainError):
    """A part of the parameters, or a role, is gone with the ranks that had it."""


class Succession:
    """The roles of the living, as one rank knows them.

    Args:
        replicas: how many servers have each part: 1 or 2.

    Attributes:
        lost: the ranks that have died; whoever learns of a death adds it here.

    Raises:
        UsageError: fewer servers than replicas.
    """

    def __init__(self, placement: Placement, replicas: int = 1) -> None:
        servers = sorted(placement.servers)
        if replicas > len(servers):
            raise UsageError(f"--replicas {replicas}: there are {len(servers)} server(s); give as many with --servers")
        self.lost: set[int] = set()
        self.replicated = replicas > 1
        ring = servers + servers
        self._chains = {home: tuple(ring[place : place + replicas]) for place, home in enumerate(servers)}
        deputies = tuple(servers) if self.replicated else ()
        self._managers = tuple(dict.fromkeys((MANAGER, *deputies)))
        self._cleaners = tuple(dict.fromkeys((placement.cleaner, *deputies)))

    @property
    def homes(self) -> list[int]:
        """The servers there were at first: each has given its number to a part of the parameters."""
        return list(self._chains)

    def chain(self, home: int) -> tuple[int, ...]:
        """The servers that have this part, from head to tail.

        Raises:
            NobodyToSucceed: none of them lives.
        """
        return self._living(self._chains[home], f"server {home}", "its part of the parameters")

    def head(self, home: int) -> int:
        return self.chain(home)[0]

    def tail(self, home: int) -> int:
        return self.chain(home)[-1]

    @property
    def managers(self) -> tuple[int, ...]:
        """The manager, and those who may take its place: all hear the workers' reports."""
        return self._living(self._managers, "the manager", "the record of the training")

    @property
    def manager(self) -> int:
        return self.managers[0]

    @property
    def cleaner(self) -> int:
        return self._living(self._cleaners, "the cleaning node", "its work")[0]

    def may_clean(self, rank: int) -> bool:
        """Whether `rank` is, or may have to become, the cleaning node."""
        return rank in self._cleaners

    def _living(self, ranks: tuple[int, ...], who: str, what: str) -> tuple[int, ...]:
        living = tuple(rank for rank in ranks if rank not in self.lost)
        if not living:
            if self.replicated:
                raise NobodyToSucceed(f"all who had {what} have died, of {who}: {', '.join(map(str, ranks))}")
            raise NobodyToSucceed(f"{who} has died, and {what} with it: --servers 2 --replicas 2 outlives that")
        return living
