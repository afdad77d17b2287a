"""Goodput (有效吞吐率) of a large training under failures: the share of its workers' time that becomes lasting work.

n workers fail independently, each after μ seconds on average, so the training meets a failure every μ/n seconds. What
a failure costs is what the method of recovery says:

    restart      all stop for a start, and do again what follows the last checkpoint; a reserve takes the dead's place
    backup       all stop until a spare has the dead's state from its buddy, and do again what follows the last backup
    membership   all stop until the live ones have regrouped, and go on with fewer, until the dead one is repaired
    islands      the workers form M groups that exchange their parameters now and then (DiLoCo, decoupled): a failure
                 stops its own island only, which recovers by one of the above

Time passes from event to event: failures, ends of repairs, saves. A failure may also strike while others recover, which
then begins anew. Left out: what the exchange between islands costs, failures of spares, and how well fewer workers
learn.

Restart alone has a closed form (`recovery.interval.expected_s`), with which the tests compare this. Sources: Daly, "A
higher order estimate of the optimum checkpoint interval for restart dumps", 2006; Decoupled DiLoCo Team, "Decoupled
DiLoCo for resilient distributed pre-training", 2026.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf

import numpy as np


@dataclass(frozen=True)
class Recovery:
    """The costs of a failure of a group of workers, and of the protection against it. All times in seconds.

    Attributes:
        pause_s: for which all of the group stop after a failure.
        save_every_s: work between two saves, back to which a failure throws the group; 0: no work is lost.
        save_s: for which a save stops the group.
        spares: workers that wait to take a dead one's place; None: there is always one. Without a spare the group goes
            on with fewer, and stops again for `pause_s` when a worker is back.
    """

    pause_s: float
    save_every_s: float = 0.0
    save_s: float = 0.0
    spares: int | None = 0


@dataclass
class Shares:
    """Where the time of all workers went, spares not counted, as shares of it that sum to 1.

    Attributes:
        goodput: lasting work.
        repeated: work that a failure undid.
        saves: stopped for saves.
        pauses: stopped after failures and returns.
        missing: workers that were dead, and not replaced.
    """

    goodput: float = 0.0
    repeated: float = 0.0
    saves: float = 0.0
    pauses: float = 0.0
    missing: float = 0.0

    @classmethod
    def mean(cls, every: Sequence[Shares]) -> Shares:
        return cls(**{each.name: float(np.mean([getattr(one, each.name) for one in every])) for each in fields(cls)})


class Group:
    """Workers that stop together, followed for `horizon_s` seconds.

    Args:
        workers: n.
        mtbf_s: μ of one worker.
        repair_s: from a worker's failure until it is back.
    """

    def __init__(
        self, recovery: Recovery, workers: int, mtbf_s: float, repair_s: float, rng: np.random.Generator
    ) -> None:
        self.recovery, self.workers, self.mtbf_s, self.repair_s, self.rng = recovery, workers, mtbf_s, repair_s, rng
        self.now = self.unsaved = 0.0
        self.horizon_s = inf
        self.alive, self.spares = workers, inf if recovery.spares is None else recovery.spares
        self.repairs: deque[float] = deque()  # when each ends, in order, since all take equally long
        self.spent = Shares()

    def follow(self, horizon_s: float) -> Shares:
        """Return where the time went until `horizon_s`.

        Cost: O(1) per failure, repair and save.
        """
        worked_s, self.horizon_s = 0.0, horizon_s
        while self.now < horizon_s:
            failure = self._next_failure()
            back = max(self.now, self.repairs[0]) if self.repairs else inf
            every_s = self.recovery.save_every_s
            save = self.now + (every_s - worked_s) if every_s else inf
            until = min(failure, back, save, horizon_s)
            self._work(until - self.now)
            worked_s += until - self.now
            self.now = until
            if until == horizon_s:
                break
            if until == back:
                self._return()
                continue
            if until == failure:
                self._fail()
            else:
                self._save()
            worked_s = 0.0
        self.spent.goodput += self.unsaved
        spent = {each.name: getattr(self.spent, each.name) for each in fields(self.spent)}
        return Shares(**{name: seconds / sum(spent.values()) for name, seconds in spent.items()})

    def _next_failure(self) -> float:
        return self.now + self.rng.exponential(self.mtbf_s / self.alive) if self.alive else inf

    def _work(self, seconds: float) -> None:
        self.unsaved += seconds * self.alive
        self.spent.missing += seconds * (self.workers - self.alive)

    def _fail(self) -> None:
        self._lose_one()
        self._pause()

    def _lose_one(self) -> None:
        """A worker fails: undo what is not saved, and replace it, or go on with fewer."""
        if self.recovery.save_every_s:
            self.spent.repeated += self.unsaved
        else:
            self.spent.goodput += self.unsaved
        self.unsaved = 0.0
        self.repairs.append(self.now + self.repair_s)
        if self.spares > 0:
            self.spares -= 1
        else:
            self.alive -= 1

    def _return(self) -> None:
        """A worker is repaired: it becomes a spare, or joins those that work, which stop for it."""
        self.repairs.popleft()
        if self.alive == self.workers:
            self.spares += 1
            return
        self.alive += 1
        self._pause()

    def _pause(self) -> None:
        """Stop all for `pause_s`, from a failure in the meantime on for as long again, and not beyond the horizon."""
        while (failure := self._next_failure()) < min(self.now + self.recovery.pause_s, self.horizon_s):
            self._stop(failure - self.now)
            self._lose_one()
        self._stop(min(self.recovery.pause_s, max(0.0, self.horizon_s - self.now)))

    def _stop(self, seconds: float) -> None:
        self.spent.pauses += seconds * self.alive
        self.spent.missing += seconds * (self.workers - self.alive)
        self.now += seconds

    def _save(self) -> None:
        """Save, unless a worker fails meanwhile."""
        failure = self._next_failure()
        seconds = min(self.recovery.save_s, failure - self.now)
        self.spent.saves += seconds * self.alive
        self.spent.missing += seconds * (self.workers - self.alive)
        self.now += seconds
        if seconds < self.recovery.save_s:
            self._fail()
            return
        self.spent.goodput += self.unsaved
        self.unsaved = 0.0


def goodput(
    recovery: Recovery, workers: int, mtbf_s: float, repair_s: float, horizon_s: float, seed: int, islands: int = 1
) -> Shares:
    """Simulate a training, and return where its workers' time went.

    Args:
        workers: their number; what `islands` does not divide is left out.
        mtbf_s, repair_s: of one worker, as in `Group`.
        islands: number of equal groups, each of which recovers by itself.

    Cost: that of `Group.follow` for each island.
    """
    found = [
        Group(recovery, workers // islands, mtbf_s, repair_s, np.random.default_rng([seed, island])).follow(horizon_s)
        for island in range(islands)
    ]
    return Shares.mean(found)
