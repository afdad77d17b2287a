"""Ranks on paper that die at a chosen call, before it or within it, the same way every time.

Each is a thread of this process, and one runs at a time, until it waits in a call. So every
moment at which a rank may die can be tried, each in some milliseconds. What the calls promise is
said in `ulfm_communicator`; here they do no more than that:

- a rank that dies before a call gives nothing to it. One of the living notices, the next one in the
  group (or, if that is requested, every rank); the others wait until the communicator is revoked;
- of a call within which a rank dies, some get the result, and the others are told of the death;
- an array in a call that has failed holds a part of what it should.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from farandole.runtime.communicator import Buffer
from farandole_tools.lab.rank_status import named
from farandole_tools.lab.ulfm_communicator import PeerLost, UlfmCommunicator

WHOLE = ("agree", "shrink")  # whichever rank dies
ENOUGH = 400  # calls of one rank; a right answer needs some dozens
STALLED_S = 1.0  # so long without a call: say where it is
UNDEAD = 100  # calls of a rank that has been ended, and catches that


class Stuck(Exception):
    """The living ranks wait, and none can continue; or one never ends."""


class _End(BaseException):
    """Raised in a rank's thread to end it."""


@dataclass(frozen=True)
class Death:
    """`rank` dies at its call number `call`, counted from 0.

    Attributes:
        served: None: it dies before the call. Else within: it has given its part, and these get the result.
    """

    rank: int
    call: int
    served: frozenset[int] | None = None


@dataclass(frozen=True)
class Call:
    """The call number `number` of `rank`, and the step at which that rank was."""

    rank: int
    number: int
    name: str
    step: int


@dataclass
class _Meeting:
    """One collective call of a group."""

    name: str
    source: int
    given: dict[int, Any] = field(default_factory=dict)
    served: frozenset[int] | None = None
    result: Any = None


class _Group:
    """The members of a communicator, and the calls they meet in. Of each kind the first meets the first."""

    def __init__(self, members: Iterable[int]) -> None:
        self.members = list(members)
        self.revoked = False
        self.meetings: defaultdict[str, list[_Meeting]] = defaultdict(list)
        self.come: defaultdict[tuple[str, int], int] = defaultdict(int)

    def join(self, number: int, name: str, source: int, value: Any) -> _Meeting:
        kind = name if name in WHOLE else "ordinary"
        index = self.come[kind, number]
        self.come[kind, number] += 1
        if index == len(self.meetings[kind]):
            self.meetings[kind].append(_Meeting(name, source))
        meeting = self.meetings[kind][index]
        if (meeting.name, meeting.source) != (name, source):
            others = f"{named(sorted(meeting.given))} {'is' if len(meeting.given) == 1 else 'are'} in {_told(meeting)}"
            raise Stuck(f"{others}, rank {number} in {_told(_Meeting(name, source))}: do all make the same calls?")
        meeting.given[number] = value
        return meeting


