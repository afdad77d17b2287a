"""The last sign of life of one rank at another, from heartbeats, and how long it may be silent.

How long a move takes depends on the model. So a rank may take three times as long as its longest move so far. In its
first step, of which nothing is known, it may take five times the time-out. The limit is a little less than the others
wait: after that they would give up instead of recovering.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

SLOWER = 3  # times its longest move so far, and a rank is still taken for a slow one
FIRST_STEP = 5  # times the time-out: memory is new, and caches are cold
BEFORE_OTHERS_GIVE_UP = 0.9  # of the time for which a rank waits for another


@dataclass
class Sign:
    """The last sign of life of a rank, and when it last changed, on this rank's clock; never: in the future.

    Attributes:
        longest: seconds between two of its moves in which it did not wait.
        begun: steps that it has been seen in.
    """

    step: int = -1
    moves: int = -1
    waiting: bool = False
    heard: float = inf
    moved: float = inf
    longest: float = 0.0
    begun: int = 0

    def hear(self, step: int, moves: int, waiting: bool, now: float) -> None:
        """Note a heartbeat."""
        if moves != self.moves:
            self.longest = max(self.longest, now - self.moved)
        if waiting or moves != self.moves:
            self.moved = now
        self.begun += step != self.step
        self.step, self.moves, self.waiting, self.heard = step, moves, waiting, now

    def excuse(self, seconds: float, now: float) -> None:
        """Extend its deadlines by a time in which this rank heard nothing."""
        if self.heard < inf:
            self.heard = min(now, self.heard + seconds)
            self.moved = min(now, self.moved + seconds)

    def patience_s(self, after_s: float, wait_timeout_s: float) -> float:
        """Return for how long the rank may make no move.

        Args:
            after_s: the least.
            wait_timeout_s: for how long the others wait for it.
        """
        wanted = max(SLOWER * self.longest, FIRST_STEP * after_s if self.begun < 2 else 0.0)
        return max(after_s, min(wanted, BEFORE_OTHERS_GIVE_UP * wait_timeout_s))
