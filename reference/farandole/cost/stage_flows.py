"""One step of a pipeline over a network, event by event: for how long each message is under way.

Every stage of every copy computes, sends and waits as its schedule says. A worker's messages leave one after the other,
and all messages that are under way share the network's wires with max-min fair rates, which change whenever a message
begins or ends (`networks.fair_sharing`). Tensor ranks send their parts side by side, and a message has passed with the
last of them. All workers compute equally fast.

    lost at a wire     ∫ max(0, 1 − capacity/demand) dt, where each message demands what it would have with one switch

Cost: O(messages) events, each with rates for the messages under way. The rates of a set of messages are computed once.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from farandole.collectives.costs import Link
from farandole.cost.division import Division
from farandole.cost.networks.fair_sharing import EQUAL, max_min_rates, paths
from farandole.cost.networks.network import Network
from farandole.cost.setting import Vector
from farandole.cost.stage_clock import program
from farandole.errors import UsageError
from farandole.model_parallel.step_order import Sent
from farandole.runtime.event_queue import EventQueue

MOST_SETS = 2_000  # of messages under way, whose rates are kept
MOST_RATES = 20_000_000  # that are computed: about a minute

Step = tuple[float, Sent | None, Sent | None]  # seconds of a computation, message sent, message received
Ends = tuple[int, int]  # the hosts of a message's sender and receiver


@dataclass(eq=False)
class Worker:
    """One stage of one copy, with all its tensor ranks.

    Attributes:
        steps: what it has still to do.
        queue: messages for its links, the first of which is under way.
        arrived: what it has not used yet.
        waits_for: what it cannot go on without.
    """

    copy: int
    steps: deque[Step]
    queue: deque[Sent] = field(default_factory=deque)
    arrived: set[Sent] = field(default_factory=set)
    waits_for: Sent | None = None


@dataclass(frozen=True)
class Flow:
    """One tensor rank's part of a message that is under way."""

    sender: Worker
    message: Sent
    ends: Ends


@dataclass(frozen=True)
class Shares:
    """The shares of the wires that a set of messages gets.

    Attributes:
        rates: of each, in multiples of a host's link.
        lost: wire → the share of the time that is lost at it.
    """

    rates: Vector
    lost: dict[str, float]


NOTHING = Shares(np.zeros(0), {})


