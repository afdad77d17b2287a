"""Lab 11: a correct answer may be written differently, and an invalid one gets a plain message."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole_tools.lab import labs
from farandole_tools.lab.grading import grade
from tests.labs.labs_for_tests import LIMIT_S, on

LAB = labs.find("11")

# Roles, generators, a ballot for every term; only a few different time-outs.
ROLES = """
from farandole.recovery.election.steps import Message, Timer

class Member:
    def __init__(self, number, members, rng):
        self.number, self.members, self.rng = number, frozenset(members), rng
        self.term, self.role, self.leader, self.ballots = 0, "follower", None, {}

    def to_all(self, kind):
        for other in sorted(self.members - {self.number}, reverse=True):
            yield Message(kind=kind, sender=self.number, to=other, term=self.term)

    def start(self):
        self.term += 1
        self.role, self.leader, self.supporters = "candidate", None, {self.number}
        self.ballots[self.term] = self.number
        yield Timer(10 + 9.9 * self.rng.random())
        yield from self.to_all("request vote")
        yield from self.count()

    def count(self):
        if self.role == "candidate" and 2 * len(self.supporters) > len(self.members):
            self.role, self.leader = "leader", self.number
            yield from self.timeout()

    def timeout(self):
        if self.role != "leader":
            return self.start()
        return [Timer(3.0), *self.to_all("heartbeat")]

    def receive(self, message):
        if message.term > self.term:
            self.term, self.role, self.leader = message.term, "follower", None
        elif message.term < self.term:
            return
        if message.kind == "vote" and self.role == "candidate":
            self.supporters.add(message.sender)
            yield from self.count()
        elif message.kind == "heartbeat":
            self.role, self.leader = "follower", message.sender
            yield Timer(self.rng.choice([11.0, 12.5, 14.0, 15.5, 17.0, 18.5]))
        elif message.kind == "request vote" and self.ballots.setdefault(self.term, message.sender) == message.sender:
            yield Message("vote", self.number, message.sender, self.term)
            yield Timer(10 + 9.9 * self.rng.random())
"""

# One immutable state, a table instead of conditions; a repeated request gets only one vote.
ONE_STATE = """
from farandole.recovery.election.steps import Message, Timer

class Member:
    term = property(lambda self: self.state[0])
    leader = property(lambda self: self.state[1])

    def __init__(self, number, members, rng):
        self.number, self.members, self.rng = number, tuple(members), rng
        self.state = 0, None, None, frozenset()  # term, leader, whose is the vote, whose votes have come

    def send(self, kind, *members):
        return tuple(Message(kind, self.number, to, self.term) for to in members if to != self.number)

    def wait(self):
        return (Timer(self.rng.triangular(10, 20)),)

    def start(self):
        self.state = self.term + 1, None, self.number, frozenset({self.number})
        return self.wait() + self.send("request vote", *self.members) + self.won()

    def timeout(self):
        return self.lead() if self.leader == self.number else self.start()

    def won(self):
        return self.lead() if len(self.state[3]) * 2 > len(self.members) else ()

    def lead(self):
        self.state = self.term, self.number, *self.state[2:]
        return (Timer(3.0), *self.send("heartbeat", *self.members))

    def receive(self, message):
        if message.term < self.term:
            return ()
        if message.term > self.term:
            self.state = message.term, None, None, frozenset()
        return {"request vote": self.asked, "vote": self.voted, "heartbeat": self.heard}[message.kind](message.sender)

    def asked(self, sender):
        if self.state[2] is not None:
            return ()
        self.state = *self.state[:2], sender, self.state[3]
        return self.wait() + self.send("vote", sender)

    def voted(self, sender):
        self.state = *self.state[:3], self.state[3] | {sender}
        return self.won() if self.leader is None else ()

    def heard(self, sender):
        self.state = self.term, sender, *self.state[2:]
        return self.wait()
"""


@pytest.mark.parametrize("answer", [ROLES, ONE_STATE], ids=["roles", "one state"])
def test_a_right_answer_need_not_look_like_ours(tmp_path: Path, answer: str) -> None:
    (tmp_path / "mine.py").write_text(answer)
    result = grade(on(LAB, 2), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True)
    assert [check.message for check in result.results if not check.passed] == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def start(self): pass", "member 0's start() returns None: is there a return?"),
        ("def start(self): return 7", "returns 7, where a list of Message(…) and Timer(…) is needed"),
        ("def start(self): return [Timer]", "where a list of Message(…) and Timer(…) is needed"),
        (
            "def start(self):\n        while True: yield Timer(1)",
            "member 0's start() returns something that never ends",
        ),
        ("def wait(self): return (Timer(0),)", "returns Timer(seconds=0): seconds is a number above 0"),
        ("def start(self): return self.send('hello', 1)", "sends Message('hello', 0, 1, 0): the kinds are"),
        ("def start(self): return [Message('vote', 1, 0)]", "sends Message('vote', 1, 0, 0): the sender is 0"),
        ("def start(self): return self.send('vote', 9)", "sends Message('vote', 0, 9, 0): there is no member 9"),
        ("def asked(self, other): return [Message('vote', 1, 0, 5)]", "Message('vote', 1, 0, 5), but is in term 1"),
        ("leader = 'me'", "member 0's leader is 'me': there is no such member"),
        ("term = '1'", "member 0's term is '1', where a number is needed"),
        ("leader = property(lambda self: self.boss)", "a Member has no leader: it is to be set in __init__"),
        ("def timeout(self): return [Timer(1e-9)]", "by 3.0 s the members have been called 50,000 times: does each"),
        ("def receive(self, message):\n        while True: pass", "members 0 and 1, 0 starts: still running after 2 s"),
    ],
)
def test_what_is_no_answer_is_told(tmp_path: Path, body: str, message: str) -> None:
    text = f"{ONE_STATE}\nclass Right(Member):\n    pass\n\nclass Member(Right):\n    {body}\n"
    (tmp_path / "mine.py").write_text(text)
    limit_s = 2 if "still running" in message else LIMIT_S
    result = grade(on(LAB, 1, checks=("heartbeats",)), tmp_path / "mine.py", limit_s=limit_s, ours=True).results[0]
    assert message in result.message
