"""The vocabulary of elections.

A node is told three things: that the leader is missed, that a message has come, that its timer has
run out. It answers with what it wants done: messages sent, its timer set. It knows neither a network
nor a clock, so the same node runs over MPI, in a test through every order of events, and in a drawing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Message:
    """`sender` tells `to` something.

    Attributes:
        kind: what; each method has its own words.
        term: the election it belongs to, where a method numbers them.
        node: whom it is about, where that is not the sender.
    """

    kind: str
    sender: int
    to: int
    term: int = 0
    node: int = -1


@dataclass(frozen=True)
class Timer:
    """Tell me when `seconds` have passed, and forget the timer set before; None: only forget."""

    seconds: float | None


Action = Message | Timer


class Node(Protocol):
    """One member's part of an election.

    Attributes:
        number: who it is.
        leader: whom it takes for the leader; None while it knows of none.
        term: of the last election it knows of, where a method numbers them; else 0.
    """

    number: int
    leader: int | None
    term: int

    def start(self) -> list[Action]:
        """The leader is missed: elect one."""
        ...

    def receive(self, message: Message) -> list[Action]:
        """A message has come."""
        ...

    def timeout(self) -> list[Action]:
        """The timer has run out."""
        ...
