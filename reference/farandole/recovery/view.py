"""Who takes part in a training, as all that take part agree on it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

NOBODY = -1


@dataclass(frozen=True)
class View:
    """The members at one time, by their numbers: the ranks of the launch, and further ones for who comes later.

    A number that has gone never comes back.

    Attributes:
        number: 0 at first, and one more with each change.
        workers: the rank at each slot. Which part of a batch a worker takes follows from its slot.
        spares: ranks that wait to take a slot.
        coordinator: the worker that leads: it writes the record, and decides where one has to.
        slots: how many are to work.
        starts: how many processes may still be started.
        following: the number of the next one.
        sent_for: the number of the one that has been started, by the coordinator, and is not here yet; one at a time.
        is_for_a_request: it was asked for from outside (`join_request`), and a slot was made for it.
    """

    number: int
    workers: tuple[int, ...]
    spares: tuple[int, ...]
    coordinator: int
    slots: int = field(repr=False)
    starts: int = field(repr=False)
    following: int = field(repr=False)
    sent_for: int | None = field(default=None, repr=False)
    is_for_a_request: bool = field(default=False, repr=False)

    @classmethod
    def first(cls, ranks: int, spares: int, starts: int = 0) -> View:
        """The last `spares` of so many ranks wait, the others work, and rank 0 leads."""
        workers = ranks - spares
        return cls(0, tuple(range(workers)), tuple(range(workers, ranks)), 0, workers, starts, ranks)

    @classmethod
    def outside(cls, number: int) -> View:
        """That of one who comes later, before it is let in: it waits, alone."""
        return cls(0, (), (number,), NOBODY, 0, 0, number)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> View:
        """Return the view of these fields, as a joining process receives them in JSON."""
        return cls(**fields | {name: tuple(fields[name]) for name in ("workers", "spares")})

    @property
    def members(self) -> tuple[int, ...]:
        return self.workers + self.spares

    def without(self, lost: Collection[int]) -> View:
        """The view after these have gone: a spare takes each slot that is free, and without one the slots close up.

        Who is the coordinator then is for an election to say; until then it is the one there was, dead or alive. The
        process that it had sent for will not come.
        """
        waiting = [spare for spare in self.spares if spare not in lost]
        workers = []
        for worker in self.workers:
            if worker not in lost:
                workers.append(worker)
            elif waiting:
                workers.append(waiting.pop(0))
        before = self.without_the_one_sent_for() if self.coordinator in lost else self
        return replace(before, number=self.number + 1, workers=tuple(workers), spares=tuple(waiting))._filled()

    def enlarged(self, more: int, asked: bool = False) -> View:
        """The view with so many slots more, as far as there are spares for them or processes can be started.

        Args:
            asked: one slot beside these was asked for, while nobody had been sent for. Where no spare is left for it,
                one process more than `starts` may be started, and should that not come the slot goes with it.
        """
        slots = self.slots + min(more, len(self.spares) + self.starts)
        start = asked and more >= len(self.spares)
        return replace(self, slots=slots + asked, starts=self.starts + start, is_for_a_request=start)._filled()

    @property
    def can_grow(self) -> bool:
        """Whether there is a spare, or a process may be started."""
        return bool(self.spares) or self.starts > 0

    @property
    def lacks_a_worker(self) -> bool:
        """Whether a process is to be started: a slot is free, nobody has been sent for, and one may be."""
        return len(self.workers) < self.slots and self.sent_for is None and self.starts > 0

    def sending(self) -> View:
        """The view in which the next process has been sent for."""
        return replace(self, starts=self.starts - 1, following=self.following + 1, sent_for=self.following)

    def without_the_one_sent_for(self) -> View:
        """It will not come, if there is any."""
        return replace(self, sent_for=None, slots=self.slots - self.is_for_a_request, is_for_a_request=False)

    def with_the_one_sent_for(self) -> View:
        """It is here, and waits for a slot."""
        assert self.sent_for is not None
        return replace(self, spares=(*self.spares, self.sent_for), sent_for=None, is_for_a_request=False)

    def _filled(self) -> View:
        """Spares work in the slots that are free."""
        free = self.slots - len(self.workers)
        return replace(self, workers=self.workers + self.spares[:free], spares=self.spares[free:])

    def slot(self, rank: int) -> int | None:
        """Where this rank works; None for who waits."""
        return self.workers.index(rank) if rank in self.workers else None
