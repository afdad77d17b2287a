"""Half-synchronous: stale synchronous, and each worker waits for a random time before it pushes.

Document 000's own variant. The wait spreads the workers' pushes over time, so that fewer of them arrive at a server at
once. It costs the wait itself, or less where workers would queue at the server anyhow. No gradient is lost or doubled;
without a wait it is stale synchronous. No paper has exactly this rule; related are K-sync SGD (Dutta et al. 2018) and
eager-SGD (Li et al. 2020).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from farandole.parameter_server.core.policies.ssp import SSP


class Half(SSP):
    """`SSP`, with a wait of 0 to `longest_wait` seconds, evenly distributed, before each push."""

    def __init__(self, workers: Iterable[int], staleness: int = 4, longest_wait: float = 0.01, seed: int = 0) -> None:
        super().__init__(workers, staleness)
        self.longest_wait = longest_wait
        self._seeded = blake2b(b"%d " % seed, digest_size=8)

    def pause(self, worker: int, clock: int) -> float:
        # A hash, not a generator: the same at every call, without state for each of 10,000 workers.
        hashed = self._seeded.copy()
        hashed.update(b"%d %d" % (worker, clock))
        return self.longest_wait * int.from_bytes(hashed.digest()) / 2**64
