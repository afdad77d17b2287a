"""Half-synchronous: stale synchronous, and each worker waits for a random time before it pushes.

Document 000's own variant: the wait makes the workers' updates come at more different moments, so
that a server is not asked by all at once. It costs the wait itself; where workers would queue at
the server anyhow, it costs less than that. No gradient is lost or doubled; without a wait it is
stale synchronous. No paper has exactly this rule; near it are K-sync SGD (Dutta et al. 2018) and
eager-SGD (Li et al. 2020).
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from farandole.parameter_server.policies.stale import Stale


class Half(Stale):
    """`Stale`, with a wait of 0 to `longest_wait` seconds, evenly distributed, before each push."""

    def __init__(self, workers: Iterable[int], staleness: int = 4, longest_wait: float = 0.01, seed: int = 0) -> None:
        super().__init__(workers, staleness)
        self.longest_wait = longest_wait
        self.seed = seed

    def pause(self, worker: int, clock: int) -> float:
        return random.Random(f"{self.seed} {worker} {clock}").uniform(0, self.longest_wait)
