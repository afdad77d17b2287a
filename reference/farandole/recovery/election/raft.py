"""Raft's election: a leader needs the votes of a majority, and each member has one vote per term.

    no heartbeat for a while     begin a new term, vote for itself, request the votes of all others
    a request in a new term      vote for the first candidate that requests it
    votes of a majority          lead, and send heartbeats
    a higher term is seen        follow, in any state

Two majorities share a member, which votes once: so no term has two leaders, however the network is partitioned.
(A member that is started again must still know its vote, or be a new member.) The smaller part of a partitioned network
has no leader, and so makes no decision that the larger one does not know. The time before a member begins is drawn at
random; otherwise all would begin at once and split the votes. An undisturbed election among n costs 2(n − 1) messages,
and n − 1 to announce the leader.

This is the election alone. Raft's log, which also restricts the candidates, is not needed where the leader only
coordinates a training. Source: Ongaro & Ousterhout, "In search of an understandable consensus
algorithm", 2014.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from farandole.recovery.election.steps import Action, Message, Timer


class Raft:
    """One member.

    Args:
        members: all, dead or alive, itself included; a majority is of these.
        patience_s: the election time-out lies between this and twice this; much longer than a message takes.
        heartbeat_s: time between two heartbeats of the leader; less than `patience_s`.
        rng: the generator of the time-outs.
    """

    def __init__(
        self,
        number: int,
        members: Sequence[int],
        rng: random.Random,
        patience_s: float = 10.0,
        heartbeat_s: float = 3.0,
    ) -> None:
        self.number = number
        self.others = [member for member in members if member != number]
        self.majority = len(members) // 2 + 1
        self.rng, self.patience_s, self.heartbeat_s = rng, patience_s, heartbeat_s
        self.term = 0
        self.leader: int | None = None
        self.voted_for: int | None = None
        self.votes: set[int] = set()

    def start(self) -> list[Action]:
        self._enter(self.term + 1)
        self.voted_for, self.votes = self.number, {self.number}
        asked = [self._say("request vote", other) for other in self.others]
        return [*asked, self._patience(), *self._lead_if_elected()]

    def receive(self, message: Message) -> list[Action]:
        if message.term < self.term:
            return []  # of an election that is over
        if message.term > self.term:
            self._enter(message.term)
        match message.kind:
            case "request vote" if self.voted_for in (None, message.sender):
                self.voted_for = message.sender
                return [self._say("vote", message.sender), self._patience()]
            case "vote":
                self.votes.add(message.sender)
                return self._lead_if_elected()
            case "heartbeat":
                self.leader = message.sender
                return [self._patience()]
        return []

    def timeout(self) -> list[Action]:
        return self._lead() if self.leader == self.number else self.start()

    def _enter(self, term: int) -> None:
        self.term, self.leader, self.voted_for, self.votes = term, None, None, set()

    def _lead_if_elected(self) -> list[Action]:
        return self._lead() if self.leader is None and len(self.votes) >= self.majority else []

    def _lead(self) -> list[Action]:
        self.leader = self.number
        return [*(self._say("heartbeat", other) for other in self.others), Timer(self.heartbeat_s)]

    def _patience(self) -> Timer:
        return Timer(self.patience_s * (1 + self.rng.random()))

    def _say(self, kind: str, to: int) -> Message:
        return Message(kind, self.number, to, self.term)
