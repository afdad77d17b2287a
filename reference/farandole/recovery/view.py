"""The view: the members of a training and their slots, on which all members agree."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

NOBODY = -1


@dataclass(frozen=True)
class View:
    """The members at one time, by their numbers: the ranks of the launch, and further numbers for joining processes.

    A number is never used again.

    Attributes:
        number: 0 at first, and one more with each change.
        workers: the rank at each slot. A worker's part of a batch follows from its slot.
        spares: ranks that wait to take a slot.
        coordinator: the worker that leads: it writes the record, and decides where one rank has to.
        slots: the number of workers wanted.
        starts: number of processes that may still be spawned.
        following: the number of the next one.
        spawned: the number of the process that the coordinator has spawned and that has not joined yet; one at a time.
        is_for_a_request: a slot was added for it, as it was requested from outside (`join_request`).
    """

    number: int
    workers: tuple[int, ...]
    spares: tuple[int, ...]
    coordinator: int
    slots: int = field(repr=False)
    starts: int = field(repr=False)
    following: int = field(repr=False)
    spawned: int | None = field(default=None, repr=False)
    is_for_a_request: bool = field(default=False, repr=False)

    @classmethod
    def first(cls, ranks: int, spares: int, starts: int = 0) -> View:
        """Return the first view: the last `spares` of the ranks wait, the others work, and rank 0 leads."""
        workers = ranks - spares
        return cls(0, tuple(range(workers)), tuple(range(workers, ranks)), 0, workers, starts, ranks)

    @classmethod
    def outside(cls, number: int) -> View:
        """Return the view of a joining process before it is admitted: it waits, alone."""
        return cls(0, (), (number,), NOBODY, 0, 0, number)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> View:
        """Return the view of these fields, as a joining process receives them in JSON."""
        return cls(**fields | {name: tuple(fields[name]) for name in ("workers", "spares")})

    @property
    def members(self) -> tuple[int, ...]:
        return self.workers + self.spares

    def without(self, lost: Collection[int]) -> View:
        """Return the view without these ranks: spares take their slots; without a spare the slots close up.

        An election decides on the coordinator; until then it is the former one, dead or alive. The process that a dead
        coordinator has spawned will not join.
        """
        waiting = [spare for spare in self.spares if spare not in lost]
        workers = []
        for worker in self.workers:
            if worker not in lost:
                workers.append(worker)
            elif waiting:
                workers.append(waiting.pop(0))
        before = self.without_spawned() if self.coordinator in lost else self
        return replace(before, number=self.number + 1, workers=tuple(workers), spares=tuple(waiting))._filled()

    def enlarged(self, more: int, requested: bool = False) -> View:
        """Return the view with `more` slots, as far as there are spares for them or processes may be spawned.

        Args:
            requested: one further slot was requested from outside, while no process was spawned. Where no spare is left
                for it, one process more than `starts` may be spawned. If it never joins, the slot is removed again.
        """
        slots = self.slots + min(more, len(self.spares) + self.starts)
        start = requested and more >= len(self.spares)
        return replace(self, slots=slots + requested, starts=self.starts + start, is_for_a_request=start)._filled()

    @property
    def can_grow(self) -> bool:
        """Whether there is a spare, or a process may be spawned."""
        return bool(self.spares) or self.starts > 0

    @property
    def lacks_a_worker(self) -> bool:
        """Whether a process is to be spawned: a slot is free, none is spawned yet, and one may be."""
        return len(self.workers) < self.slots and self.spawned is None and self.starts > 0

    def spawning(self) -> View:
        """Return the view in which the next process has been spawned."""
        return replace(self, starts=self.starts - 1, following=self.following + 1, spawned=self.following)

    def without_spawned(self) -> View:
        """Return the view in which no spawned process will join."""
        return replace(self, spawned=None, slots=self.slots - self.is_for_a_request, is_for_a_request=False)

    def with_spawned(self) -> View:
        """Return the view in which the spawned process has joined, as a spare."""
        assert self.spawned is not None
        return replace(self, spares=(*self.spares, self.spawned), spawned=None, is_for_a_request=False)

    def _filled(self) -> View:
        """Return the view in which spares have taken the free slots."""
        free = self.slots - len(self.workers)
        return replace(self, workers=self.workers + self.spares[:free], spares=self.spares[free:])

    def slot(self, rank: int) -> int | None:
        """Return the slot of this rank; None: it waits."""
        return self.workers.index(rank) if rank in self.workers else None
