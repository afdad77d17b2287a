"""Counts votes that were meant for a candidacy of an older term."""

from __future__ import annotations

from farandole.recovery.election.steps import Message, Timer

FAILS = {
    "one leader": "it leads in term 2 when votes of term 1 come",
    "duplicates": "begins to lead in term 6 with only the votes of 1 and 2: 2 of 4",
}


class Member:
    def __init__(self, number, members, rng):
        self.number = number
        self.others = [member for member in members if member != number]
        self.majority = len(members) // 2 + 1
        self.rng = rng
        self.leader, self.term = None, 0
        self.voted_for, self.votes = None, set()

    def start(self):
        self.enter(self.term + 1)
        self.voted_for = self.number
        self.votes.add(self.number)
        return [*self.tell_all("request vote"), self.patience(), *self.lead_if_elected()]

    def receive(self, message):
        if message.term < self.term and message.kind != "vote":
            return []
        if message.term > self.term:
            self.enter(message.term)
        if message.kind == "heartbeat":
            self.leader = message.sender
            return [self.patience()]
        if message.kind == "vote":
            self.votes.add(message.sender)
            return self.lead_if_elected()
        if self.voted_for is None:
            self.voted_for = message.sender
            return [Message("vote", self.number, message.sender, self.term), self.patience()]
        return []

    def timeout(self):
        if self.leader == self.number:
            return self.lead()
        return self.start()

    def enter(self, term):
        self.term = term
        self.leader = None
        self.voted_for, self.votes = None, set()

    def lead_if_elected(self):
        if self.leader is None and len(self.votes) >= self.majority:
            return self.lead()
        return []

    def lead(self):
        self.leader = self.number
        return [*self.tell_all("heartbeat"), Timer(3.0)]

    def tell_all(self, kind):
        return [Message(kind, self.number, other, self.term) for other in self.others]

    def patience(self):
        return Timer(self.rng.uniform(10.0, 20.0))
