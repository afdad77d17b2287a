"""The placement: which rank has which of the roles of documents 000, 001 and 004.

    manager      divides keys and work, receives the workers' reports, ends the training
    server       stores a part of the parameters and moves it
    cleaner      removes the state of workers that have left or died
    aggregator   sums the gradients of some workers and pushes the sum to the servers (`tree`)
    worker       computes gradients
    reader       reads the parameters while they are being trained, and serves predictions (`serving`)

Manager, cleaner and servers are message-driven and may share a rank. A worker, an aggregator and a reader each have a
rank of their own. Rank 0 is always the manager, since it writes the record. By default it is the cleaner too, the next
ranks are the servers, then the aggregators, the workers and the readers.
"""

from __future__ import annotations

from dataclasses import dataclass

from farandole.data.shares import equal_shares, slices
from farandole.errors import UsageError
from farandole.runtime.numbers import parse_integer

MANAGER = 0
FORM = "--place servers=1+2,workers=3-6,cleaner=0"


@dataclass(frozen=True)
class Placement:
    """The rank, or the ranks, of each role; the manager is rank 0."""

    cleaner: int
    servers: tuple[int, ...]
    workers: tuple[int, ...]
    aggregators: tuple[int, ...] = ()
    readers: tuple[int, ...] = ()

    @classmethod
    def usual(cls, ranks: int, servers: int = 1, fan_in: int | None = None, readers: int = 0) -> Placement:
        """Return the default placement on `ranks` ranks.

        Args:
            fan_in: the largest number of workers of an aggregator; None: no aggregators.
            readers: how many ranks, the last ones, are readers.

        Raises:
            UsageError: there are too few ranks for the roles.
        """
        rest = ranks - 1 - servers - readers
        aggregators = -(-rest // (fan_in + 1)) if fan_in else 0
        if rest - aggregators < 1:
            between = f", {aggregators or 1} aggregator(s)" if fan_in else ""
            between += f", {readers} reader(s)" if readers else ""
            least = 1 + servers + (2 if fan_in else 1) + readers
            needed = f"a manager, {servers} server(s){between} and at least 1 worker need {least}"
            raise UsageError(f"{ranks} rank(s) are too few: {needed}; start more ranks, or use fewer servers")
        first = 1 + servers
        return cls(
            cleaner=MANAGER,
            servers=tuple(range(1, first)),
            workers=tuple(range(first + aggregators, ranks - readers)),
            aggregators=tuple(range(first, first + aggregators)),
            readers=tuple(range(ranks - readers, ranks)),
        )

    @classmethod
    def parse(cls, text: str, ranks: int) -> Placement:
        """Return a placement from words like ``cleaner=1,servers=0+1,workers=2-4``.

        Raises:
            UsageError: not of this form, a rank that does not exist or has nothing to do, or a worker
                that is something else as well.
        """
        roles: dict[str, tuple[int, ...]] = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            if name not in ("cleaner", "servers", "workers", "aggregators", "readers") or name in roles:
                raise UsageError(f"--place {text}: {part!r} does not fit; write it as {FORM}")
            roles[name] = _ranks(value, text, ranks)
        cleaners = roles.get("cleaner", (MANAGER,))
        if len(cleaners) != 1:
            raise UsageError(f"--place {text}: there is one cleaner; write it as {FORM}")
        placement = cls(
            cleaner=cleaners[0],
            servers=roles.get("servers", ()),
            workers=roles.get("workers", ()),
            aggregators=roles.get("aggregators", ()),
            readers=roles.get("readers", ()),
        )
        placement._check(text, ranks)
        return placement

    def members(self, aggregator: int) -> tuple[int, ...]:
        """Return the workers whose gradients this aggregator sums."""
        parts = slices(equal_shares(len(self.workers), len(self.aggregators)))
        return self.workers[parts[self.aggregators.index(aggregator)]]

    def aggregator_of(self, worker: int) -> int | None:
        """Return the aggregator that `worker` pulls from and pushes to; None: the servers themselves."""
        return next((node for node in self.aggregators if worker in self.members(node)), None)

    def roles(self, rank: int) -> list[str]:
        """Return the roles of a rank, in words."""
        roles = ["manager"] * (rank == MANAGER) + ["cleaner"] * (rank == self.cleaner)
        several = {
            "server": self.servers,
            "aggregator": self.aggregators,
            "worker": self.workers,
            "reader": self.readers,
        }
        return roles + [name for name, ranks in several.items() if rank in ranks]

    def _check(self, text: str, ranks: int) -> None:
        alone = [*self.workers, *self.aggregators, *self.readers]
        named = [MANAGER, self.cleaner, *self.servers, *alone]
        if not self.servers or not self.workers:
            raise UsageError(f"--place {text}: there must be at least one server and one worker; write it as {FORM}")
        if max(named) >= ranks:
            raise UsageError(f"--place {text}: there is no rank {max(named)}; ranks are 0 to {ranks - 1}")
        if idle := sorted(set(range(ranks)) - set(named)):
            raise UsageError(f"--place {text}: rank {idle[0]} has no role; give it one, or start fewer ranks")
        if len(set(self.servers)) < len(self.servers) or any(named.count(rank) > 1 for rank in alone):
            raise UsageError(
                f"--place {text}: a rank is one worker, aggregator or reader and nothing else, or a server once"
            )
        if len(self.aggregators) > len(self.workers):
            raise UsageError(f"--place {text}: more aggregators than workers; give each at least one worker")


def _ranks(value: str, text: str, size: int) -> tuple[int, ...]:
    """Return the ranks, all below `size`, that "3", "1+2" or "3-6" names."""
    ranks: list[int] = []
    for part in value.split("+"):
        first, _, last = part.partition("-")
        try:
            own = range(parse_integer(first), parse_integer(last or first) + 1)
        except ValueError as error:
            raise UsageError(f"--place {text}: {value!r} is not a list of ranks; write it as {FORM}") from error
        if own.start < 0 or own.stop > size:
            raise UsageError(f"--place {text}: there is no rank {own.stop - 1}; ranks are 0 to {size - 1}")
        ranks += own
    return tuple(ranks)
