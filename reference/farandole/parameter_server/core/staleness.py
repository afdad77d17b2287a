"""Staleness: how many updates others have made between a worker's pull and its gradient's own update.

    staleness = (updates − own updates of the worker) now − the same at the pull

Memory: one number per worker, and one per pull for which a gradient may still be pushed.
"""

from __future__ import annotations

from collections.abc import Iterable

NEWEST = -1  # the worker's last pull


class Staleness:
    """Counts updates, and what each worker has read.

    Attributes:
        updates: all so far.
    """

    def __init__(self, workers: Iterable[int]) -> None:
        self.updates = 0
        self._own = dict.fromkeys(workers, 0)  # worker → updates that contained a new gradient of it
        self._reads: dict[int, dict[int, int]] = {}  # worker → name of a pull → updates by others before it

    def pulled(self, worker: int, name: int) -> None:
        """`worker` reads the parameters as they are now; later pulls have larger names."""
        self._reads.setdefault(worker, {})[name] = self.by_others(worker)

    def pushed(self, worker: int, name: int) -> int:
        """Return the updates by others before the pull `name`; older pulls are forgotten."""
        reads = self._reads.get(worker)
        if not reads:
            return 0
        if name == NEWEST:
            name = max(reads)
        if len(reads) > 1:
            for older in [other for other in reads if other < name]:
                del reads[older]
        return reads.get(name, 0)

    def by_others(self, worker: int) -> int:
        """Return how many updates so far contained no new gradient of `worker`."""
        return self.updates - self._own.get(worker, 0)

    def moved(self, workers: Iterable[int]) -> None:
        """The parameters have been moved by new gradients of `workers`."""
        self.updates += 1
        for worker in workers:
            self._own[worker] = self._own.get(worker, 0) + 1

    def forget(self, worker: int) -> None:
        """`worker` is gone, and pushes no more."""
        self._reads.pop(worker, None)
