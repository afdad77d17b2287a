"""The bookkeeping of a parameter server: waiting workers, permitted starts, gradients that count, and their staleness.

A `Ledger` knows no parameters, no messages and no clock. It is told of pulls and pushes, asks its policy, and returns
what happens next, in order:

    Grant      a worker starts its iteration, with the parameters as they are now
    Finished   a worker's pull is answered: there is no work left
    Move       the parameters move once, by Σ weight · gradient
    Dropped    a gradient will never be needed (again)

The driver carries these out in this order: the server's `Shard` with values, the tests without.

    staleness of a gradient = updates made by others between the worker's pull and the gradient's own update

Cost per pull and push: O(1), and O(waiting workers) whenever the policy's gate moves. Memory: the gradients that may
still count, and two numbers per worker. Source: Li et al., "Scaling distributed machine learning with the parameter
server", 2014; Ho et al. 2013 for the clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farandole.parameter_server.core.clocks import VectorClocks
from farandole.parameter_server.core.events import Dropped, Event, Finished, Gradient, Grant, Move, Part
from farandole.parameter_server.core.policies import Action, Apply, Policy, Push
from farandole.parameter_server.core.staleness import NEWEST, Staleness

WHOLE = -1  # all ranges of a gradient at once
NO_TASK = -1


class Ledger:
    """One application at one server.

    Args:
        limit: how many iterations may be begun (or steps be taken, if the policy works in rounds) before there is no
            work left; None: another server counts.
        ranges: into how many ranges a gradient may be divided.

    Attributes:
        late: pushes of workers that had been removed, and of steps that were over.
        hold_from: no worker starts this iteration, or a later one; None: the policy alone decides.
    """

    def __init__(self, policy: Policy, limit: int | None, ranges: int = 1) -> None:
        self.policy, self.limit = policy, limit
        self.late = 0
        self.hold_from: int | None = None
        self._begun = 0
        self._gate: int | None = None  # the policy's, when all waiting workers were last considered; None: not yet
        self._waiting: dict[int, tuple[Any, int, float]] = {}  # worker → request, name, since when it waits
        self._gradients: dict[Push, Gradient] = {}
        self._incomplete: dict[tuple[int, int], Gradient] = {}  # (worker, clock) → the ranges received
        self._staleness = Staleness(policy.clocks)
        self._tasks: set[int] = set()  # whose gradient has arrived
        self._received = VectorClocks()
        self._ranges = range(max(1, ranges))

    def pull(self, worker: int, now: float, request: Any = None, name: int = 0) -> list[Event]:
        """`worker` requests to start its next iteration.

        Args:
            request: returned in the answer.
            name: what a push calls this pull in `read`; later pulls have larger ones.
        """
        if worker not in self.policy.clocks:
            return [Finished(worker, request)]
        events: list[Event] = []
        self._waiting[worker] = (request, name, now)
        self._consider(worker, now, events)
        self._answer(now, events)
        return events

    def refuses(self, worker: int, clock: int, part: int = WHOLE, task: int = NO_TASK) -> bool:
        """Return whether this push does not count: its worker is removed, or it or its task was received before."""
        if worker not in self.policy.clocks or task in self._tasks:
            return True
        return any(self._received.seen(number, worker, clock) for number in self._parts(part))

    def push(
        self,
        push: Push,
        content: Any,
        now: float,
        request: Any = None,
        *,
        part: int = WHOLE,
        read: int = NEWEST,
        task: int = NO_TASK,
    ) -> list[Event]:
        """A gradient has arrived, whole or one range of it; a duplicate changes nothing.

        Args:
            content: kept, and returned when the gradient counts; of a gradient in ranges that of the last one.
            request: returned when the gradient counts or is dropped.
            read: the name of the pull that returned the parameters at which it was computed.
            task: the computing task that it completes; each counts once.
        """
        worker, clock = push.worker, push.clock
        if self.refuses(worker, clock, part, task):
            self.late += worker not in self.policy.clocks
            return [Dropped(worker, [request], unused=True)]
        for number in self._parts(part):
            self._received.note(number, worker, clock)
        if task != NO_TASK:
            self._tasks.add(task)
        gradient = self._incomplete.get((worker, clock)) if self._incomplete else None
        if gradient is None:
            gradient = Gradient(worker, clock, content, [])
        gradient.content = content
        gradient.requests.append(request)
        if part != WHOLE and not all(self._received.seen(number, worker, clock) for number in self._ranges):
            self._incomplete[worker, clock] = gradient
            return []
        self._incomplete.pop((worker, clock), None)
        self._gradients[push] = gradient
        gradient.read_at = self._staleness.pushed(worker, read)
        events: list[Event] = []
        self._carry_out(self.policy.push(push, now), events)
        self._answer(now, events)
        return events

    def tick(self, now: float) -> list[Event]:
        """Time has passed. Nothing is returned where nothing has changed."""
        events: list[Event] = []
        self._carry_out(self.policy.tick(now), events)
        self._answer(now, events)
        return events

    def answer_pulls(self, now: float) -> list[Event]:
        """Answer every waiting pull that can be answered, after `hold_from` or `limit` has changed."""
        self._gate = None
        events: list[Event] = []
        self._answer(now, events)
        return events

    def remove(self, worker: int, now: float) -> tuple[list[Event], tuple[int, int, int]]:
        """Remove what a worker that is gone has left.

        Returns:
            What happens next, and how many waiting pulls, clocks and incomplete pushes were removed.
        """
        pulls = int(self._waiting.pop(worker, None) is not None)
        clocks = self._received.forget(worker)
        self._staleness.forget(worker)
        incomplete = [key for key in self._incomplete if key[0] == worker]
        for key in incomplete:
            del self._incomplete[key]
        events: list[Event] = []
        if worker in self.policy.clocks:
            self._carry_out(self.policy.leave(worker), events)
            self._answer(now, events)
        return events, (pulls, clocks, len(incomplete))

    def incomplete(self, worker: int, clock: int) -> Any | None:
        """Return the content of a gradient of which some ranges are missing; None if there is none."""
        gradient = self._incomplete.get((worker, clock))
        return gradient.content if gradient else None

    @property
    def updates(self) -> int:
        """Return how often the parameters have moved."""
        return self._staleness.updates

    @property
    def all_wait(self) -> bool:
        """Whether every worker waits for permission, so that no gradient is on its way."""
        return self._waiting.keys() == self.policy.clocks.keys()

    def give_up_pulls(self) -> list[Any]:
        """Return the requests of all waiting workers, which will not be answered here."""
        requests = [request for request, _, _ in self._waiting.values()]
        self._waiting.clear()
        return requests

    def restart(self, updates: int, ranges: int) -> None:
        """Go on with other keys, which have been moved `updates` times; every worker must wait (`all_wait`)."""
        self._staleness.updates, self._ranges = updates, range(max(1, ranges))
        self._received = VectorClocks()
        for worker, clock in self.policy.clocks.items():
            for number in self._ranges:
                self._received.note(number, worker, clock - 1)

    def _parts(self, part: int) -> Sequence[int]:
        return self._ranges if part == WHOLE else (part,)

    def _answer(self, now: float, events: list[Event]) -> None:
        """Consider all waiting workers, as often as the gate has moved: before that none of them may start."""
        while (gate := self.policy.gate) != self._gate:
            self._gate = gate
            for worker in list(self._waiting):
                self._consider(worker, now, events)

    def _consider(self, worker: int, now: float, events: list[Event]) -> None:
        """Answer the pull of `worker`, if it can be answered."""
        policy = self.policy
        if self._is_finished(worker):
            request, _, _ = self._waiting.pop(worker)
            events.append(Finished(worker, request))
            if policy.in_rounds:  # a gradient that a later step would have used will not be
                self._carry_out(policy.leave(worker), events)
            return
        if not policy.may_start(worker) or self._is_held(worker):
            return
        request, name, since = self._waiting.pop(worker)
        self._begun += 1
        if not policy.in_rounds and self._begun == self.limit:
            self._gate = None  # those that wait are finished
        self._staleness.pulled(worker, name)
        events.append(Grant(worker, policy.next_clock(worker), policy.lead(worker), now - since, request))
        self._carry_out(policy.started(worker, now), events)

    def _is_held(self, worker: int) -> bool:
        return self.hold_from is not None and self.policy.next_clock(worker) >= self.hold_from

    def _is_finished(self, worker: int) -> bool:
        if self.limit is None:
            return False
        return (self.policy.next_clock(worker) if self.policy.in_rounds else self._begun) >= self.limit

    def _carry_out(self, actions: Sequence[Action], events: list[Event]) -> None:
        for action in actions:
            if isinstance(action, Apply):
                events.append(self._move(action))
            else:
                gradient = self._gradients.pop(action.push)
                self.late += not gradient.counted
                events.append(Dropped(gradient.worker, gradient.requests, not gradient.counted))

    def _move(self, update: Apply) -> Move:
        parts = []
        for push, weight in update.parts:
            gradient = self._gradients[push]
            staleness = self._staleness.by_others(push.worker) - gradient.read_at
            parts.append(Part(gradient, weight, staleness, not gradient.counted))
        new = [
            part.gradient for part in parts if part.first
        ]  # the others have counted before: this update is not theirs
        for gradient in new:
            gradient.counted = True
        self._staleness.moved(gradient.worker for gradient in new)
        kept = set(update.keep)
        for push, _ in update.parts:
            if push not in kept:
                del self._gradients[push]
        return Move(parts)
