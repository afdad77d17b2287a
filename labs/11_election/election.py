"""Lab 11: the coordinator has failed, and the remaining members elect a new leader: at most one per term.

Complete `Member`, then: farandole lab check 11
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from farandole.recovery.election.steps import Message, Timer

PATIENCE_S = 10.0  # election time-out: at least this, and less than twice this, drawn at random each time
HEARTBEAT_S = 3.0  # interval between a leader's heartbeats; a message usually takes about 1 second


class Member:
    """One member of an election, by the rules of Raft.

    Its methods are called when it detects the failure of the leader (`start`), when a message arrives
    (`receive`) and when its timer expires (`timeout`). Each returns a list of actions:

        Message(kind, sender, to, term)    send a message from `sender`, this member, to the member `to`
        Timer(seconds)                     call `timeout` after this time; an earlier timer is cancelled

    A message carries its sender's term, and is of one of three kinds:

        "request vote"    a candidate requests a vote in this term
        "vote"            the sender votes for the candidate; a member that does not sends no answer
        "heartbeat"       the sender leads in this term, and is alive

    Messages may arrive late, in another order, or never. A member has no other source of information.

    Attributes:
        leader: the number of the member that leads in `term`; None if this member knows of no leader.
        term: the highest term that this member knows; 0 at the beginning. It never decreases.
    """

    def __init__(self, number: int, members: Sequence[int], rng: Random) -> None:
        """
        Args:
            number: this member's number.
            members: the numbers of all members, dead or alive, this one included; not necessarily 0, 1, 2, …
            rng: the source of all random numbers.
        """
        raise NotImplementedError

    def start(self) -> list[Message | Timer]:
        """Begin a new term as a candidate, and request the votes of all other members.

        A candidate votes for itself. It leads as soon as it has the votes of more than half of `members`, and then
        sends heartbeats at once.
        """
        raise NotImplementedError

    def receive(self, message: Message) -> list[Message | Timer]:
        """Handle a message.

        Ignore a message of an older term. On a message of a newer term, enter that term, without a known
        leader and without a vote given. Then handle the message by its kind.

        A member has one vote per term, and gives it to the first candidate that requests it. The time-out
        restarts when a member votes for a candidate and when it receives a heartbeat.
        """
        raise NotImplementedError

    def timeout(self) -> list[Message | Timer]:
        """Handle an expired timer: send the leader's next heartbeats, or begin a new election."""
        raise NotImplementedError
