"""The interface of a policy: its calls, and the actions that it returns.

A policy decides two things: may this worker start its next iteration now, and which gradients move the parameters now?
All its input comes through these calls; it has no clock, no network and no parameters. A server, a test with a thousand
random orders of arrival and a simulator therefore drive the same object.

A worker's clock is the number of iterations it has completed. Iteration c is the one that takes it
from clock c to c + 1; its gradient is pushed with the number c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a policy itself needs no numpy
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


@dataclass(slots=True, unsafe_hash=True)
class Push:
    """The gradient of a worker's iteration number `clock`.

    Attributes:
        share: the part of the whole batch that the gradient is the mean of, n_r / N.
    """

    worker: int
    clock: int
    share: float


@dataclass(slots=True)
class Apply:
    """Move the parameters once, by Σ weight · gradient.

    Attributes:
        parts: the gradients and their weights, in a fixed order, so that a sum is reproducible.
        keep: pushes among them whose gradients will be needed again. The others, as those of a `Drop`, may get other
            values from then on: the simulator uses the objects again.
    """

    parts: tuple[tuple[Push, float], ...]
    keep: tuple[Push, ...] = ()


@dataclass(slots=True)
class Drop:
    """Forget this gradient: it will not be needed (again)."""

    push: Push


Action = Apply | Drop


class Slowest:
    """Finds the smallest of many clocks without a search, since a server needs it at every push.

    It remembers the workers that had the smallest clock. Clocks only rise, so it stays the smallest until the last of
    them has gone on, and all are looked at again at most once for each number that it rises by: in a training O(1) for
    each time that a clock is set.

    Args:
        clocks: worker → its clock; the owner of this mapping raises clocks and removes workers.

    Attributes:
        witness: a worker that had the smallest clock when this was last asked for. Until the witness's clock rises, or
            it is removed, the smallest is the same, whatever the others do.
    """

    def __init__(self, clocks: Mapping[int, int]) -> None:
        self._clocks = clocks
        self._clock: int | None = None
        self.witness: int | None = None
        self._others: list[int] = []  # that are remembered, too, the lowest number last
        self._search()

    def worker(self) -> int | None:
        """Return the worker with the smallest clock, of several the lowest number; None: there is no worker."""
        self.clock()
        return self.witness

    def clock(self) -> int | None:
        """Return the smallest clock; None: there is no worker."""
        clocks, others = self._clocks, self._others
        while self.witness is not None and clocks.get(self.witness) != self._clock:
            if others:
                self.witness = others.pop()
            else:
                self._search()
        return self._clock

    def _search(self) -> None:
        clocks = self._clocks
        self._clock = min(clocks.values(), default=None)
        self._others += sorted([worker for worker, clock in clocks.items() if clock == self._clock], reverse=True)
        self.witness = self._others.pop() if clocks else None


class Policy:
    """Keeps the clocks of the workers that are there; each policy adds its own rule.

    Attributes:
        clocks: worker → completed iterations.
        in_rounds: all workers work on the same step, and the limit of the training is in steps; otherwise each worker
            counts its own iterations, and the limit is in gradients.
        waits_for_all: each update has a gradient of every worker, so none of them still reads older parameters.
        slowest: the smallest clock of all workers that are there.
    """

    in_rounds = False
    waits_for_all = False

    def __init__(self, workers: Iterable[int]) -> None:
        self.clocks = dict.fromkeys(sorted(workers), 0)
        self._slowest = Slowest(self.clocks)
        self.slowest = 0

    @property
    def gate(self) -> int:
        """A number; while it stays the same, every waiting worker must continue to wait. A start does not change it."""
        return self.slowest

    def lead(self, worker: int) -> int:
        """Return how many iterations `worker` is ahead of the slowest."""
        return self.clocks[worker] - self.slowest

    def next_clock(self, worker: int) -> int:
        """Return the number of the iteration that `worker` starts next."""
        return self.clocks[worker]

    def may_start(self, worker: int) -> bool:
        """Return whether `worker` may read the parameters and start its next iteration now."""
        raise NotImplementedError

    def started(self, worker: int, now: float) -> list[Action]:
        """`worker` has read the parameters and starts its next iteration.

        Args:
            now: seconds on the clock of `push`.
        """
        return []

    def push(self, push: Push, now: float) -> list[Action]:
        """A gradient has arrived: raise the worker's clock (`completed`), and decide which gradients count now.

        Args:
            now: seconds on any clock that does not run backwards.
        """
        raise NotImplementedError

    def tick(self, now: float) -> list[Action]:
        """Time has passed; a policy that limits its waits acts here.

        If it returns no action, its state must be unchanged: the copy of the policy on a second server with the same
        parameters gets this call only for ticks that had an effect.
        """
        return []

    def leave(self, worker: int) -> list[Action]:
        """`worker` has finished or died: no other worker waits for it any more."""
        self.clocks.pop(worker, None)
        self.slowest = self._slowest.clock() or 0
        return []

    def completed(self, push: Push) -> None:
        """Raise the clock of the push's worker; every policy's `push` calls this first."""
        self.clocks[push.worker] = push.clock + 1
        if push.worker == self._slowest.witness:
            self.slowest = self._slowest.clock() or 0

    def pause(self, worker: int, clock: int) -> float:
        """Return the seconds that `worker` itself waits before it pushes iteration `clock`."""
        return 0.0

    def pauses(self, workers: NDArray[np.uint64], clocks: NDArray[np.uint64]) -> ArrayLike:
        """Return the `pause` of many workers; a policy may compute them at once."""
        return [self.pause(worker, clock) for worker, clock in zip(workers.tolist(), clocks.tolist(), strict=True)]


def mean(pushes: Iterable[Push]) -> tuple[tuple[Push, float], ...]:
    """Weights that make the sum of these gradients the mean over all their samples."""
    pushes = sorted(pushes, key=attrgetter("worker"))
    shares = [push.share for push in pushes]
    total = sum(shares) or 1.0  # of gradients of no samples each has the weight 0
    return tuple(zip(pushes, [share / total for share in shares], strict=True))
