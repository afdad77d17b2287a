"""Learning with late gradients, computed afterwards: which gradients move x, and when, does not depend on x.

The simulator notes which gradient is begun after how many moves, and which gradients a move applies, with what weights:

    g = h·x_k + σZ, begun after move k            x_{m+1} = x_m − lr·Σ weight·g

Every few thousand gradients x is computed in numpy for all moves since: for as many moves at once as apply gradients
that were begun before the first of them. With n asynchronous workers these are about n. Additions are made in the order
of the moves and of their parts, so the result is that of one move after the other, to the last digit.

Cost: a few numbers for each gradient. Memory: 32 bytes for each gradient that may still be applied, and the notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from farandole.cost.quadratic import CURVATURES, ROWS_OF_NOISE, Quadratic
from farandole.cost.setting import Outcome, Setting, Vector


class LateGradients(Quadratic):
    """One vector that all workers share, moved by gradients that are known by the number of their slot."""

    def __init__(self, setting: Setting, outcome: Outcome) -> None:
        super().__init__(setting, outcome)
        self._values = np.empty((0, len(CURVATURES)))  # per slot
        self._read_after = np.empty(0, dtype=np.intp)  # moves of this batch before the gradient was begun
        self._free: list[int] = []  # slots
        self._begun: list[int] = []  # slots in the order in which they were begun, since x was computed
        self._moves_before: list[int] = []  # … and how many moves had been made since
        self._slots: list[int] = []  # of the gradients that the moves apply, and their weights
        self._weights: list[float] = []
        self._starts: list[int] = []  # where each move's begin
        self._times: list[float] = []  # of the moves
        self._done: list[int] = []  # slots that are free afterwards

    def begin(self) -> int:
        """Return the slot of a gradient that is computed at x as it is now."""
        if len(self._begun) == ROWS_OF_NOISE:
            if self._setting.progress:
                self._setting.progress(ROWS_OF_NOISE)
            self.catch_up()
        if not self._free:
            self._more_slots()
        slot = self._free.pop()
        self._begun.append(slot)
        self._moves_before.append(len(self._times))
        return slot

    def apply_one(self, slot: int, weight: float, now: float) -> None:
        """Move x by a gradient, and forget that."""
        self._starts.append(len(self._slots))
        self._slots.append(slot)
        self._weights.append(weight)
        self._times.append(now)
        self._done.append(slot)

    def apply(self, slots: Sequence[int], weights: Sequence[float], now: float) -> None:
        """Move x once, by all these gradients."""
        self._starts.append(len(self._slots))
        self._slots += slots
        self._weights += weights
        self._times.append(now)

    def release(self, slots: Sequence[int]) -> None:
        """Forget gradients that will not be applied again."""
        self._done += slots

    def catch_up(self) -> None:
        """Compute x after all moves so far, and the gradients that have been begun."""
        begun, before = np.array(self._begun, dtype=np.intp), np.array(self._moves_before, dtype=np.intp)
        noise = self._rng.normal(scale=self._setting.noise, size=(len(begun), len(CURVATURES)))
        self._read_after[begun] = before
        slots, weights = np.array(self._slots, dtype=np.intp), np.array(self._weights)
        starts = np.array([*self._starts, len(slots)], dtype=np.intp)
        moves = len(self._times)
        latest = np.maximum.reduceat(self._read_after[slots], starts[:-1]) if moves else np.empty(0, dtype=np.intp)
        latest = np.maximum.accumulate(latest)  # a move needs x after so many of the moves before it
        move = known = 0
        path = self.x[None]  # x after moves `move`, `move` + 1, …
        while True:
            upto = int(np.searchsorted(before, move + len(path) - 1, side="right"))
            fresh = slice(known, upto)
            self._values[begun[fresh]] = CURVATURES * path[before[fresh] - move] + noise[fresh]
            move, known = move + len(path) - 1, upto
            if move == moves:
                break
            end = int(np.searchsorted(latest, move, side="right"))
            part = slice(starts[move], starts[end])
            totals = weights[part, None] * self._values[slots[part]]
            if len(totals) > end - move:
                edges = (starts[move : end + 1] - starts[move]).tolist()
                totals = np.array([np.add.reduce(totals[a:b], axis=0) for a, b in pairwise(edges)])  # row by row
            path = np.subtract.accumulate(np.concatenate([path[-1:], self._setting.lr * totals]))
            self._look(path[1:], np.diff(starts[move : end + 1]).tolist(), self._times[move:end])
        self.x = path[-1].copy()
        self._read_after[begun] = 0
        self._free += self._done
        for notes in (
            self._begun,
            self._moves_before,
            self._slots,
            self._weights,
            self._starts,
            self._times,
            self._done,
        ):
            notes.clear()

    def _look(self, path: Vector, parts: Sequence[int], times: Sequence[float]) -> None:
        """Look ten times a step whether the goal is reached, as `Quadratic.move` does."""
        if self._outcome.to_loss_s is not None:
            return
        for x, gradients, now in zip(path, parts, times, strict=True):
            self._unseen += gradients
            if self._unseen * 10 >= self._setting.workers:
                self._unseen = 0
                if self.loss_at(x) <= self._goal:
                    self._outcome.to_loss_s = now
                    return

    def _more_slots(self) -> None:
        had = len(self._values)
        more = max(ROWS_OF_NOISE, had)
        self._values = np.concatenate([self._values, np.empty((more, len(CURVATURES)))])
        self._read_after = np.concatenate([self._read_after, np.zeros(more, dtype=np.intp)])
        self._free = list(range(had + more - 1, had - 1, -1))
