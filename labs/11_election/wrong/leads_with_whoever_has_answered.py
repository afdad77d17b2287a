"""Counts when its timer runs out, and leads if anybody has voted for it: who is silent is taken for dead."""

from __future__ import annotations

from farandole.recovery.election.steps import Message, Timer

FAILS = {
    "majority": "1 and 3 alone live: at 11.4 s member 1 begins to lead, with the votes of 1 and 3: 2 of 4",
    "one leader": "begins to lead in term 9 with only the votes of 1 and 3: 2 of 4",
    "duplicates": "with the votes of 1 and 3: 2 of 4",
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
        if message.term < self.term:
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
        if self.leader is None and len(self.votes) > 1:
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
