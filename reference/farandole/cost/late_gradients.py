"""Learning with late gradients, computed afterwards: which gradients move x, and when, does not depend on x.

The simulator says which gradient is begun after how many moves, and which gradients a move applies, with what weights:

    g = h·x_k + σZ, begun after move k            x_{m+1} = x_m − lr·Σ weight·g

Every few thousand gradients x is computed in numpy for all moves since: for as many moves at once as apply gradients
that were begun before the first of them. With n asynchronous workers these are about n. Additions are made in the order
of the moves and of their parts, so the result is that of one move after the other, to the last digit.

A gradient has a slot for its values. Once it will not be applied again, both are used for another gradient: to make an
object takes longer than to fill one.

Cost: a few numbers for each gradient. Memory: 32 bytes and an object for each gradient that may still be applied, or
that has been begun since x was computed, and the notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from farandole.cost.quadratic import CURVATURES, Quadratic
from farandole.cost.setting import Numbers, Outcome, Setting, Vector, numbers, vector
from farandole.parameter_server.core.policies import Action, Apply, Drop, Push

AGAIN = -1  # in place of moves: the gradient has been applied before
BATCH = 1 << 12  # gradients that are begun from one computation of x to the next; the notes of more leave the caches


@dataclass(slots=True, eq=False)
class Gradient(Push):
    """A push, and what the simulator knows of it.

    Attributes:
        slot: where `LateGradients` has its values.
        own: updates by gradients of its worker that the parameters contained at which it was computed.
        counted: whether it has moved the parameters and is kept, since the policy will use it again.
    """

    slot: int
    own: int = 0
    counted: bool = False


class LateGradients(Quadratic):
    """One vector that all workers share, moved by gradients that are known by the number of their slot."""

    def __init__(self, setting: Setting, outcome: Outcome) -> None:
        super().__init__(setting, outcome)
        self._values = np.empty((0, len(CURVATURES)))  # per slot
        self._begun_after = np.empty(0, dtype=np.intp)  # moves, per slot
        self._free: list[Gradient] = []  # for this batch
        self._spare: list[Gradient] = []  # for later ones
        self._known = 0  # moves up to which x is computed
        self._own = [0] * setting.workers  # moves that contained a new gradient of this worker
        # Notes since x was computed:
        self._log: list[int] = []  # slots of gradients that are begun, and ~slots of those that moves apply, in order
        self._leads: list[int] = []  # of the workers, when they begin
        self._weights: list[float] = []  # of the gradients that the moves apply
        self._own_since: list[int] = []  # updates by other gradients of their workers meanwhile, or AGAIN
        self._times: list[float] = []  # of the moves
        self._parts: list[tuple[int, int]] = []  # the moves that do not apply just one gradient, and how many they do
        self._done: list[Gradient] = []  # that will not be applied again
        self._leads_seen, self._ages_seen = np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp)  # how often each

    def begin(self, worker: int, clock: int, lead: int) -> Gradient:
        """Return a gradient that is computed at x as it is now."""
        if not self._free:
            self._next_batch()
        gradient = self._free.pop()
        gradient.worker = worker
        gradient.clock = clock
        gradient.own = self._own[worker]
        self._log.append(gradient.slot)
        self._leads.append(lead)
        return gradient

    def carry_out(self, actions: Sequence[Action], now: float) -> None:
        """Move x, and forget gradients, as a policy says."""
        for action in actions:
            if isinstance(action, Drop):
                dropped: Any = action.push
                self._outcome.dropped += not dropped.counted
                dropped.counted = False
                self._done.append(dropped)
            elif len(action.parts) > 1 or action.keep:
                self._apply(action, now)
            else:  # as there, but most moves of most policies are of one gradient
                parts: Any = action.parts
                [(gradient, weight)] = parts
                if gradient.counted:
                    gradient.counted = False
                    self._own_since.append(AGAIN)
                else:
                    worker, own = gradient.worker, self._own
                    self._own_since.append(own[worker] - gradient.own)
                    own[worker] += 1
                self._times.append(now)
                self._log.append(~gradient.slot)
                self._weights.append(weight)
                self._done.append(gradient)

    def _apply(self, update: Apply, now: float) -> None:
        """Move x once, and forget those of its gradients that are not kept."""
        parts: Any = update.parts  # of `Gradient`s, since a policy returns the pushes that it was given
        keep: Any = update.keep
        own = self._own
        self._parts.append((len(self._times), len(parts)))
        self._times.append(now)
        gradients, weights = zip(*parts, strict=True)
        self._log += [~gradient.slot for gradient in gradients]
        self._weights += weights
        self._own_since += [AGAIN if each.counted else own[each.worker] - each.own for each in gradients]
        for gradient in gradients:
            if gradient.counted:
                gradient.counted = False
            else:
                own[gradient.worker] += 1
        for gradient in keep:
            gradient.counted = True
        self._done += [gradient for gradient in gradients if not gradient.counted]

    def catch_up(self) -> None:
        """Compute x after all moves so far, and the gradients that have been begun."""
        log, weights = numbers(self._log), vector(self._weights)
        is_begun = log >= 0
        begun, slots = log[is_begun], ~log[~is_begun]
        moves = len(self._times)
        parts = np.ones(moves, dtype=np.intp)
        for move, number in self._parts:
            parts[move] = number
        starts = np.concatenate([[0], np.cumsum(parts)])
        before: Numbers = np.cumsum(~is_begun, dtype=np.intp)[is_begun]  # gradients applied before each was begun
        if self._parts:
            before = np.searchsorted(starts, before, side="right") - 1  # … moves
        self._begun_after[begun] = self._known + before
        noise = self._rng.normal(scale=self._setting.noise, size=(len(begun), len(CURVATURES)))
        after = self._begun_after[slots] - self._known
        self._count_ages(np.repeat(np.arange(moves), parts) - after)
        latest = np.maximum.reduceat(after, starts[:-1]) if moves else after
        latest = np.maximum.accumulate(latest)  # a move needs x after this number of earlier moves
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
            if self._outcome.to_loss_s is None:
                self._look(path[1:], starts[move : end + 1], move)
        self.x = path[-1].copy()
        self._known += moves
        self._leads_seen = _counted(self._leads_seen, numbers(self._leads))
        self._finish_batch()

    def finish(self) -> None:
        """Complete the outcome, after the last move."""
        self.catch_up()
        self._outcome.final_loss = self.loss
        self._outcome.lead, self._outcome.staleness = _histogram(self._leads_seen), _histogram(self._ages_seen)

    def _count_ages(self, moves_since: Numbers) -> None:
        """Count how stale the gradients are that are applied for the first time, and these gradients.

        Args:
            moves_since: all moves since each of the applied gradients was begun.
        """
        own_since = numbers(self._own_since)
        ages = (moves_since - own_since)[own_since != AGAIN]
        self._ages_seen = _counted(self._ages_seen, ages)
        self._outcome.gradients += len(ages)

    def _next_batch(self) -> None:
        """Compute x, and get slots for the next gradients."""
        if self._leads:
            if self._setting.progress:
                self._setting.progress(len(self._leads))
            self.catch_up()
        if len(self._spare) < BATCH:
            self._more_slots()
        self._free = self._spare[-BATCH:]
        del self._spare[-BATCH:]

    def _finish_batch(self) -> None:
        """Forget what has been noted."""
        if self._times:
            self._outcome.wall_s = self._times[-1]
        self._spare += self._done
        for notes in (
            self._log,
            self._leads,
            self._weights,
            self._own_since,
            self._times,
            self._parts,
            self._done,
        ):
            notes.clear()

    def _look(self, path: Vector, starts: Vector, first: int) -> None:
        """Look ten times a step whether the goal is reached, as `Quadratic.move` does.

        Args:
            path: x after each of some moves.
            starts: gradients before each of these moves, and after the last.
            first: the number of the first of them.
        """
        enough = -(-self._setting.workers // 10)  # gradients from one look to the next
        seen = starts[0] - self._unseen
        while (move := int(np.searchsorted(starts, seen + enough)) - 1) < len(path):
            seen = starts[move + 1]
            if self.loss_at(path[move]) <= self._goal:
                self._outcome.to_loss_s = self._times[first + move]
                return
        self._unseen = int(starts[-1] - seen)

    def _more_slots(self) -> None:
        had = len(self._values)
        more = max(BATCH, had)
        self._values = np.concatenate([self._values, np.empty((more, len(CURVATURES)))])
        self._begun_after = np.concatenate([self._begun_after, np.zeros(more, dtype=np.intp)])
        share = 1 / self._setting.workers  # of the whole batch
        self._spare = [Gradient(-1, -1, share, slot) for slot in range(had + more - 1, had - 1, -1)] + self._spare


def _counted(seen: Numbers, values: Numbers) -> Numbers:
    """Return how often each number has been seen, these values, none of which is negative, among them."""
    if (most := int(values.max(initial=0))) >= len(seen):
        seen = np.concatenate([seen, np.zeros(2 * most, dtype=np.intp)])
    np.add.at(seen, values, 1)
    return seen


def _histogram(seen: Numbers) -> Counter[int]:
    values = np.flatnonzero(seen)
    return Counter(dict(zip(values.tolist(), seen[values].tolist(), strict=True)))
