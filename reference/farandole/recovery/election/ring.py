"""The election on a ring: numbers go round, and only the highest comes home.

    the leader is missed      send the own number to the next
    a higher number comes     pass it on
    a lower one comes         send the own number instead, unless it is on its way already
    the own number comes      it was the highest: lead, and send that round

With n members alive the highest wins. If one starts, the number takes at most n − 1 messages to reach the
highest, whose own needs n to come home, and n more to tell: 3n − 1 at most. If all start, 3n − 1 where
numbers rise along the ring, n(n + 1)/2 + n where they fall. A message that a death has swallowed is
missed by those who have sent it on, and they begin anew.

Source: Chang & Roberts, "An improved algorithm for decentralized extrema-finding in circular
configurations of processes", 1979.
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole.recovery.election.steps import Action, Message, Timer


class Ring:
    """One member.

    Args:
        number: its own, distinct from the others'.
        members: those alive, in their order round the ring, itself included.
        hop_s: a message takes at most so long from one member to the next.
    """

    def __init__(self, number: int, members: Sequence[int], hop_s: float = 2.0) -> None:
        self.number = number
        self.members = list(members)
        self.hop_s = hop_s
        self.leader: int | None = None
        self.term = 0
        self.sent = False  # the own number, or a higher one, has gone on from here

    @property
    def next(self) -> int:
        return self.members[(self.members.index(self.number) + 1) % len(self.members)]

    def lost(self, member: int) -> None:
        """It is dead; the ring closes over it."""
        self.members.remove(member)

    def start(self) -> list[Action]:
        self.leader, self.sent = None, True
        return self._send_on(self.number)

    def receive(self, message: Message) -> list[Action]:
        if message.node not in self.members:
            return []  # of somebody who has died since, and would go round for ever
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
        """Who has sent something waits for the end: it may be swallowed, whoever's number it is."""
        return [self._say("election", number), Timer(3 * len(self.members) * self.hop_s)]

    def _say(self, kind: str, node: int) -> Message:
        return Message(kind, self.number, self.next, node=node)
