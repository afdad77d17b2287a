"""Lab 11: the centre is dead, and the others choose one of themselves: never two in the same term.

Complete `Member`, then: farandole lab check 11
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from farandole.recovery.election.steps import Message, Timer

PATIENCE_S = 10.0  # so long at least, and less than twice as long, a member waits for a sign of the leader
HEARTBEAT_S = 3.0  # so often the leader gives one; a message takes about 1 second, usually


class Member:
    """One member's part of an election, by the rules of Raft.

    It is told that the leader is missed (`start`), that a message has come (`receive`) or that its
    timer has run out (`timeout`), and answers with a list of what is to be done:

        Message(kind, sender, to, term)    a message of `sender`, itself, is sent to the member `to`
        Timer(seconds)                     `timeout` is called when so much time has passed; a timer set before is off

    A message bears the term in which its sender is, and is of one of three kinds:

        "request vote"    a candidate asks for a vote in this term
        "vote"            here it is; a member that does not vote for a candidate does not answer
        "heartbeat"       the sender leads in this term, and lives

    Messages may come late, in another order, or never. A member knows nothing but what it is told.

    Attributes:
        leader: the number of the member that leads in `term`; None while it knows of none.
        term: the highest of which it knows; 0 in the beginning, and never less than before.
    """

    def __init__(self, number: int, members: Sequence[int], rng: Random) -> None:
        """
        Args:
            number: its own.
            members: the numbers of all, dead or alive, its own among them; not necessarily 0, 1, 2, …
            rng: for what is to be random.
        """
        raise NotImplementedError

    def start(self) -> list[Message | Timer]:
        """The leader is missed: begin a new term, as a candidate, and ask all others for their votes.

        One's own vote is one's own. Who has the votes of more than half of `members` leads, and says so at once.
        """
        raise NotImplementedError

    def receive(self, message: Message) -> list[Message | Timer]:
        """A message has come.

        Of an older term: it says nothing any more. Of a newer one: that is the term from now on, in which
        no leader is known yet, and no vote is given yet. Then, whatever its kind asks for.

        A member has one vote per term, which goes to the first that asks for it. Who has voted, or has
        heard the leader, waits anew.
        """
        raise NotImplementedError

    def timeout(self) -> list[Message | Timer]:
        """The timer has run out: time for the leader's next heartbeat, or for a new election."""
        raise NotImplementedError
