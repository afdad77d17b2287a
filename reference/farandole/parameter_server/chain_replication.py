"""Chain replication (链式复制): which live rank has which role, for servers, manager and cleaning node.

The servers form a ring. With ``--replicas 2`` each partition is stored at its own server and at the next one in the
ring; these two are the partition's chain. A request goes to the *head*, which carries it out and forwards it. The
*tail* carries it out in the same order, so both have the same parameters, and only the tail answers. Whatever has been
answered is therefore stored at both.

    worker ──push──▶ head ──push──▶ tail ──answer──▶ worker

Every rank detects failures itself and computes the roles from them. No message and no election is needed, since a
process that MPI reports as dead is dead. If a head dies, the tail becomes the only member of the chain, and clients
retry their unanswered requests there. If a tail dies, the head resends the answers that the tail may not have sent. A
request that arrives twice is carried out once (`sessions`). The first live server takes over the work of the manager
and of the cleaning node.

Cost: each gradient is sent once more, between servers; a pull costs no more, since the tail answers it; a worker sends
its reports to every possible manager. Sources: van Renesse & Schneider, "Chain replication for supporting high
throughput and availability", 2004; Li et al., OSDI 2014, whose servers replicate so. In longer chains each server would
keep what it has forwarded until the tail confirms it, since requests that a middle server has not forwarded yet would
die with it.
"""

from __future__ import annotations

from farandole.errors import PlainError, UsageError
from farandole.parameter_server.placement import MANAGER, Placement


class NoSuccessor(PlainError):
    """All ranks that had a partition, or a role, are dead."""


class ChainReplication:
    """The roles of the live ranks, as one rank knows them.

    Args:
        replicas: how many servers store each partition: 1 or 2.

    Attributes:
        lost: the dead ranks; any part of this rank that detects a failure adds it here.
        partitions: the names of the partitions, which are the ranks of their first servers.

    Raises:
        UsageError: fewer servers than replicas.
    """

    def __init__(self, placement: Placement, replicas: int = 1) -> None:
        servers = sorted(placement.servers)
        if replicas > len(servers):
            raise UsageError(f"--replicas {replicas}: there are {len(servers)} server(s); give as many with --servers")
        self.lost: set[int] = set()
        self.replicated = replicas > 1
        self.partitions = servers
        ring = servers + servers
        self._chains = {server: tuple(ring[place : place + replicas]) for place, server in enumerate(servers)}
        deputies = tuple(servers) if self.replicated else ()
        self._managers = tuple(dict.fromkeys((MANAGER, *deputies)))
        self._cleaners = tuple(dict.fromkeys((placement.cleaner, *deputies)))

    def chain(self, partition: int) -> tuple[int, ...]:
        """Return the live servers that store a partition, from head to tail.

        Raises:
            NoSuccessor: all of them are dead.
        """
        return self._living(self._chains[partition], f"server {partition}", "its part of the parameters")

    def head(self, partition: int) -> int:
        return self.chain(partition)[0]

    def tail(self, partition: int) -> int:
        return self.chain(partition)[-1]

    def stored_at(self, rank: int) -> list[int]:
        """Return the partitions that `rank` stores."""
        return [partition for partition in self.partitions if rank in self.chain(partition)]

    @property
    def managers(self) -> tuple[int, ...]:
        """Return the manager, and the ranks that may succeed it: all of them receive the workers' reports."""
        return self._living(self._managers, "the manager", "the record of the training")

    @property
    def manager(self) -> int:
        return self.managers[0]

    @property
    def cleaner(self) -> int:
        return self._living(self._cleaners, "the cleaning node", "its work")[0]

    def may_clean(self, rank: int) -> bool:
        """Return whether `rank` is the cleaning node, or may succeed it."""
        return rank in self._cleaners

    def _living(self, ranks: tuple[int, ...], who: str, what: str) -> tuple[int, ...]:
        living = tuple(rank for rank in ranks if rank not in self.lost)
        if not living:
            if self.replicated:
                raise NoSuccessor(f"all who had {what} have died, of {who}: {', '.join(map(str, ranks))}")
            raise NoSuccessor(f"{who} has died, and {what} with it: --servers 2 --replicas 2 outlives that")
        return living