class SimulatedRanks:
    """A launch of `size` ranks, in which these deaths happen.

    Args:
        all_notice: a death is noticed by every rank that waits for the dead one, not by one of them only.
        step_of: the step at which a rank is, for `calls`.
        met: is told of each call that some get the result of: its name, and rank → what it has given.
        stalled: is told where a rank is that makes no call.

    Attributes:
        calls: of all ranks, in the order in which they were made.
        dead: the ranks that have died.
    """

    def __init__(
        self,
        size: int,
        deaths: Iterable[Death] = (),
        all_notice: bool = False,
        step_of: Callable[[int], int] = lambda rank: 0,
        met: Callable[[str, dict[int, Any]], None] = lambda name, given: None,
        stalled: Callable[[str], None] = lambda where: None,
    ) -> None:
        self.size = size
        self.deaths = {(death.rank, death.call): death for death in deaths}
        self.all_notice, self.step_of, self.met, self.stalled = all_notice, step_of, met, stalled
        self.calls: list[Call] = []
        self.dead: set[int] = set()
        self._ranks: list[_Rank] = []
        self._ending = False
        self._back = threading.Lock()  # released by a rank that has nothing more to do for now
        self._back.acquire()

    def run(self, program: Callable[[UlfmCommunicator], object]) -> None:
        """Run `program` on each rank until all have returned or died. Once only.

        Raises:
            Stuck: that will never be.
            Exception: what a rank has raised.
        """
        group = _Group(range(self.size))
        self._ranks = [_Rank(self, number, group, program) for number in range(self.size)]
        try:
            while ready := [rank for rank in self._ranks if not rank.ended and rank.may_go_on()]:
                for rank in ready:
                    self._resume(rank)
                    if rank.error is not None:
                        raise rank.error
            if any(not rank.ended for rank in self._ranks):
                raise Stuck(self._who_waits())
        finally:
            self._ending = True
            for rank in self._ranks:
                while not rank.ended:
                    self._resume(rank)

    def _resume(self, rank: _Rank) -> None:
        rank.go.release()
        while not self._back.acquire(timeout=STALLED_S):
            self.stalled(f"rank {rank.number}{_line(sys._current_frames().get(rank.thread.ident or 0))}")

    def _who_waits(self) -> str:
        said: defaultdict[str, list[int]] = defaultdict(list)
        for rank in self._ranks:
            if rank.number in self.dead:
                said["dead"].append(rank.number)
            elif rank.ended:
                said["returned"].append(rank.number)
            else:
                said[f"in {rank.name}"].append(rank.number)
        parts = []
        for what, numbers in said.items():
            one, more = {"dead": ("is", "are"), "returned": ("has", "have")}.get(what, ("waits", "wait"))
            parts.append(f"{named(numbers)} {one if len(numbers) == 1 else more} {what}")
        ordinary = [rank.group for rank in self._ranks if not rank.ended and rank.name not in WHOLE]
        waited_for = any(self.dead & set(group.members) for group in ordinary)
        why = ", and no rank revokes the communicator" if waited_for else ""
        return f"deadlock: {'; '.join(parts)}{why}"


class _Rank:
    """One simulated rank."""

    def __init__(
        self, ranks: SimulatedRanks, number: int, group: _Group, program: Callable[[UlfmCommunicator], object]
    ) -> None:
        self.ranks, self.number, self.group = ranks, number, group
        self.ended = False
        self.error: BaseException | None = None
        self.name = ""  # of the call it waits in
        self.meeting: _Meeting | None = None
        self.answer: Any = None
        self.made = self._undead = 0  # calls
        self.go = threading.Lock()
        self.go.acquire()
        self.thread = threading.Thread(target=self._live, args=(program, SimulatedCommunicator(self, group)))
        self.thread.daemon = True
        self.thread.start()

    def call(self, group: _Group, name: str, value: Any = None, source: int = -1) -> Any:
        """Make a call, in this rank's thread, and wait for its result."""
        death = self._begin(name)
        if death and death.served is None:
            self._die()
        if name == "revoke":
            group.revoked = True
            return None
        self.meeting = None
        if group.revoked and name not in WHOLE:
            raise PeerLost(f"the communicator has been revoked, in {name}")
        self.meeting = group.join(self.number, name, source, value)
        if death:
            self.meeting.served = death.served
            self._die()
        self.group, self.name = group, name
        self._wait()
        answer, self.answer = self.answer, None
        if isinstance(answer, PeerLost):
            raise answer
        return answer

    def may_go_on(self) -> bool:
        """Whether it computes, or its call has come to an end, this way or that."""
        if self.meeting is None or self.answer is not None:
            return True
        missing = [number for number in self.group.members if number not in self.meeting.given]
        if self.name in WHOLE:
            if set(missing) <= self.ranks.dead:
                self.answer = self._agreed(self.meeting, missing)
        elif not missing:
            self.answer = self._result(self.meeting)
        elif self.group.revoked:
            self.answer = self._lost("the communicator has been revoked")
        else:
            noticed = [number for number in missing if number in self.ranks.dead and self._notices(number)]
            if noticed:
                self.answer = self._lost(f"found {named(noticed)} dead")
        return self.answer is not None

    def _begin(self, name: str) -> Death | None:
        if self.number in self.ranks.dead and not self.ranks._ending:
            self.error = Stuck(
                f"rank {self.number} has been killed, and its code goes on with {name}: catch PeerLost only"
            )
        if self.number in self.ranks.dead or self.ranks._ending:
            self._undead += 1
            if self._undead > UNDEAD:  # it will not end: leave it alone
                self.ended = True
                self.ranks._back.release()
                self.go.acquire()
            raise _End
        death = self.ranks.deaths.get((self.number, self.made))
        self.ranks.calls.append(Call(self.number, self.made, name, self.ranks.step_of(self.number)))
        self.made += 1
        if self.made > ENOUGH:
            latest = ", ".join(call.name for call in self.ranks.calls if call.rank == self.number)[-60:]
            raise Stuck(f"rank {self.number} has made {ENOUGH} calls and is not done; the last ones: …{latest}")
        return death

    def _die(self) -> None:
        self.ranks.dead.add(self.number)
        raise _End

    def _wait(self) -> None:
        self.ranks._back.release()
        self.go.acquire()
        if self.ranks._ending:
            raise _End

    def _live(self, program: Callable[[UlfmCommunicator], object], comm: UlfmCommunicator) -> None:
        self.go.acquire()
        try:
            if not self.ranks._ending:
                program(comm)
        except _End:
            pass
        except BaseException as error:
            self.error = self.error or error
        self.ended = True
        self.ranks._back.release()

    def _notices(self, dead: int) -> bool:
        """Whether it is this one that notices that `dead` does not come."""
        members = self.group.members
        after = members[members.index(dead) + 1 :] + members[: members.index(dead)]
        return self.ranks.all_notice or self.number == next(each for each in after if each not in self.ranks.dead)

    def _agreed(self, meeting: _Meeting, missing: list[int]) -> Any:
        if meeting.result is None:
            if meeting.name == "agree":
                meeting.result = all(meeting.given.values()) and not missing
            else:
                meeting.result = _Group(number for number in self.group.members if number in meeting.given)
        return meeting.result

    def _result(self, meeting: _Meeting) -> Any:
        if meeting.served is not None and self.number not in meeting.served:
            return self._lost(f"found {named(sorted(set(self.group.members) & self.ranks.dead))} dead")
        if meeting.result is None:
            given = [meeting.given[number] for number in self.group.members]
            if len({np.shape(each) for each in given}) > 1:
                raise Stuck(f"the arrays in {meeting.name} have the lengths {[np.size(each) for each in given]}")
            self.ranks.met(meeting.name, meeting.given)
            if meeting.name == "all_reduce":
                meeting.result = np.sum(given, axis=0)
            else:
                meeting.result = given if meeting.name == "all_gather" else given[meeting.source]
        return meeting.result

    def _lost(self, why: str) -> PeerLost:
        return PeerLost(f"{why}, in {self.name}")


