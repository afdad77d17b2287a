"""Ranks on paper that die at a chosen call, before it or within it, the same way every time.

Their programs run one at a time, each until it waits in a call. So every moment at which a rank may die can be tried,
each in some milliseconds. What the calls promise is said in `ulfm_communicator`; here they do no more than that:

- a rank that dies before a call gives nothing to it. One of the living notices, the next one in the
  group (or, if that is requested, every rank); the others wait until the communicator is revoked;
- of a call within which a rank dies, some get the result, and the others are told of the death;
- an array in a call that has failed holds a part of what it should.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from farandole_tools.lab.rank_status import named
from farandole_tools.lab.rank_threads import Answer, Computes, Halt, Made, Program, RankThreads
from farandole_tools.lab.simulated_rank import WHOLE, Call, Death, Group, SimulatedRank, Stuck

__all__ = ["WHOLE", "Call", "Death", "Programs", "SimulatedRanks", "Stuck"]


class Programs(Protocol):
    """The programs of all ranks, wherever they run."""

    def resume(self, answers: Mapping[int, Answer | None]) -> Iterator[Halt]:
        """Continue each of these ranks with the answer to its call; yield their next steps. None: it begins."""

    def end(self, number: int) -> None:
        """End a program, wherever it is."""


class _Here:
    """One program, run by every rank in a thread of this process."""

    def __init__(self, program: Program, size: int) -> None:
        self._program, self._size, self._threads = program, size, RankThreads()

    def resume(self, answers: Mapping[int, Answer | None]) -> Iterator[Halt]:
        for number, answer in answers.items():
            if answer is None:
                step = self._threads.start(number, self._size, self._program)
            else:
                step = self._threads.resume(number, answer)
            while isinstance(step, Computes):
                step = self._threads.wait(number)
            yield step

    def end(self, number: int) -> None:
        self._threads.resume(number, Answer(killed=True))


class SimulatedRanks:
    """A launch of `size` ranks, in which these deaths happen.

    Args:
        all_notice: a death is noticed by every rank that waits for the dead one, not by one of them only.
        step_of: the step at which a rank is, for `calls`.
        met: is told of each call that some get the result of: its name, and rank → what it has given.

    Attributes:
        calls: of all ranks, in the order in which they were made.
        dead: the ranks that have died.
        returned: what the program of each living rank has returned.
    """

    def __init__(
        self,
        size: int,
        deaths: Iterable[Death] = (),
        all_notice: bool = False,
        step_of: Callable[[int], int] = lambda rank: 0,
        met: Callable[[str, dict[int, Any]], None] = lambda name, given: None,
    ) -> None:
        self.size = size
        self.deaths = {(death.rank, death.call): death for death in deaths}
        self.all_notice, self.step_of, self.met = all_notice, step_of, met
        self.calls: list[Call] = []
        self.dead: set[int] = set()
        self.returned: dict[int, Any] = {}
        group = Group(range(size))
        self._ranks = [SimulatedRank(self, number, group) for number in range(size)]

    def run(self, program: Program) -> None:
        """Run `program` on each rank until all have returned or died. Once only.

        Raises:
            Stuck: that will never be.
            Exception: what a rank has raised.
        """
        self.drive(_Here(program, self.size))

    def drive(self, programs: Programs) -> None:
        """Run such programs as `run` does."""
        try:
            while ready := [rank for rank in self._ranks if not rank.ended and rank.may_go_on()]:
                steps = programs.resume({rank.number: rank.taken_answer() for rank in ready})
                for rank, step in zip(ready, steps, strict=True):
                    self._take(rank, step)
            if any(not rank.ended for rank in self._ranks):
                raise Stuck(self._who_waits())
        finally:
            for rank in self._ranks:
                if rank.begun and not rank.ended:
                    with suppress(BaseException):  # what it does when it is ended decides nothing any more
                        programs.end(rank.number)

    def size_of(self, number: int, communicator: Any) -> int | None:
        """Return the size of the communicator that this rank has by this number, if there is one."""
        groups = self._ranks[number].groups
        known = type(communicator) is int and 0 <= communicator < len(groups)
        return len(groups[communicator].members) if known else None

    def _take(self, rank: SimulatedRank, step: Halt) -> None:
        """Make the call that a rank's program makes, or note that it has ended."""
        if isinstance(step, Made) and rank.number not in self.dead:
            rank.make(step)
            return
        rank.ended = True
        if rank.number not in self.dead:
            self.returned[rank.number] = step.value
        elif went_on := step.name if isinstance(step, Made) else step.went_on:
            raise Stuck(f"rank {rank.number} has been killed, and its code goes on with {went_on}: catch PeerLost only")

    def _who_waits(self) -> str:
        said: defaultdict[str, list[int]] = defaultdict(list)
        for rank in self._ranks:
            if rank.number in self.dead:
                said["dead"].append(rank.number)
            elif rank.ended:
                said["returned"].append(rank.number)
            else:
                said[f"in {rank.made.name}"].append(rank.number)
        parts = []
        for what, numbers in said.items():
            one, more = {"dead": ("is", "are"), "returned": ("has", "have")}.get(what, ("waits", "wait"))
            parts.append(f"{named(numbers)} {one if len(numbers) == 1 else more} {what}")
        ordinary = [rank.group for rank in self._ranks if not rank.ended and rank.made.name not in WHOLE]
        waited_for = any(self.dead & set(group.members) for group in ordinary)
        why = ", and no rank revokes the communicator" if waited_for else ""
        return f"deadlock: {'; '.join(parts)}{why}"
