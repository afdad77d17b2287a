"""The election on a ring: numbers travel round it, and only the highest returns to its sender.

    the leader is missed         send the own number to the next member
    a higher number arrives      forward it
    a lower number arrives       send the own number instead, unless it is on its way already
    the own number arrives       it was the highest: lead, and send that round

With n living members the highest wins. If one starts, the number takes at most n − 1 messages to reach the
highest, whose own needs n to return, and n more to announce it: 3n − 1 at most. If all start, 3n − 1 where
numbers rise along the ring, n(n + 1)/2 + n where they fall. If a death loses a message, the members that have
forwarded it time out and start again.

Source: Chang & Roberts, "An improved algorithm for decentralized extrema-finding in circular
configurations of processes", 1979.
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole.recovery.election.steps import Action, Message, Timer


class Ring:
    """One member.

    Args:
        number: distinct from the others'.
        members: the living ones, in order round the ring, itself included.
        hop_s: the longest time of a message from one member to the next.
    """

    def __init__(self, number: int, members: Sequence[int], hop_s: float = 2.0) -> None:
        self.number = number
        self.members = list(members)
        self.hop_s = hop_s
        self.leader: int | None = None
        self.term = 0
        self.sent = False  # whether the own number, or a higher one, has been sent from here

    @property
    def next(self) -> int:
        return self.members[(self.members.index(self.number) + 1) % len(self.members)]

    def lost(self, member: int) -> None:
        """Close the ring over a dead member."""
        self.members.remove(member)

    def start(self) -> list[Action]:
        self.leader, self.sent = None, True
        return self._send_on(self.number)

    def receive(self, message: Message) -> list[Action]:
        if message.node not in self.members:
            return []  # the number of a dead member would travel for ever
        match message.kind:
            case "election" if message.node == self.number:
                self.leader, self.sent = self.number, False
                return [self._say("elected", self.number), Timer(None)]
            case "election" if message.node > self.number:
                self.sent = True
                return self._send_on(message.node)
            case "election" if not self.sent:
                return self.start()
            case "elected" if message.node != self.number:
                self.leader, self.sent = message.node, False
                return [self._say("elected", message.node), Timer(None)]
        return []

    def timeout(self) -> list[Action]:
        return self.start() if self.leader is None else []

    def _send_on(self, number: int) -> list[Action]:
        """Send a number, and start again if the election does not end in time: a death may lose the message."""
        return [self._say("election", number), Timer(3 * len(self.members) * self.hop_s)]

    def _say(self, kind: str, node: int) -> Message:
        return Message(kind, self.number, self.next, node=node)
