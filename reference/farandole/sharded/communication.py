"""When the units communicate: at once, or in a thread, beside the computation (prefetch).

    computation      unit 0 │ unit 1 │ unit 2 │ …
    communication    unit 1 │ unit 2 │ unit 3 │ …      gathered while the unit before it computes

Which unit comes next is known from the step before. Where the order of this step differs from that one, as where the
model takes another branch, each unit is gathered when it is needed. All ranks must take the same branches: every unit
has a communicator of its own, so ranks that gather different units wait for each other until ``--wait-timeout`` and say
so, and never take one unit's parameters for another's.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from farandole.runtime.world import World


class Gathers(Protocol):
    """The steps of a unit's communication."""

    def fetch(self) -> None:
        """Begin to gather the parameters."""

    def hold_sum(self) -> None:
        """The sum begins: count the memory that it takes."""

    def add_up(self) -> None:
        """Add up the ranks' gradients; in the thread, if there is one."""

    def added_up(self) -> None:
        """The sum is there."""


class Communication:
    """Carries out the collectives of all units, one after the other.

    Args:
        prefetch: in a thread, which also gathers in advance; otherwise at once, in the caller's.
        group: a name for the ranks that carry out the same collectives, for the trace; "": all ranks.
    """

    def __init__(self, world: World, prefetch: bool, group: str = "") -> None:
        self.world, self.group = world, group
        self._thread = ThreadPoolExecutor(1, "collectives") if prefetch else None
        self._before: list[Gathers] = []  # in the order in which the last step gathered them
        self._now: list[Gathers] = []
        self._as_before = True
        self._adding: tuple[Gathers, Future[None]] | None = None

    def begin(self) -> None:
        """A step begins."""
        self._before, self._now, self._as_before = self._now, [], True

    def put(self, name: str, collective: Callable[[], None]) -> Future[None]:
        """Carry out `collective` after all that have been put before it."""
        if self._thread:
            return self._thread.submit(self._beside, name, collective)
        done: Future[None] = Future()
        with self.world.communicate(name, self.group):
            collective()
        done.set_result(None)
        return done

    def wait(self, name: str, collective: Future[None]) -> None:
        """Return when the collective is complete. What it has raised is raised here."""
        if self._thread:
            with self.world.communicate(name, self.group):
                collective.result()

    def gathered(self, unit: Gathers) -> None:
        """Begin to gather what the last step gathered after `unit`, if this step has gone as that one so far."""
        place = len(self._now)
        self._now.append(unit)
        self._as_before &= place < len(self._before) and self._before[place] is unit
        if self._thread and self._as_before and place + 1 < len(self._before):
            self._before[place + 1].fetch()

    def reduce(self, unit: Gathers) -> None:
        """Begin to add up a unit's gradient, when the one before it is done: at most two take memory at a time."""
        self.finish()
        unit.hold_sum()
        self._adding = unit, self.put("reduce-scatter", unit.add_up)
        if not self._thread:
            self.finish()

    def finish(self) -> None:
        """Return when all gradients that were put have been added up."""
        if self._adding:
            unit, sum_of_all = self._adding
            self._adding = None
            self.wait("reduce-scatter", sum_of_all)
            unit.added_up()

    def close(self) -> None:
        """End the thread."""
        if self._thread:
            self._thread.shutdown()

    def _beside(self, name: str, collective: Callable[[], None]) -> None:
        """In the thread."""
        with self.world.trace.beside(name):
            collective()
