"""Half-synchronous: stale synchronous, and each worker waits for a random time before it pushes.

Document 000's own variant. The wait spreads the workers' pushes over time, so that fewer of them arrive at a server at
once. It costs the wait itself, or less where workers would queue at the server anyhow. No gradient is lost or doubled;
without a wait it is stale synchronous. No paper has exactly this rule; related are K-sync SGD (Dutta et al. 2018) and
eager-SGD (Li et al. 2020).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from farandole.parameter_server.core.policies.ssp import SSP

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GAMMA = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, odd
LIMIT = 2**64 - 1


class Half(SSP):
    """`SSP`, with a wait of 0 to `longest_wait` seconds, evenly distributed, before each push."""

    def __init__(self, workers: Iterable[int], staleness: int = 4, longest_wait: float = 0.01, seed: int = 0) -> None:
        super().__init__(workers, staleness)
        self.longest_wait = longest_wait
        self._seeded = mixed(seed)

    def pause(self, worker: int, clock: int) -> float:
        seconds: float = self._drawn(worker, clock)
        return seconds

    def pauses(self, workers: NDArray[np.uint64], clocks: NDArray[np.uint64]) -> NDArray[np.float64]:
        seconds: NDArray[np.float64] = self._drawn(workers, clocks)
        return seconds

    def _drawn(self, worker: Any, clock: Any) -> Any:
        """Return the wait for two numbers, or for two arrays: number `clock` of the worker's own SplitMix64.

        That generator can start anywhere in its sequence, so no state is kept for each of 10,000 workers.
        """
        start = mixed(self._seeded + worker * GAMMA & LIMIT)
        return self.longest_wait * (mixed(start + clock * GAMMA & LIMIT) >> 11) / 2**53


def mixed(number: Any) -> Any:
    """Return 64 bits, each of which depends on all of the number's: SplitMix64 (Steele, Lea & Flood, 2014)."""
    number = number + GAMMA & LIMIT
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & LIMIT
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & LIMIT
    return number ^ (number >> 31)
