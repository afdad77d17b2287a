"""One application's parameters on one server: values, an update rule and a correction on top of a `Ledger`.

A pull is a worker's request to start its next iteration. It is answered with the parameters once the policy permits it.
A push brings a gradient, and the policy decides when it counts. The ledger does the bookkeeping. The shard carries out
the events that it returns, in order. A shard sends no messages: its owner passes a function that sends the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server.core.corrections import Correction
from farandole.parameter_server.core.events import Event, Finished, Grant, Move, Part
from farandole.parameter_server.core.ledger import Ledger
from farandole.parameter_server.core.policies import Policy, Push
from farandole.parameter_server.core.update_rules import Add, Rows, UpdateRule, axpy
from farandole.parameter_server.header import ALL_RANGES, Header, Kind
from farandole.parameter_server.keys import KeyRange

Array = NDArray[Any]


@dataclass
class Gradient:
    """A pushed gradient: one array per range of the shard (dense), or rows and their values (sparse).

    Attributes:
        rows: distinct row numbers within the shard; None for a dense gradient.
    """

    pieces: list[Array]
    rows: NDArray[np.integer[Any]] | None = None


class Shard:
    """The part of a table that one server holds.

    Args:
        values: shape (keys,) or (rows, width); moved in place.
        ranges: the global key ranges that lie in `values` one after the other.
        limit: how many gradients may be begun (or steps be taken, if the policy works in rounds)
            before workers are told that there is no work left; None: another server counts.
        reply: sends an answer to `header.worker` at once; after a GRANT, also the values.
        before_moving: called before the values change; it returns when no rank reads them any more.
        spare: like `values`: each update reads the one and writes the other, in turns; None: it moves them in place.

    Attributes:
        ledger: the bookkeeping of pulls and pushes.
        values: the parameters as of the last update.
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
        spare: Array | None = None,
    ) -> None:
        self.values, self.ranges, self.policy, self.rule, self.correction = values, ranges, policy, rule, correction
        self._spare = spare
        self.ledger = Ledger(policy, limit, len(ranges))
        self.slices = _local(ranges)
        self._reply, self._before_moving = reply, before_moving
        self._sum_of_range = values[:0]

    @property
    def updates(self) -> int:
        """Return the number of times that the values have been moved."""
        return self.ledger.updates

    @property
    def late_pushes(self) -> int:
        """Pushes of workers that had been removed, or of steps that were over."""
        return self.ledger.late

    def pull(self, request: Header, now: float) -> None:
        """A worker requests to start its next iteration."""
        self._carry_out(self.ledger.pull(request.worker, now, request, request.request_id))

    def push(self, header: Header, gradient: Gradient, now: float) -> None:
        """A gradient has arrived, whole or one range of it; a duplicate changes nothing."""
        worker, clock, part = header.worker, header.clock, header.part
        if part != ALL_RANGES and not self.ledger.refuses(worker, clock, part, header.task):
            gradient = self._collected(header, gradient.pieces[0])
        push = Push(worker, clock, header.share)
        self._carry_out(
            self.ledger.push(push, gradient, now, header.request_id, part=part, read=header.read, task=header.task)
        )

    def tick(self, now: float) -> bool:
        """Let time pass; return whether that has changed anything."""
        events = self.ledger.tick(now)
        self._carry_out(events)
        return bool(events)

    def end(self, request: Header, now: float) -> None:
        """Permit no further iteration; those that have begun are completed."""
        self._reply(self._answer(Kind.FINISHED, request))
        self.ledger.limit = 0
        self.answer_pulls(now)

    def clean(self, worker: int, now: float) -> tuple[int, int, int]:
        """Remove the state of a worker that has left or died.

        Returns:
            The numbers of waiting pulls, clocks and incomplete pushes that were removed.
        """
        events, removed = self.ledger.remove(worker, now)
        self._carry_out(events)
        return removed

    def answer_pulls(self, now: float) -> None:
        """Answer every waiting pull that can be answered, after the ledger's `hold_from` or `limit` has changed."""
        self._carry_out(self.ledger.answer_pulls(now))

    def replace(
        self, values: Array, ranges: Sequence[KeyRange], rule: UpdateRule, correction: Correction | None, updates: int
    ) -> None:
        """Replace all keys by these, which have been updated `updates` times. Every worker must wait."""
        self.values, self.ranges, self.rule, self.correction = values, ranges, rule, correction
        self.slices = _local(ranges)
        self._sum_of_range = values[:0]
        self.ledger.restart(updates, len(ranges))

    def _collected(self, header: Header, piece: Array) -> Gradient:
        """Return the ranges of one gradient that have arrived so far, including `piece`."""
        nothing = Gradient([np.empty(0, self.values.dtype)] * len(self.ranges))
        gradient: Gradient = self.ledger.incomplete(header.worker, header.clock) or nothing
        gradient.pieces[header.part] = piece
        return gradient

    def _carry_out(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Grant):
                self._grant(event)
            elif isinstance(event, Finished):
                self._reply(self._answer(Kind.FINISHED, event.request))
            elif isinstance(event, Move):
                self._move(event.parts)
            else:
                self._acknowledge(event.worker, event.requests if event.unused else (), Kind.DROPPED)

    def _grant(self, grant: Grant) -> None:
        if self.correction:
            self.correction.reads(grant.worker, self.values)
        answer = self._answer(Kind.GRANT, grant.request)
        answer.clock, answer.lead, answer.seconds = grant.clock, grant.lead, grant.waited_s
        answer.count = grant.request.count
        self._reply(answer)

    def _move(self, parts: Sequence[Part]) -> None:
        """Move the values by Σ weight · gradient."""
        self._before_moving()
        alike = isinstance(self.rule, Add)
        gradients = [
            (part.gradient.content, part.gradient.worker, 1.0 if alike else part.weight, part.staleness)
            for part in parts
        ]
        moved = self.values if self._spare is None else self._spare
        self.rule.begin()
        if any(gradient.rows is not None for gradient, *_ in gradients):
            self._apply_sparse(gradients, moved)
        else:
            self._apply_dense(gradients, moved)
        if self._spare is not None:
            self.values, self._spare = self._spare, self.values
        for part in parts:
            if part.first:
                self._acknowledge(part.gradient.worker, part.gradient.requests, Kind.APPLIED, part.staleness)

    def _apply_dense(self, gradients: Sequence[tuple[Gradient, int, float, int]], moved: Array) -> None:
        """Write the values after this update to `moved`, range by range."""
        for number, rows in enumerate(self.slices):
            pieces = [(gradient.pieces[number], *rest) for gradient, *rest in gradients]
            total = self._sum(pieces, rows)
            if moved is not self.values:
                moved[rows] = self.values[rows]
            self.rule.apply(moved, rows, total, sum(weight for *_, weight, _ in gradients))

    def _sum(self, pieces: Sequence[Sequence[Any]], rows: Rows) -> Array:
        """Return Σ weight · gradient, each gradient corrected for its staleness first; the memory is reused."""
        total: Array | None = None
        for piece, worker, weight, staleness in pieces:
            if self.correction:
                piece = self.correction.correct(piece, worker, staleness, self.values, rows)
            if total is None:
                total = np.multiply(piece, piece.dtype.type(weight), out=self._buffer(piece))
            else:
                axpy(weight, piece, total)
        assert total is not None
        return total

    def _buffer(self, like: Array) -> Array:
        """Return memory for a sum like this one; allocating it for every range would cost more than the additions."""
        if len(self._sum_of_range) < len(like):
            self._sum_of_range = np.empty_like(like)
        return self._sum_of_range[: len(like)]

    def _apply_sparse(self, gradients: Sequence[tuple[Gradient, int, float, int]], moved: Array) -> None:
        """Move the union of all touched rows, each row once."""
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
        if moved is not self.values:
            moved[:] = self.values
        self.rule.apply(moved, rows, total, sum(weight for *_, weight, _ in gradients))

    def _answer(self, kind: Kind, request: Header) -> Header:
        return Header(kind, worker=request.worker, request_id=request.request_id)

    def _acknowledge(self, worker: int, request_ids: Sequence[int], kind: Kind, staleness: int = 0) -> None:
        for request_id in request_ids:
            self._reply(Header(kind, worker=worker, request_id=request_id, staleness=staleness))


def _local(ranges: Sequence[KeyRange]) -> list[slice]:
    """Return the place of each range in an array of all ranges, one after the other."""
    slices, start = [], 0
    for part in ranges:
        slices.append(slice(start, start + len(part)))
        start += len(part)
    return slices
