"""The events and actions of elections.

A node has three events: the leader is missed, a message has arrived, its timer has
expired. It answers with actions: messages to send, its timer to set. It knows neither a network
nor a clock, so the same node runs over MPI, in a test through every order of events, and in a drawing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Message:
    """A message from `sender` to `to`.

    Attributes:
        kind: each method has its own kinds.
        term: the election it belongs to, where a method numbers them.
        node: the node that it is about, where that is not the sender.
    """

    kind: str
    sender: int
    to: int
    term: int = 0
    node: int = -1


@dataclass(frozen=True)
class Timer:
    """Set the timer to expire after `seconds`, in place of the previous one; None: stop it."""

    seconds: float | None


Action = Message | Timer


class Node(Protocol):
    """One member's part of an election.

    Attributes:
        number: the member's.
        leader: the member that it follows; None while it knows no leader.
        term: of the last election it knows of, where a method numbers them; else 0.
    """

    number: int
    leader: int | None
    term: int

    def start(self) -> list[Action]:
        """Begin an election, since the leader is missed."""
        ...

    def receive(self, message: Message) -> list[Action]:
        """Handle a message that has arrived."""
        ...

    def timeout(self) -> list[Action]:
        """Handle the timer's end."""
        ...
