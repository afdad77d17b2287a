"""Vector clocks per key range: which pushes have arrived already.

A worker that has waited too long for an acknowledgement pushes again; applied twice, its gradient would count twice. So
for each range the server remembers, per worker, the clock (the number of the iteration) of the last push that it has
received. A vector of clocks for each *key* would cost more memory than the parameters. Workers push whole ranges, so
one vector per range has the same information (Li et al., OSDI 2014). Memory: O(ranges × workers).
"""

from __future__ import annotations

from collections import defaultdict


class VectorClocks:
    """For each range and worker, the clock of the last push received.

    A worker's pushes for one range come in the order of its clocks; clocks may be left out.
    """

    def __init__(self) -> None:
        self._last: defaultdict[int, dict[int, int]] = defaultdict(dict)  # range → worker → clock

    def seen(self, range_number: int, worker: int, clock: int) -> bool:
        """Return whether a push with this clock, or a later one, has been received: it must not be applied again."""
        return clock <= self._last.get(range_number, {}).get(worker, -1)

    def note(self, range_number: int, worker: int, clock: int) -> None:
        """Note a push that has arrived; one that is older than the last changes nothing."""
        clocks = self._last[range_number]
        clocks[worker] = max(clock, clocks.get(worker, clock))

    def forget(self, worker: int) -> int:
        """Remove the entries of a worker that has left or died; return their number."""
        return sum(clocks.pop(worker, None) is not None for clocks in self._last.values())

    def minimum(self, range_number: int) -> int | None:
        """Return the smallest clock of all workers that have pushed to this range; None: no worker has."""
        return min(self._last.get(range_number, {}).values(), default=None)
