"""Checks of lab 11: a majority elects, no smaller group does, and no term has two leaders."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from random import Random
from typing import TYPE_CHECKING, Any

from farandole.recovery.election.network import Elected, Network
from farandole.recovery.election.steps import Action, Message, Timer
from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.expectations import expect_returned
from farandole_tools.lab.learner import taken

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

KINDS = ("request vote", "vote", "heartbeat")
GROUPS = ((0,), (0, 1), (2, 5, 11), (0, 1, 2, 3), (4, 3, 2, 1, 0), tuple(range(7)))
SEEDS = range(4)

# Seconds.
STEADY, QUICK, SLOW = (1.0, 1.0), (0.2, 1.0), (1.0, 25.0)  # a message takes between these two
ELECTED = 5.0  # by then an election that nothing disturbs is over: asked, answered, told
ROUND = 20.0  # after so long a member misses the leader
LONG = 150.0

RESTLESS = 60  # plays
EVENTS = 14
ENOUGH = 50_000  # calls in one play; a right answer needs a thousand or two
PATIENCE_S = 10.0  # of a member, and twice as long at most
HEARTBEAT_S = 3.0
MANY = 1000  # actions returned by one call; a right answer has a few more than there are members


@dataclass(frozen=True)
class View:
    """The leader and term known to a member from time `when` on, and the call that set them."""

    when: float
    call: str
    leader: int | None
    term: int


class Watched:
    """A member as submitted: its actions are checked before they are executed, and its leader and term are recorded."""

    def __init__(self, play: Play, student: Any, number: int, numbers: Sequence[int], seed: int) -> None:
        self.play, self.number, self.numbers = play, number, numbers
        self.views: list[View] = []
        self._member = student.Member(number, list(numbers), Random(f"{seed} {number}"))
        self.leader: int | None
        self.term: int
        self._look()

    def start(self) -> list[Action]:
        return self._looked_at("start()", self._member.start())

    def receive(self, message: Message) -> list[Action]:
        answer = self._member.receive(message)
        return self._looked_at(f"receive({message.kind} from {message.sender}, term {message.term})", answer)

    def timeout(self) -> list[Action]:
        return self._looked_at("timeout()", self._member.timeout())

    def _look(self) -> None:
        for name in ("leader", "term"):
            expect(hasattr(self._member, name), f"a Member has no {name}: it is to be set in __init__")
        self.leader, self.term = leader, term = self._member.leader, self._member.term
        expect(
            leader is None or leader in self.numbers,
            f"member {self.number}'s leader is {told(leader)}: there is no such member",
        )
        expect(isinstance(term, int), f"member {self.number}'s term is {told(term)}, where a number is needed")

    def _looked_at(self, call: str, answer: Any) -> list[Action]:
        self.play.called()
        who = f"member {self.number}'s {call}"
        expect_returned(answer, who)
        needed = "where a list of Message(…) and Timer(…) is needed"
        expect(isinstance(answer, Iterable), f"{who} returns {told(answer)}, {needed}")
        actions = taken(answer, MANY)
        expect(len(actions) < MANY, f"{who} returns something that never ends")
        self._look()
        for action in actions:
            expect(isinstance(action, Message | Timer), f"{who} returns {told(action)}, {needed}")
            if isinstance(action, Message):
                self._expect_right_message(who, action)
            else:
                expect(is_time(action.seconds), f"{who} returns {told(action)}: seconds is a number above 0")
        view = View(self.play.now, call, self.leader, self.term)
        if not self.views or (view.leader, view.term) != (self.views[-1].leader, self.views[-1].term):
            self.views.append(view)
        return actions * self.play.copies

    def _expect_right_message(self, who: str, message: Message) -> None:
        sent = f"{who} sends {told(message)}"
        expect(message.kind in KINDS, f"{sent}: the kinds are {', '.join(map(repr, KINDS))}")
        expect(message.sender == self.number, f"{sent}: the sender is {self.number}")
        expect(message.to != self.number, f"{sent}, to itself")
        expect(message.to in self.numbers, f"{sent}: there is no member {told(message.to)}")
        expect(message.term == self.term, f"{sent}, but is in term {self.term}")


class Play(Network):
    """Members as submitted, on a network, and what is seen of them there.

    Args:
        copies: how many times each message is sent; each copy takes its own time.
    """

    def __init__(
        self,
        student: Any,
        numbers: Sequence[int],
        seed: int = 0,
        delay_s: tuple[float, float] = QUICK,
        copies: int = 1,
    ) -> None:
        self.copies = copies
        self.calls = 0
        self.numbers = list(numbers)
        self.members = {number: Watched(self, student, number, self.numbers, seed) for number in numbers}
        super().__init__(self.members, delay_s, seed)

    def called(self) -> None:
        self.calls += 1
        often = "does each message cause another, or is a timer too short?"
        expect(self.calls < ENOUGH, f"by {self.now:.1f} s the members have been called {ENOUGH:,} times: {often}")

    def elects(self, until: float, but: int | None = None) -> bool:
        """Run until a member other than `but` is elected, at most until `until`; return whether one was."""
        while not (found := any(elected.number != but for elected in self.elected)) and self.now < until:
            self.run(min(self.now + ROUND, until))
        return found

    def agree(self) -> bool:
        """Return whether all living members follow the same living leader, in the same term."""
        beliefs = {(leader, self.members[number].term) for number, leader in self.leaders().items()}
        return len(beliefs) == 1 and beliefs.pop()[0] in self.leaders()

    def beliefs(self) -> str:
        """ "1 leads (term 3), 0 and 2 follow 1 (term 3), 4 knows of no leader (term 7)"."""
        found: dict[tuple[str, str, int], list[int]] = {}
        for number, leader in self.leaders().items():
            one, more = ("leads", "lead") if leader == number else (f"follows {leader}", f"follow {leader}")
            if leader is None:
                one, more = "knows of no leader", "know of no leader"
            found.setdefault((one, more, self.members[number].term), []).append(number)
        return ", ".join(
            f"{listed(numbers)} {more if len(numbers) > 1 else one} (term {term})"
            for (one, more, term), numbers in found.items()
        )

    def votes(self, elected: Elected) -> set[int]:
        """Return the members whose votes of that term it had when it began to lead, itself included."""
        return {elected.number} | {
            message.sender
            for _, arrived, message in self.messages
            if (message.kind, message.to, message.term) == ("vote", elected.number, elected.term)
            and arrived is not None
            and arrived <= elected.when
        }

    def candidacies(self) -> dict[tuple[int, int], float]:
        """Return (number, term) → when it requested votes."""
        asked: dict[tuple[int, int], float] = {}
        for sent, _, message in self.messages:
            if message.kind == "request vote":
                asked.setdefault((message.sender, message.term), sent)
        return asked

    def expect_majorities(self) -> None:
        """No term had two leaders, and no member has led with too few votes."""
        led: dict[int, Elected] = {}
        for elected in self.elected:
            other = led.setdefault(elected.term, elected)
            if other.number != elected.number:
                both = self.votes(other) & self.votes(elected)
                which = min(other, elected, key=lambda one: len(self.votes(one)))
                why = f"{members(both)} voted for both" if both else f"{which.number} had only {self._share(which)}"
                two = f"{other.number} from {other.when:.1f} s and {elected.number} from {elected.when:.1f} s"
                expect(False, f"term {elected.term} had two leaders, {two}: {why}")
        for elected in self.elected:
            expect(
                2 * len(self.votes(elected)) > len(self.numbers),
                f"at {elected.when:.1f} s member {elected.number} begins to lead in term {elected.term} with only "
                + self._share(elected),
            )

    def _share(self, elected: Elected) -> str:
        votes = self.votes(elected)
        whose = f"its own vote: {len(votes)}" if len(votes) == 1 else f"the votes of {listed(votes)}: {len(votes)}"
        return f"{whose} of {len(self.numbers)}"


def check_agree(student: Any, comm: LabCommunicator) -> None:
    for numbers in GROUPS:
        for starter in numbers:
            with comm.case(f"{group(numbers)}, {starter} starts"):
                play = Play(student, numbers, delay_s=STEADY)
                term = play.members[starter].term
                expect(term == 0, f"member {starter} is in term {term} at the beginning, which is term 0")
                play.start(starter)
                play.run(ELECTED)
                expect(play.agree(), f"nothing is in the way, and at {ELECTED:g} s {play.beliefs()}")


def check_cost(student: Any, comm: LabCommunicator) -> None:
    for numbers in GROUPS:
        with comm.case(f"{group(numbers)}, {numbers[0]} starts"):
            play = Play(student, numbers, delay_s=STEADY)
            play.start(numbers[0])
            play.run(2.5)  # asked at 0, answered at 1, told at 2; the next heartbeat is not due yet
            for kind in KINDS:
                sent, right = play.sent[kind], len(numbers) - 1
                expect(sent == right, f"by 2.5 s {sent} {kind!r} messages have been sent, where {right} would be right")


def check_heartbeats(student: Any, comm: LabCommunicator) -> None:
    for numbers in GROUPS:
        for seed in SEEDS:
            with comm.case(f"{group(numbers)}, {numbers[0]} starts"):
                play = Play(student, numbers, seed)
                play.start(numbers[0])
                play.run(LONG)
                expect(play.elected, f"at {LONG:g} s no member has been elected")
                expect_not_disturbed(play, play.elected[0])
    expect_right_timers(student, comm)


def expect_right_timers(student: Any, comm: LabCommunicator) -> None:
    """Check, with messages made by hand, which events set the timer, and to how many seconds."""
    with comm.case("5 members, 0 starts"):
        candidate, twin = (Play(student, range(5)).members[0] for _ in range(2))
        seconds, other = timer(candidate.start()), timer(twin.start())
        expect_patient(seconds)
        expect(seconds == other, f"with the same rng it waits {seconds} s, and {other} s: draw from rng alone")
        expect_no_timer(candidate, Message("vote", 1, 0, candidate.term), "1 votes for it, and it has no majority yet")
        seconds = timer(candidate.receive(Message("vote", 2, 0, candidate.term)))
        expect(
            seconds in (None, HEARTBEAT_S),
            f"it leads, and sets its timer to {seconds} s: a leader's heartbeats are {HEARTBEAT_S:g} s apart",
        )
    with comm.case("5 members, 1 requests the vote of 0 in term 1"):
        voter = Play(student, range(5)).members[0]
        expect_patient(timer(voter.receive(Message("request vote", 1, 0, 1))))
        expect_no_timer(voter, Message("request vote", 2, 0, 1), "2 requests a vote in the same term and gets none")
        expect_patient(timer(voter.receive(Message("heartbeat", 1, 0, 1))))
        expect_no_timer(voter, Message("request vote", 3, 0, 0), "3 requests a vote in term 0, which is over")


def timer(actions: Sequence[Action]) -> float | None:
    """Return the seconds of the last timer that is set."""
    return next((action.seconds for action in reversed(actions) if isinstance(action, Timer)), None)


def expect_patient(seconds: float | None) -> None:
    expect(
        seconds is None or PATIENCE_S <= seconds <= 2 * PATIENCE_S,
        f"it sets its timer to {seconds} s: a member waits for the leader between {PATIENCE_S:g} and "
        f"{2 * PATIENCE_S:g} s",
    )


def expect_no_timer(member: Watched, message: Message, why: str) -> None:
    actions = member.receive(message)
    if not any(isinstance(action, Message) for action in actions):  # one that votes or leads is another mistake
        text = f"{why}: it restarts its timer, but only heartbeats, its own vote and its own candidacy may"
        expect(timer(actions) is None, text)


def expect_not_disturbed(play: Play, leader: Elected) -> None:
    """No member, the leader included, has begun a new term."""
    for (number, term), when in play.candidacies().items():
        if term <= leader.term:
            continue
        text = f"at {when:.1f} s member {number} begins term {term}"
        expect(number != leader.number, f"{text}, although it has led since {leader.when:.1f} s itself")
        heard = [
            arrived
            for _, arrived, message in play.messages
            if (message.kind, message.to) == ("heartbeat", number) and arrived is not None and arrived <= when
        ]
        came = f"came {when - max(heard):.1f} s before" if heard else "has not come yet"
        expect(False, f"{text}, although {leader.number} leads and is alive: {leader.number}'s last heartbeat {came}")


def check_successor(student: Any, comm: LabCommunicator) -> None:
    for numbers in GROUPS[2:]:
        for seed in SEEDS:
            leader = numbers[seed % len(numbers)]
            with comm.case(f"{group(numbers)}, {leader} starts"):
                play = Play(student, numbers, seed)
                play.start(leader)
                play.run(20)
                play.kill(leader)
                another = play.elects(20 + LONG, but=leader)
                expect(another, f"{leader} dies at 20 s, and at {play.now:g} s {play.beliefs()}")
                play = Play(student, numbers, seed, STEADY)
                play.start(leader)
                play.run(1.5)
                play.kill(leader)
                another = play.elects(LONG, but=leader)
                dies = "dies at 1.5 s, when it has been voted for and does not lead yet"
                expect(another, f"{leader} {dies}; at {play.now:g} s {play.beliefs()}")


def check_majority(student: Any, comm: LabCommunicator) -> None:
    for size in range(2, 8):
        for seed in SEEDS:
            few, enough = few_of(size, seed), few_of(size, seed, size // 2 + 1)
            for cut in (False, True):
                with comm.case(f"{size} members, and {listed(few)} {reach(few, cut)}"):
                    expect_none_elected(without_the_others(student, size, few, seed, cut))
            with comm.case(f"{size} members, and {listed(enough)} {reach(enough)}"):
                play = without_the_others(student, size, enough, seed)
                expect(play.elects(LONG), f"that is a majority, and at {play.now:g} s {play.beliefs()}")


def few_of(size: int, seed: int, number: int | None = None) -> list[int]:
    """Some of the members, by default as many as are just no majority."""
    return sorted(Random(seed).sample(range(size), size // 2 if number is None else number))


def reach(few: Sequence[int], cut: bool = False) -> str:
    if cut:
        return f"{'reaches' if len(few) == 1 else 'reach'} no other"
    return f"alone {'lives' if len(few) == 1 else 'live'}"


def without_the_others(
    student: Any, size: int, few: Sequence[int], seed: int, cut: bool = False, copies: int = 1
) -> Play:
    """One of `few` starts, and the others cannot be reached: cut off, or dead."""
    play = Play(student, range(size), seed, copies=copies)
    others = set(range(size)) - set(few)
    if cut:
        play.cut([few, others])
    else:
        for number in others:
            play.kill(number)
    play.start(few[seed % len(few)])
    return play


def expect_none_elected(play: Play) -> None:
    play.run(LONG)
    for elected in play.elected:
        votes = f"with the votes of {listed(play.votes(elected))}: {len(play.votes(elected))} of {len(play.numbers)}"
        expect(False, f"at {elected.when:.1f} s member {elected.number} begins to lead, {votes}")


def check_one_leader(student: Any, comm: LabCommunicator) -> None:
    expect_nothing_of_old_votes(student, comm)
    expect_one_leader_in_restless_plays(student, comm)


def expect_nothing_of_old_votes(student: Any, comm: LabCommunicator) -> None:
    """Check with messages made by hand: on the network a message is seldom so late."""
    candidate = Play(student, range(5)).members[0]
    candidate.start()
    old = candidate.term
    candidate.timeout()
    with comm.case(
        f"5 members; 0 is a candidate in term {old}, receives nothing, and is one again in term {candidate.term}"
    ):
        expect(candidate.term > old, "each time needs a new term, or votes for the one count in the other")
        expect(candidate.term == old + 1, f"it goes on from term {old} to {candidate.term}: the next one is {old + 1}")
        for other in (1, 2, 3):
            candidate.receive(Message("vote", other, 0, old))
        expect(candidate.leader is None, f"it leads in term {candidate.term} when votes of term {old} come")
    voter = Play(student, range(5)).members[0]
    with comm.case("5 members; 0 receives the heartbeat of 1, which leads in term 3"):
        voter.receive(Message("heartbeat", 1, 0, 3))
        votes = any(isinstance(action, Message) for action in voter.receive(Message("request vote", 2, 0, 2)))
        expect(not votes, "it votes for 2, a candidate in term 2")


def expect_one_leader_in_restless_plays(student: Any, comm: LabCommunicator, copies: int = 1) -> None:
    ever = 0
    for seed in range(RESTLESS):
        size = 2 + seed % 6
        with comm.case(f"{size} members, all start at 0 s"):
            play = Play(student, range(size), seed, copies=copies)
            disturb(play, Random(seed))
            play.expect_majorities()
            ever += len(play.elected)
    expect(ever, f"all have started, in {RESTLESS} different cases, and no member has ever been elected")


def disturb(play: Play, random: Random) -> None:
    """Members die, are cut off and back, messages are slow and quick again; a majority lives."""
    play.start(*play.numbers)
    for _ in range(EVENTS):
        play.run(play.now + random.uniform(0, 15))
        one = random.choice(play.numbers)
        match random.choice(("kill", "cut", "cut", "heal", "start", "slow", "quick")):
            case "kill" if 2 * len(play.dead | {one}) < len(play.numbers):
                play.kill(one)
            case "cut":
                part = set(random.sample(play.numbers, random.randint(1, len(play.numbers))))
                play.cut([part, set(play.numbers) - part])
            case "start":
                play.start(one)
            case "slow":
                play.delay_s = SLOW
            case "quick":
                play.delay_s = QUICK
            case _:
                play.heal()


def check_heal(student: Any, comm: LabCommunicator) -> None:
    for size in (3, 4, 5, 7):
        for seed in SEEDS:
            leader, *others = Random(seed).sample(range(size), size)
            for part in ([leader, *others[: size // 2 - 1]], others[:1], others[: size // 2]):
                cut = f"{listed(part)} {'is' if len(part) == 1 else 'are'} cut off"
                with comm.case(f"{size} members, {leader} starts, and from 20 to 100 s {cut}"):
                    play = Play(student, range(size), seed)
                    play.start(leader)
                    play.run(20)
                    play.cut([part, set(range(size)) - set(part)])
                    play.run(100)
                    play.heal()
                    play.run(100 + LONG)
                    expect_right_views(play)
                    expect(play.agree(), f"at {play.now:g} s {play.beliefs()}")


def expect_right_views(play: Play) -> None:
    """No member went back to an older term, and none was taken for the leader of a term that was not."""
    since = {(elected.number, elected.term): elected.when for elected in reversed(play.elected)}
    for member in play.members.values():
        for before, view in pairwise(member.views):
            where = f"at {view.when:.1f} s, by {view.call},"
            text = f"{where} member {member.number} goes back from term {before.term} to {view.term}"
            expect(view.term >= before.term, text)
            right = view.leader is None or since.get((view.leader, view.term), math.inf) <= view.when
            text = f"{where} member {member.number} takes {view.leader} for the leader of term {view.term}: it is not"
            kept = view.leader == before.leader and view.term > before.term
            expect(right, text + ", and of a new term no leader is known yet" * kept)


def check_split_votes(student: Any, comm: LabCommunicator) -> None:
    for size in range(2, 8):
        for seed in range(16 if size == 2 else 4):  # two with nearly equal time-outs collide only sometimes
            for delay_s in (STEADY, QUICK):
                with comm.case(f"{size} members, all start at 0 s"):
                    play = Play(student, range(size), seed, delay_s)
                    play.start(*range(size))
                    expect(play.elects(2 * LONG), f"by {play.now:g} s no member has been elected; {begun(play)}")
    with comm.case("3 members, 0 and 1 start at 0 s"):
        play = Play(student, range(3), delay_s=STEADY)
        play.start(0, 1)
        play.run(ELECTED)
        text = f"one of them wins, the other receives its heartbeat, and at {ELECTED:g} s"
        expect(play.agree(), f"{text} {play.beliefs()}")


def begun(play: Play) -> str:
    """Return when the first two requested votes; it may have been at the same times."""
    times: dict[int, list[float]] = {}
    for (number, _), when in play.candidacies().items():
        times.setdefault(number, []).append(when)
    first = [f"{number} requested votes at {clock(moments)}" for number, moments in sorted(times.items())[:2]]
    return ", ".join(first) or "no member has requested votes"


def check_duplicates(student: Any, comm: LabCommunicator) -> None:
    for size in range(2, 8):
        for seed in SEEDS:
            few = few_of(size, seed)
            with comm.case(f"{size} members, and {listed(few)} {reach(few)}; every message comes twice"):
                expect_none_elected(without_the_others(student, size, few, seed, copies=2))
        with comm.case(f"{size} members, 0 starts; every message comes twice"):
            play = Play(student, range(size), copies=2)
            play.start(0)
            play.run(ELECTED)
            expect(play.agree(), f"at {ELECTED:g} s {play.beliefs()}")
    expect_one_leader_in_restless_plays(student, comm, copies=2)


def is_time(seconds: Any) -> bool:
    return seconds is None or (isinstance(seconds, Real) and 0 < float(seconds) < math.inf)


def told(thing: Any) -> str:
    if isinstance(thing, Message):
        return f"Message({thing.kind!r}, {thing.sender!r}, {thing.to!r}, {thing.term!r})"[:100]
    return repr(thing)[:100]


def listed(numbers: Iterable[int]) -> str:
    """ "0, 1 and 2"."""
    *others, last = map(str, sorted(numbers))
    return f"{', '.join(others)} and {last}" if others else last


def members(numbers: Collection[int]) -> str:
    return f"member {listed(numbers)}" if len(numbers) == 1 else f"members {listed(numbers)}"


def group(numbers: Sequence[int]) -> str:
    return members(numbers) if len(numbers) > 1 else f"{numbers[0]} is the only member"


def clock(moments: Sequence[float]) -> str:
    return ", ".join(f"{when:.1f}" for when in moments[:4]) + (" … s" if len(moments) > 4 else " s")


LAB = Lab(
    title="Election",
    file="election.py",
    patience=5.0,
    checks=(
        Check("agree", 1, (1,), check_agree),
        Check("cost", 1, (1,), check_cost, needs=("agree",), builds_on=("agree",)),
        Check("heartbeats", 1, (1,), check_heartbeats, builds_on=("agree",)),
        Check("successor", 1, (1,), check_successor, builds_on=("agree",)),
        Check("majority", 1, (1,), check_majority, builds_on=("agree",)),
        Check("one leader", 2, (1,), check_one_leader, builds_on=("majority",)),
        Check("heal", 1, (1,), check_heal, builds_on=("agree", "heartbeats")),
        Check("split votes", 1, (1,), check_split_votes, builds_on=("agree", "majority")),
        Check("duplicates", 1, (1,), check_duplicates, builds_on=("agree", "majority", "one leader")),
    ),
)
