"""A simulated network: messages between nodes take time, nodes die, and the network is partitioned.

Events happen in order of their simulated time, so a run takes milliseconds and is the same every time. The seed
decides how long each message takes, and so their order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from farandole.recovery.election.steps import Action, Message, Node, Timer
from farandole.runtime.event_queue import EventQueue


@dataclass(frozen=True)
class Elected:
    """At `when`, `number` began to lead in `term`."""

    when: float
    number: int
    term: int


@dataclass(frozen=True, eq=False)
class Expiry:
    """A timer of node `number` runs out, unless it has been set again meanwhile."""

    number: int


@dataclass
class Network:
    """Delivers the messages of an election.

    Args:
        nodes: number → node, for all nodes.
        delay_s: the shortest and the longest time of a message.
        seed: decides the time of each message.

    Attributes:
        sent: kind → number of messages sent, lost ones included.
        elected: each time at which a node began to lead.
        messages: when each was sent, and when it arrived, perhaps at a node that had died since (None: it was lost).
    """

    nodes: Mapping[int, Node]
    delay_s: tuple[float, float] = (1.0, 1.0)
    seed: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    elected: list[Elected] = field(default_factory=list)
    messages: list[tuple[float, float | None, Message]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = 0.0
        self.dead: set[int] = set()
        self._leading: dict[int, int] = {}  # number → in which term
        self._parts: list[set[int]] = [set(self.nodes)]
        self._rng = random.Random(self.seed)
        self._queue = EventQueue[Message | Expiry]()  # a message arrives, or a timer runs out
        self._timers: dict[int, Expiry] = {}  # number → the end of its timer

    def kill(self, number: int) -> None:
        """Let this node neither send nor receive from now on."""
        self.dead.add(number)
        self._timers.pop(number, None)

    def cut(self, parts: Iterable[Iterable[int]]) -> None:
        """Partition the network: from now on messages arrive only within a part."""
        self._parts = [set(part) for part in parts]

    def heal(self) -> None:
        """End the partition: messages arrive everywhere again."""
        self._parts = [set(self.nodes)]

    def start(self, *numbers: int) -> None:
        """Let these nodes miss their leader now."""
        for number in numbers:
            if number not in self.dead:
                self._act(number, self.nodes[number].start())

    def run(self, until: float = 1e9) -> None:
        """Let all events happen up to that time."""
        for event in self._queue.events(until):
            if isinstance(event, Message):
                self.now = self._queue.now
                if event.to not in self.dead:
                    self._act(event.to, self.nodes[event.to].receive(event))
            elif self._timers.get(event.number) is event:  # else the timer was reset
                self.now = self._queue.now
                del self._timers[event.number]
                self._act(event.number, self.nodes[event.number].timeout())
        self.now = max(self.now, until) if until < 1e9 else self.now

    def leaders(self) -> dict[int, int | None]:
        """Return the leader that each living node knows."""
        return {number: node.leader for number, node in self.nodes.items() if number not in self.dead}

    def _act(self, number: int, actions: Sequence[Action]) -> None:
        node = self.nodes[number]
        leads = node.leader == number
        if leads and self._leading.get(number) != node.term:
            self.elected.append(Elected(self.now, number, node.term))
            self._leading[number] = node.term
        elif not leads:
            self._leading.pop(number, None)
        for action in actions:
            if isinstance(action, Timer):
                self._timers.pop(number, None)
                if action.seconds is not None:
                    expiry = self._timers[number] = Expiry(number)
                    self._queue.add(self.now + action.seconds, expiry)
            else:
                self._send(action)

    def _send(self, message: Message) -> None:
        self.sent[message.kind] += 1
        arrives = self.now + self._rng.uniform(*self.delay_s)
        reached = any({message.sender, message.to} <= part for part in self._parts) and message.to not in self.dead
        self.messages.append((self.now, arrives if reached else None, message))
        if reached:
            self._queue.add(arrives, message)
