"""Who takes part in a training, as all that take part agree on it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class View:
    """The members at one time; ranks are those of the launch, and a rank that has gone never comes back.

    Attributes:
        number: 0 at first, and one more with each change.
        workers: the rank at each place. Which part of a batch a worker takes follows from its place.
        spares: ranks that wait to take a place.
        centre: the worker that leads: it writes the record, and decides where one has to.
    """

    number: int
    workers: tuple[int, ...]
    spares: tuple[int, ...]
    centre: int

    @classmethod
    def first(cls, ranks: int, spares: int) -> View:
        """The last `spares` of so many ranks wait, the others work, and rank 0 leads."""
        workers = ranks - spares
        return cls(0, tuple(range(workers)), tuple(range(workers, ranks)), 0)

    @property
    def members(self) -> tuple[int, ...]:
        return self.workers + self.spares

    def without(self, lost: Collection[int]) -> View:
        """The view after these have gone: a spare takes each place that is free, and without one the places close up.

        Who is the centre then is for an election to say; until then it is the one there was, dead or alive.
        """
        waiting = [spare for spare in self.spares if spare not in lost]
        workers = []
        for worker in self.workers:
            if worker not in lost:
                workers.append(worker)
            elif waiting:
                workers.append(waiting.pop(0))
        return replace(self, number=self.number + 1, workers=tuple(workers), spares=tuple(waiting))

    def enlarged(self, more: int) -> View:
        """The view in which so many of the spares, as far as there are any, work in new places."""
        return replace(self, workers=self.workers + self.spares[:more], spares=self.spares[more:])

    def place(self, rank: int) -> int | None:
        """Where this rank works; None for who waits."""
        return self.workers.index(rank) if rank in self.workers else None