class StageFlows:
    """Runs one step, up to the update.

    Args:
        hosts: of the workers, of shape (copies, stages, tensor ranks).
        compute_s: the computing of a worker's step.
        exchange_s: of a layer's tensor ranks, one all-reduce.

    Attributes:
        busy: message → seconds for which it occupies its sender's link, by copy.
        late: message → seconds from then until it has arrived, by copy.
        lost: wire → seconds lost at it.
        last: when the last worker has computed its last pass.
    """

    def __init__(
        self,
        division: Division,
        network: Network,
        hosts: NDArray[np.intp],
        link: Link,
        hop_s: float,
        compute_s: float,
        exchange_s: float = 0.0,
    ) -> None:
        self._network, self._hosts, self._link, self._hop_s = network, hosts, link, hop_s
        self._own_s = division.activation * link.beta  # of a message that shares nothing
        by_stage: list[list[Step]] = [[] for _ in range(division.stages)]
        for move in program(division, exchange_s):
            by_stage[move.stage].append((move.part * compute_s + move.exchange_s, move.sent, move.received))
        self._workers = [[Worker(copy, deque(steps)) for steps in by_stage] for copy in range(division.data)]
        messages = [sent for steps in by_stage for _, sent, _ in steps if sent]
        self.busy = {message: np.zeros(division.data) for message in messages}
        self.late = {message: np.zeros(division.data) for message in messages}
        self.lost: defaultdict[str, float] = defaultdict(float)
        self.last = 0.0
        self._events = EventQueue[tuple[Worker, Sent | None]]()  # a pass has ended, or a message arrives
        self._flows: list[Flow] = []
        self._left: Vector = np.zeros(0)  # seconds that each flow would still take by itself
        self._known: dict[tuple[Ends, ...], Shares] = {}
        self._computed = 0  # rates

    def run(self) -> None:
        """Take the step.

        Raises:
            UsageError: it would take too long.
        """
        now = 0.0
        for worker in chain.from_iterable(self._workers):
            self._advance(worker, now)
        while self._events or self._flows:
            shares = self._shares()
            needed = self._left / shares.rates
            then = min(now + float(needed.min(initial=np.inf)), self._events.next)
            soon = then + EQUAL * (then - now)  # what differs by less than rounding is at the same time
            for wire, share in shares.lost.items():
                self.lost[wire] += share * (then - now)
            self._left = self._left - shares.rates * (then - now)
            ended, now = now + needed <= soon, then
            if ended.any():
                self._end(ended, now)
            for worker, arrived in self._events.events(until=soon):
                if arrived:
                    worker.arrived.add(arrived)
                if arrived == worker.waits_for:
                    worker.waits_for = None
                    self._advance(worker, now)
        assert not any(worker.steps for worker in chain.from_iterable(self._workers))

    def _advance(self, worker: Worker, now: float) -> None:
        """Let a worker go on until it computes or waits."""
        while worker.steps:
            seconds, sent, received = worker.steps[0]
            if received and received not in worker.arrived:
                worker.waits_for = received
                return
            worker.steps.popleft()
            if sent:
                worker.queue.append(sent)
                if len(worker.queue) == 1:
                    self._begin(worker, now)
            elif seconds:
                self.last = max(self.last, now + seconds)
                self._events.add(now + seconds, (worker, None))
                return

    def _begin(self, worker: Worker, now: float) -> None:
        """Put the first message of a worker's queue on its way, one flow for each tensor rank."""
        message = worker.queue[0]
        self.busy[message][worker.copy] -= now
        senders, receivers = (self._hosts[worker.copy, stage].tolist() for stage in message[-2:])
        for ends in zip(senders, receivers, strict=True):
            self._flows.append(Flow(worker, message, ends))
        self._left = np.append(self._left, [self._own_s] * len(senders))

    def _end(self, ended: NDArray[np.bool_], now: float) -> None:
        """Take flows off the wires; a message has passed with its last one, and the next one of its sender begins."""
        done = dict.fromkeys(flow.sender for flow, has_ended in zip(self._flows, ended, strict=True) if has_ended)
        self._flows = [flow for flow, has_ended in zip(self._flows, ended, strict=True) if not has_ended]
        self._left = self._left[~ended]
        unfinished = {flow.sender for flow in self._flows}
        for sender in done:
            if sender in unfinished:
                continue
            message, copy = sender.queue.popleft(), sender.copy
            self.busy[message][copy] += now
            ends = zip(*(self._hosts[copy, stage].tolist() for stage in message[-2:]), strict=True)
            longest = max(len(self._network.route(*each)) for each in ends)
            late = self._link.alpha + (longest - self._network.nearest) * self._hop_s
            self.late[message][copy] = late
            self._events.add(now + late, (self._workers[copy][message[-1]], message))
            if sender.queue:
                self._begin(sender, now)

    def _shares(self) -> Shares:
        """Return what the flows under way get."""
        if not self._flows:
            return NOTHING
        ends = tuple(flow.ends for flow in self._flows)
        if found := self._known.get(ends):
            return found
        self._computed += len(ends)
        if self._computed > MOST_RATES:
            raise UsageError(
                "--network: too many messages share links at different times, which takes too long: give fewer "
                "workers or --micro-batches, or leave placement=random out"
            )
        given = paths([self._network.route(*each) for each in ends])
        receivers = np.array([receiver for _, receiver in ends])
        alone = 1 / np.bincount(receivers)[receivers]  # with one switch, since a host sends one message at a time
        demand = np.bincount(given.wires, alone[given.messages], len(given.capacities))
        lost = np.maximum(0.0, 1 - given.capacities / demand)
        shares = Shares(
            max_min_rates(given),
            {name: share for name, share in zip(given.names, lost.tolist(), strict=True) if share > EQUAL},
        )
        if len(self._known) < MOST_SETS:
            self._known[ends] = shares
        return shares
