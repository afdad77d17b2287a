"""One of the simulated ranks: its calls, and the answer to each, as `ulfm_communicator` promises it and no better."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from farandole_tools.lab.rank_status import named
from farandole_tools.lab.rank_threads import Answer, Made
from farandole_tools.lab.ulfm_communicator import expect_array

if TYPE_CHECKING:
    from farandole_tools.lab.simulated_ranks import SimulatedRanks

WHOLE = ("agree", "shrink")  # whichever rank dies
VERBS = {  # the calls, and the type of what each is given
    "revoke": NoneType,
    "agree": bool,
    "shrink": NoneType,
    "all_gather": int,
    "all_reduce": np.ndarray,
    "broadcast": np.ndarray,
}
ENOUGH = 400  # calls of one rank; a right answer needs some dozens


class Stuck(Exception):
    """The living ranks wait, and none can continue; or one never ends."""


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
class Meeting:
    """One collective call of a group."""

    name: str
    source: int
    given: dict[int, Any] = field(default_factory=dict)
    served: frozenset[int] | None = None
    result: Any = None


class Group:
    """The members of a communicator, and the calls they meet in. Of each kind the first meets the first."""

    def __init__(self, members: Iterable[int]) -> None:
        self.members = list(members)
        self.revoked = False
        self.meetings: defaultdict[str, list[Meeting]] = defaultdict(list)
        self.come: defaultdict[tuple[str, int], int] = defaultdict(int)

    def join(self, number: int, name: str, source: int, value: Any) -> Meeting:
        kind = name if name in WHOLE else "ordinary"
        index = self.come[kind, number]
        self.come[kind, number] += 1
        if index == len(self.meetings[kind]):
            self.meetings[kind].append(Meeting(name, source))
        meeting = self.meetings[kind][index]
        if (meeting.name, meeting.source) != (name, source):
            others = f"{named(sorted(meeting.given))} {'is' if len(meeting.given) == 1 else 'are'} in {_told(meeting)}"
            raise Stuck(f"{others}, rank {number} in {_told(Meeting(name, source))}: do all make the same calls?")
        meeting.given[number] = value
        return meeting


class SimulatedRank:
    """One simulated rank."""

    def __init__(self, ranks: SimulatedRanks, number: int, group: Group) -> None:
        self.ranks, self.number = ranks, number
        self.groups = [group]  # its communicators, by number
        self.group = group  # of the call it waits in
        self.begun = self.ended = False
        self.made = Made("", 0)
        self.meeting: Meeting | None = None
        self.answer: Answer | None = None
        self._count = 0  # of calls

    def make(self, made: Made) -> None:
        """Make a call. A revoke, a call of a revoked communicator and a death are answered at once."""
        self.group = self._checked(made)
        self.made, self.meeting = made, None
        death = self._begin(made.name)
        if death and death.served is None:
            self._die()
        elif made.name == "revoke":
            self.group.revoked = True
            self.answer = Answer()
        elif self.group.revoked and made.name not in WHOLE:
            self._lose("the communicator has been revoked")
        else:
            self.meeting = self.group.join(self.number, made.name, made.source, made.value)
            if death:
                self.meeting.served = death.served
                self._die()

    def may_go_on(self) -> bool:
        """Return whether its program can continue: it has not begun, or there is an answer to its call."""
        if self.meeting is None or self.answer is not None:
            return True
        missing = [number for number in self.group.members if number not in self.meeting.given]
        if self.made.name in WHOLE:
            if set(missing) <= self.ranks.dead:
                self._agree(self.meeting, missing)
        elif not missing:
            self._complete(self.meeting)
        elif self.group.revoked:
            self._lose("the communicator has been revoked")
        else:
            noticed = [number for number in missing if number in self.ranks.dead and self._notices(number)]
            if noticed:
                self._lose(f"found {named(noticed)} dead")
        return self.answer is not None

    def taken_answer(self) -> Answer | None:
        """Return the answer to its call, None if it begins."""
        answer, self.answer = self.answer, None
        self.begun = True
        if answer and answer.lost and self.made.name in ("all_reduce", "broadcast"):
            return replace(answer, value=self._spoiled())
        return answer

    def _checked(self, made: Made) -> Group:
        """Return the group of a call, the parts of which may come from another process.

        Raises:
            TypeError, ValueError: there is no such call.
        """
        if made.name not in VERBS or self.ranks.size_of(self.number, made.group) is None:
            raise ValueError(f"there is no call {made.name!r:.20} of communicator {made.group!r:.20}")
        group = self.groups[made.group]
        if made.name in ("all_reduce", "broadcast"):
            expect_array(made.name, made.value)
        elif type(made.value) is not VERBS[made.name]:
            raise TypeError(f"{made.name} of {type(made.value).__name__:.20}")
        sources = range(len(group.members)) if made.name == "broadcast" else [-1]
        if type(made.source) is not int or made.source not in sources:
            raise ValueError(f"{made.name} from rank {made.source!r:.20}")
        return group

    def _begin(self, name: str) -> Death | None:
        death = self.ranks.deaths.get((self.number, self._count))
        self.ranks.calls.append(Call(self.number, self._count, name, self.ranks.step_of(self.number)))
        self._count += 1
        if self._count > ENOUGH:
            latest = ", ".join(call.name for call in self.ranks.calls if call.rank == self.number)[-60:]
            raise Stuck(f"rank {self.number} has made {ENOUGH} calls and is not done; the last ones: …{latest}")
        return death

    def _die(self) -> None:
        self.ranks.dead.add(self.number)
        self.answer = Answer(killed=True)

    def _notices(self, dead: int) -> bool:
        """Whether it is this one that notices that `dead` does not come."""
        members = self.group.members
        after = members[members.index(dead) + 1 :] + members[: members.index(dead)]
        return self.ranks.all_notice or self.number == next(each for each in after if each not in self.ranks.dead)

    def _agree(self, meeting: Meeting, missing: list[int]) -> None:
        if meeting.result is None:
            if meeting.name == "agree":
                meeting.result = all(meeting.given.values()) and not missing
            else:
                meeting.result = Group(number for number in self.group.members if number in meeting.given)
        value = meeting.result
        if isinstance(value, Group):
            self.groups.append(value)
            value = len(self.groups) - 1, value.members.index(self.number), len(value.members)
        self.answer = Answer(value)

    def _complete(self, meeting: Meeting) -> None:
        if meeting.served is not None and self.number not in meeting.served:
            self._lose(f"found {named(sorted(set(self.group.members) & self.ranks.dead))} dead")
            return
        if meeting.result is None:
            given = [meeting.given[number] for number in self.group.members]
            if len({np.shape(each) for each in given}) > 1:
                raise Stuck(f"the arrays in {meeting.name} have the lengths {[np.size(each) for each in given]}")
            self.ranks.met(meeting.name, meeting.given)
            if meeting.name == "all_reduce":
                meeting.result = np.sum(given, axis=0)
            else:
                meeting.result = given if meeting.name == "all_gather" else given[meeting.source]
        self.answer = Answer(meeting.result)

    def _lose(self, why: str) -> None:
        self.answer = Answer(lost=f"{why}, in {self.made.name}")

    def _spoiled(self) -> Any:
        """Return what the array of a call that has failed then holds: a part of what it should."""
        array = np.array(self.made.value)
        half = array.reshape(-1)[: (array.size + 1) // 2]
        given = self.meeting.given if self.meeting else {}
        if self.made.name == "all_reduce":
            half += sum(np.ravel(each)[: half.size] for number, each in given.items() if number != self.number)
        elif (sent := given.get(self.group.members[self.made.source])) is not None:
            half[:] = np.ravel(sent)[: half.size]
        return array


def _told(meeting: Meeting) -> str:
    return meeting.name + (f" from rank {meeting.source}" if meeting.source >= 0 else "")
