"""Lab 7: which worker may start, and when a gradient counts, so that none runs too far ahead.

Complete `StaleSynchronous`, then: farandole lab check 7
"""

from __future__ import annotations

from collections.abc import Iterable

Gradient = tuple[int, int]  # a worker's number, and the number of the iteration that it is the gradient of


class StaleSynchronous:
    """What a parameter server asks: may this worker start, and which gradients are applied now?

    A worker's clock is the number of iterations it has completed, 0 in the beginning. So iteration c
    is the one that takes it from clock c to clock c + 1. Each worker's life is

        may_start (asked again and again until it is True), started, push, may_start, started, push, …

    and at any moment it may leave. Every gradient that is pushed is to be applied exactly once: it
    stands in the answer of exactly one call of `started`, `push` or `leave`.
    """

    def __init__(self, workers: Iterable[int], staleness: int) -> None:
        """
        Args:
            workers: their numbers, in any order; not necessarily 0, 1, 2, …
            staleness: the bound s, 0 or more.
        """
        raise NotImplementedError

    def may_start(self, worker: int) -> bool:
        """Whether `worker` may start its next iteration now.

        It may if its clock is at most s more than the smallest clock of all workers that are there.
        Being asked changes nothing.
        """
        raise NotImplementedError

    def started(self, worker: int) -> list[Gradient]:
        """`worker` has read the parameters and begins its next iteration.

        Returns:
            The gradients to apply now: each gradient of an iteration c is applied as soon as every
            worker that is there has begun its iteration c − s; at once, if c < s. What `worker` has
            just read is without them.
        """
        raise NotImplementedError

    def push(self, worker: int, clock: int) -> list[Gradient]:
        """`worker` has completed its iteration number `clock`; the gradient (worker, clock) has come.

        Returns:
            The gradients to apply now, by the same rule. This one is among them, or it is held and
            applied later.
        """
        raise NotImplementedError

    def leave(self, worker: int) -> list[Gradient]:
        """`worker` has finished or is gone: from now on no worker waits for it.

        What it has pushed still counts.

        Returns:
            The gradients to apply now, by the same rule. When the last worker leaves, all that are left.
        """
        raise NotImplementedError
