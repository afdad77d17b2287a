"""Lab 7: decide which worker may start and when a gradient is applied, so that no worker runs too far ahead.

Complete `StaleSynchronous`, then: farandole lab check 7
"""

from __future__ import annotations

from collections.abc import Iterable

Gradient = tuple[int, int]  # the worker's number, and the number of the iteration that computed it


class StaleSynchronous:
    """The rules of a parameter server: which worker may start, and which gradients to apply now.

    A worker's clock is the number of iterations it has completed, 0 at the beginning. So iteration c
    takes it from clock c to clock c + 1. The server calls these methods for each worker, in this order:

        may_start (repeated until it returns True), started, push, may_start, started, push, …

    A worker may leave at any time. Every pushed gradient must be applied exactly once: exactly one
    call of `started`, `push` or `leave` returns it.
    """

    def __init__(self, workers: Iterable[int], staleness: int) -> None:
        """
        Args:
            workers: the workers' numbers, in any order; not necessarily 0, 1, 2, …
            staleness: the bound s, 0 or more.
        """
        raise NotImplementedError

    def may_start(self, worker: int) -> bool:
        """Return whether `worker` may start its next iteration now.

        It may if its clock exceeds the smallest clock of all present workers by at most s.
        This call changes no state.
        """
        raise NotImplementedError

    def started(self, worker: int) -> list[Gradient]:
        """Record that `worker` has read the parameters and begins its next iteration.

        Returns:
            The gradients to apply now. A gradient of iteration c is applied as soon as every present
            worker has begun its iteration c − s, and at once if c < s. The parameters that `worker`
            has just read do not include them.
        """
        raise NotImplementedError

    def push(self, worker: int, clock: int) -> list[Gradient]:
        """Record that `worker` has completed iteration `clock` and that its gradient (worker, clock) has arrived.

        Returns:
            The gradients to apply now, by the same rule. The new gradient is among them, or it is
            held back and applied later.
        """
        raise NotImplementedError

    def leave(self, worker: int) -> list[Gradient]:
        """Record that `worker` has finished or failed: from now on no worker waits for it.

        The gradients that it has pushed are still applied.

        Returns:
            The gradients to apply now, by the same rule. When the last worker leaves, all remaining ones.
        """
        raise NotImplementedError
