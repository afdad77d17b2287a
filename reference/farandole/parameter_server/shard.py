"""One application's parameters on one server, and the policy that guards them. No messages here.

A pull is a worker's question whether it may start its next iteration, and is answered with the
parameters once the policy says yes; a push brings a gradient, and the policy says when it counts.
Whoever owns a shard says how answers leave: tests collect them in a list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server.clocks import VectorClocks
from farandole.parameter_server.corrections import Correction
from farandole.parameter_server.header import ALL_RANGES, LAST, NO_TASK, Header, Kind
from farandole.parameter_server.keys import KeyRange
from farandole.parameter_server.policies import Action, Apply, Policy, Push
from farandole.parameter_server.update_rules import Add, Rows, UpdateRule, axpy

Array = NDArray[Any]


@dataclass
class Gradient:
    """What was pushed: one array per range of the shard (dense), or rows and their values (sparse).

    Attributes:
        rows: distinct row numbers within the shard; None for a dense gradient.
        read_at: how many updates others had made when the worker read what it was computed at.
    """

    pieces: list[Array]
    rows: NDArray[np.integer[Any]] | None = None
    numbers: list[int] = field(default_factory=list)  # of the requests that are still to be answered
    read_at: int = 0


class Shard:
    """The part of a table that one server holds.

    Args:
        values: shape (keys,) or (rows, width); moved in place.
        ranges: the global key ranges that lie in `values` one after the other.
        limit: how many gradients may be begun (or steps be taken, if the policy works in rounds)
            before workers are told that there is no work left; None: another server counts.
        reply: sends an answer to `header.worker` at once; after a GRANT, also the values.
        before_moving: called before the values change: nobody may still be reading them then.

    Attributes:
        updates: how often the values have been moved.
        hold_from: no worker starts this iteration, or a later one; None: the policy alone decides.
        late_pushes: pushes of workers that had been cleaned away, or of steps that were over.
    """

    def __init__(
        self,
        values: Array,
        ranges: Sequence[KeyRange],
        policy: Policy,
        rule: UpdateRule,
        correction: Correction | None,
        limit: int | None,
        reply: Callable[[Header], None],
        before_moving: Callable[[], None] = lambda: None,
    ) -> None:
        self.values, self.ranges, self.policy, self.rule, self.correction = values, ranges, policy, rule, correction
        self.limit = limit
        self.updates = 0
        self.late_pushes = 0
        self.hold_from: int | None = None
        self.slices = _local(ranges)
        self._reply, self._before_moving = reply, before_moving
        self._begun = 0
        self._sum_of_range = values[:0]
        self._clocks = VectorClocks()
        self._pulls: dict[int, tuple[Header, float]] = {}  # worker → its question, and since when it waits
        self._incomplete: dict[tuple[int, int], Gradient] = {}  # (worker, clock) → the ranges that have come
        self._gradients: dict[Push, Gradient] = {}
        # worker → number of a pull → others' updates before it; the last, and older ones that may still be pushed for
        self._reads: dict[int, dict[int, int]] = {}
        self._tasks: set[int] = set()  # those whose gradient has arrived
        self._own_updates = dict.fromkeys(policy.clocks, 0)

    def pull(self, question: Header, now: float) -> None:
        """A worker asks to start its next iteration."""
        if question.worker not in self.policy.clocks:
            self._reply(Header(Kind.FINISHED, worker=question.worker, number=question.number))
            return
        self._pulls[question.worker] = (question, now)
        self.answer_pulls(now)

    def push(self, header: Header, gradient: Gradient, now: float) -> None:
        """A gradient has come, whole or one range of it; a duplicate changes nothing."""
        worker, clock = header.worker, header.clock
        every_part = range(max(1, len(self.ranges)))
        parts = every_part if header.part == ALL_RANGES else [header.part]
        if worker not in self.policy.clocks:
            self.late_pushes += 1
            self._acknowledge(worker, [header.number], Kind.DROPPED)
            return
        if header.task in self._tasks or any(self._clocks.seen(part, worker, clock) for part in parts):
            self._acknowledge(worker, [header.number], Kind.DROPPED)
            return
        for part in parts:
            self._clocks.note(part, worker, clock)
        if header.task != NO_TASK:
            self._tasks.add(header.task)
        if header.part != ALL_RANGES:
            gradient = self._collected(header, gradient.pieces[0])
        gradient.numbers.append(header.number)
        if all(self._clocks.seen(part, worker, clock) for part in every_part):
            self._incomplete.pop((worker, clock), None)
            push = Push(worker, clock, header.share)
            self._gradients[push] = gradient
            gradient.read_at = self._others_before(worker, header.read)
            self._carry_out(self.policy.push(push, now))
            self.answer_pulls(now)

    def tick(self, now: float) -> bool:
        """Time has passed; returns whether that has changed anything."""
        actions = self.policy.tick(now)
        if actions:
            self._carry_out(actions)
            self.answer_pulls(now)
        return bool(actions)

    def end(self, question: Header, now: float) -> None:
        """Permit no further iteration; those that have begun are completed."""
        self.limit = 0
        self._reply(Header(Kind.FINISHED, worker=question.worker, number=question.number))
        self.answer_pulls(now)

    def clean(self, worker: int, now: float) -> tuple[int, int, int]:
        """Remove what a worker that is gone has left behind.

        Returns:
            How many waiting pulls, clocks, and incomplete pushes that was.
        """
        pulls = int(self._pulls.pop(worker, None) is not None)
        clocks = self._clocks.forget(worker)
        self._reads.pop(worker, None)
        incomplete = [key for key in self._incomplete if key[0] == worker]
        for key in incomplete:
            del self._incomplete[key]
        if worker in self.policy.clocks:
            self._carry_out(self.policy.leave(worker))
            self.answer_pulls(now)
        return pulls, clocks, len(incomplete)

    @property
    def all_wait(self) -> bool:
        """Whether every worker waits for permission, so that no gradient is on its way."""
        return self._pulls.keys() == self.policy.clocks.keys()

    def give_up_pulls(self) -> list[Header]:
        """Return the pulls of all waiting workers, which will not be answered here."""
        questions = [question for question, _ in self._pulls.values()]
        self._pulls.clear()
        return questions

    def replace(
        self, values: Array, ranges: Sequence[KeyRange], rule: UpdateRule, correction: Correction | None, updates: int
    ) -> None:
        """Replace all keys by these, which have been updated `updates` times; every worker must wait (`all_wait`)."""
        self.values, self.ranges, self.rule, self.correction = values, ranges, rule, correction
        self.updates = updates
        self.slices = _local(ranges)
        self._sum_of_range = values[:0]
        self._clocks = VectorClocks()
        for worker, clock in self.policy.clocks.items():
            for part in range(max(1, len(ranges))):
                self._clocks.note(part, worker, clock - 1)

    def _collected(self, header: Header, piece: Array) -> Gradient:
        """The ranges of one gradient that have come so far, `piece` among them."""
        nothing = Gradient([np.empty(0, self.values.dtype)] * len(self.ranges))
        gradient = self._incomplete.setdefault((header.worker, header.clock), nothing)
        gradient.pieces[header.part] = piece
        return gradient

    def answer_pulls(self, now: float) -> None:
        """Let every waiting worker go on that may."""
        for worker, (question, since) in list(self._pulls.items()):
            answer = Header(Kind.GRANT, worker=worker, number=question.number, seconds=now - since)
            if self._is_finished(worker):
                answer.kind = Kind.FINISHED
                self._reply(answer)
            elif not self._is_held(worker) and self.policy.may_start(worker):
                answer.clock, answer.lead = self.policy.next_clock(worker), self.policy.lead(worker)
                answer.count = question.count
                self._begun += 1
                reads = self._reads.setdefault(worker, {})
                reads[question.number] = self.updates - self._own_updates[worker]
                if self.correction:
                    self.correction.reads(worker, self.values)
                self._reply(answer)
            else:
                continue
            del self._pulls[worker]
            if answer.kind == Kind.GRANT:
                self._carry_out(self.policy.started(worker, now))
            elif self.policy.in_rounds:  # a gradient that a later step would have used will not be
                self._carry_out(self.policy.leave(worker))

    def _is_held(self, worker: int) -> bool:
        return self.hold_from is not None and self.policy.next_clock(worker) >= self.hold_from

    def _is_finished(self, worker: int) -> bool:
        if self.limit is None:
            return False
        return (self.policy.next_clock(worker) if self.policy.in_rounds else self._begun) >= self.limit

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Apply):
                self._apply(action)
                continue
            dropped = self._gradients.pop(action.push)
            self.late_pushes += bool(dropped.numbers)
            self._acknowledge(action.push.worker, dropped.numbers, Kind.DROPPED)

    def _apply(self, update: Apply) -> None:
        """Move the values by Σ weight · gradient."""
        self._before_moving()
        staleness = {push: self._staleness(push) for push, _ in update.parts}
        weights = {push: 1.0 if isinstance(self.rule, Add) else weight for push, weight in update.parts}
        gradients = [(self._gradients[push], push.worker, weights[push], staleness[push]) for push in weights]
        self.rule.begin()
        if any(gradient.rows is not None for gradient, *_ in gradients):
            self._apply_sparse(gradients)
        else:
            for part, rows in enumerate(self.slices):
                pieces = [(gradient.pieces[part], *rest) for gradient, *rest in gradients]
                total = self._sum(pieces, rows)
                self.rule.apply(self.values, rows, total, sum(weight for *_, weight, _ in gradients))
        self.updates += 1
        for push, _ in update.parts:
            gradient = self._gradients[push] if push in update.keep else self._gradients.pop(push)
            if gradient.numbers:  # else it has counted before, and this update is the others'
                self._own_updates[push.worker] = self._own_updates.get(push.worker, 0) + 1
            self._acknowledge(push.worker, gradient.numbers, Kind.APPLIED, staleness[push])

    def _sum(self, pieces: Sequence[Sequence[Any]], rows: Rows) -> Array:
        """Σ weight · gradient, each gradient corrected for its staleness first; in memory that is used again."""
        total: Array | None = None
        for piece, worker, weight, staleness in pieces:
            if self.correction:
                piece = self.correction.correct(piece, worker, staleness, self.values, rows)
            if total is None:
                total = np.multiply(piece, piece.dtype.type(weight), out=self._room(piece))
            else:
                axpy(weight, piece, total)
        assert total is not None
        return total

    def _room(self, like: Array) -> Array:
        """Where to add up: fresh memory for every range would cost more than the adding."""
        if len(self._sum_of_range) < len(like):
            self._sum_of_range = np.empty_like(like)
        return self._sum_of_range[: len(like)]

    def _apply_sparse(self, gradients: Sequence[tuple[Gradient, int, float, int]]) -> None:
        """The union of all touched rows, each moved once."""
        touched = []
        for gradient, worker, weight, staleness in gradients:
            assert gradient.rows is not None
            own = self._sum([(gradient.pieces[0], worker, weight, staleness)], gradient.rows)
            touched.append((gradient.rows, own.copy()))
        rows, inverse = np.unique(np.concatenate([rows for rows, _ in touched]), return_inverse=True)
        total = np.zeros((len(rows), *self.values.shape[1:]), self.values.dtype)
        start = 0
        for own_rows, values in touched:
            total[inverse[start : start + len(own_rows)]] += values  # its rows are distinct
            start += len(own_rows)
        self.rule.apply(self.values, rows, total, sum(weight for *_, weight, _ in gradients))

    def _others_before(self, worker: int, number: int) -> int:
        """Updates by others before pull `number` of `worker`; what is older is forgotten."""
        reads = self._reads.get(worker, {})
        number = max(reads, default=LAST) if number == LAST else number
        for older in [other for other in reads if other < number]:
            del reads[older]
        return reads.get(number, 0)

    def _staleness(self, push: Push) -> int:
        """Updates by others since the worker read what it computed this gradient at."""
        others = self.updates - self._own_updates.get(push.worker, 0)
        return others - self._gradients[push].read_at

    def _acknowledge(self, worker: int, numbers: list[int], kind: Kind, staleness: int = 0) -> None:
        for number in numbers:
            self._reply(Header(kind, worker=worker, number=number, staleness=staleness))
        numbers.clear()


def _local(ranges: Sequence[KeyRange]) -> list[slice]:
    """Where each range lies when they stand one after the other."""
    slices, start = [], 0
    for part in ranges:
        slices.append(slice(start, start + len(part)))
        start += len(part)
    return slices