class SimulatedCommunicator(UlfmCommunicator):
    """The verbs of `ulfm_communicator`, for one of the simulated ranks."""

    def __init__(self, of: _Rank, group: _Group) -> None:
        self._of, self._group = of, group
        self.rank, self.size = group.members.index(of.number), len(group.members)

    def revoke(self) -> None:
        self._of.call(self._group, "revoke")

    def agree(self, flag: bool) -> bool:
        return bool(self._of.call(self._group, "agree", bool(flag)))

    def shrink(self) -> SimulatedCommunicator:
        return SimulatedCommunicator(self._of, self._of.call(self._group, "shrink", True))

    def _all_reduce(self, array: Buffer) -> None:
        self._fill(array, "all_reduce")

    def _all_gather(self, number: int) -> list[int]:
        return list(self._of.call(self._group, "all_gather", number))

    def _broadcast(self, array: Buffer, source: int) -> None:
        self._fill(array, "broadcast", source)

    def _fill(self, array: Buffer, name: str, source: int = -1) -> None:
        try:
            array[...] = self._of.call(self._group, name, array.copy(), source)
        except PeerLost:
            half = array.reshape(-1)[: (array.size + 1) // 2]
            given = self._of.meeting.given if self._of.meeting else {}
            if name == "broadcast" and (sent := given.get(self._group.members[source])) is not None:
                half[:] = np.ravel(sent)[: half.size]
            elif name == "all_reduce":
                half += sum(np.ravel(each)[: half.size] for number, each in given.items() if number != self._of.number)
            raise


def _told(meeting: _Meeting) -> str:
    return meeting.name + (f" from rank {meeting.source}" if meeting.source >= 0 else "")


def _line(frame: FrameType | None) -> str:
    """Return the innermost line that is not this module's, as " at line 7"."""
    while frame is not None and frame.f_code.co_filename in (__file__, threading.__file__):
        frame = frame.f_back
    return f" at line {frame.f_lineno}" if frame else ""
