"""Workers and servers as discrete events around real policies: one process, no MPI, no waiting.

As in a real run a worker asks every server whether it may start, computes once all have granted it,
and pushes its gradient to all; the iteration's number is the largest `next_clock` of all servers.
Each server has a separate policy, and messages to different servers may take different times.
The seed decides the order of simultaneous events.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from farandole.parameter_server.core.policies import Action, Apply, Drop, Policy, Push

PATIENCE = 100  # consecutive ticks without a change that count as a deadlock


@dataclass(frozen=True)
class Workload:
    """The workers' task, and how long everything takes.

    Attributes:
        iterations: a worker is finished when its clock has reached this.
        durations: of each worker's iterations, from the beginning again when they are used up.
        delays: of messages to servers, in turn.
        leaves: (number of events, the worker that leaves after them, whatever it is doing).
        leave_at_once: a finished worker leaves with its last push; otherwise it asks once more first.
        tick_every: time between ticks while there are other events; None: only when there are none.
    """

    iterations: int
    durations: tuple[tuple[float, ...], ...]
    delays: tuple[float, ...] = (0.0,)
    leaves: tuple[tuple[int, int], ...] = ()
    leave_at_once: bool = True
    tick_every: float | None = None
    seed: int = 0

    @property
    def workers(self) -> range:
        return range(len(self.durations))

    def share(self, worker: int) -> float:
        """Unequal, together 1."""
        return (worker + 1) / sum(other + 1 for other in self.workers)


@dataclass(frozen=True)
class Start:
    """`worker` began iteration `clock` having read the parameters after the first `updates` updates."""

    time: float
    worker: int
    clock: int
    updates: int
    lead: int


@dataclass(frozen=True)
class Update:
    """One update of the parameters, and the workers present at it."""

    parts: tuple[tuple[Push, float], ...]
    there: frozenset[int]

    @property
    def pushes(self) -> list[Push]:
        return [push for push, _ in self.parts]


@dataclass
class Server:
    """A policy, and the gradients that are in the server's memory because it may still need them."""

    policy: Policy
    asking: set[int] = field(default_factory=set)
    pushed: dict[Push, int] = field(default_factory=dict)  # in order of arrival → number of earlier updates
    memory: set[Push] = field(default_factory=set)
    updates: list[Update] = field(default_factory=list)
    dropped: list[Push] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    spread: int = 0  # the largest difference of completed clocks so far

    def push(self, push: Push, now: float) -> None:
        assert push not in self.pushed
        self.pushed[push] = len(self.updates)
        self.memory.add(push)
        self.carry_out(self.policy.push(push, now))

    def leave(self, worker: int) -> None:
        """`worker` has left; a repeated report changes nothing."""
        self.asking.discard(worker)
        self.carry_out(self.policy.leave(worker))
        assert self.policy.leave(worker) == []

    def tick(self, now: float) -> None:
        before = repr(vars(self.policy))
        actions = self.policy.tick(now)
        assert actions or repr(vars(self.policy)) == before, "where nothing comes of it, a copy does not hear of it"
        self.carry_out(actions)

    def carry_out(self, actions: Iterable[Action]) -> None:
        """Check the policy against the server's memory: a discarded gradient is never used again."""
        for action in actions:
            if isinstance(action, Drop):
                self.memory.remove(action.push)
                self.dropped.append(action.push)
                continue
            assert isinstance(action, Apply)
            pushes = {push for push, _ in action.parts}
            assert pushes <= self.memory, "never pushed, or applied or dropped before"
            assert set(action.keep) <= pushes
            self.memory -= pushes - set(action.keep)
            self.updates.append(Update(action.parts, frozenset(self.policy.clocks)))
        clocks = self.policy.clocks.values()
        self.spread = max(self.spread, max(clocks, default=0) - min(clocks, default=0))

    def applied_at(self) -> dict[Push, list[int]]:
        """Return each gradient's updates, by number."""
        found: dict[Push, list[int]] = {push: [] for push in self.pushed}
        for number, update in enumerate(self.updates):
            for push in update.pushes:
                found[push].append(number)
        return found


class Run:
    """Simulates a workload around `policies`, one per server.

    Attributes:
        idle_ticks: how often no event was possible before time had passed.

    Raises:
        AssertionError: a deadlock, or an action that a server could not carry out.
    """

    def __init__(self, policies: Sequence[Policy], workload: Workload) -> None:
        self.workload = workload
        self.servers = [Server(policy) for policy in policies]
        self.now = 0.0
        self.idle_ticks = 0
        self._random = Random(workload.seed)
        self._events: list[tuple[float, float, int, Callable[[], None]]] = []
        self._there = set(workload.workers)
        self._begun = dict.fromkeys(workload.workers, 0)
        self._grants: dict[int, dict[int, Start]] = {worker: {} for worker in workload.workers}
        self._scheduled = self._sent = 0
        self._run()

    def _run(self) -> None:
        for worker in self.workload.workers:
            self._send(lambda server, worker=worker: self._hear(server, worker, None, last=False))
        happened = in_vain = 0
        while self._there or self._events:
            if self._events:
                time, _, _, event = heapq.heappop(self._events)
                self._tick_until(time)
                event()
                in_vain = 0
            else:
                in_vain += 1
                self.idle_ticks += 1
                waiting = [(number, server.asking, server.policy.clocks) for number, server in enumerate(self.servers)]
                assert in_vain < PATIENCE, f"deadlock (server, who asks, clocks): {waiting}"
                self._tick(self.now + 1)
            happened += 1
            for moment, worker in self.workload.leaves:
                if moment == happened and worker in self._there:
                    self._there.remove(worker)
                    self._send(lambda server, worker=worker: server.leave(worker))
            self._answer()
        self._tick(self.now + 1)

    def _tick_until(self, time: float) -> None:
        every = self.workload.tick_every
        while every is not None and self.now + every < time:
            self._tick(self.now + every)
            self._answer()
        self.now = time

    def _tick(self, time: float) -> None:
        self.now = time
        for server in self.servers:
            server.tick(time)

    def _answer(self) -> None:
        """Ask again for every waiting worker, until no other may start."""
        granted = True
        while granted:
            granted = False
            for number, server in enumerate(self.servers):
                may = [worker for worker in sorted(server.asking) if server.policy.may_start(worker)]
                self._random.shuffle(may)
                for worker in may:  # the start of one does not prevent another's
                    assert server.policy.may_start(worker)
                    self._grant(number, worker)
                    granted = True

    def _grant(self, number: int, worker: int) -> None:
        server = self.servers[number]
        server.asking.remove(worker)
        clock, lead = server.policy.next_clock(worker), server.policy.lead(worker)
        grants = self._grants[worker]
        grants[number] = Start(self.now, worker, clock, len(server.updates), lead)
        server.carry_out(server.policy.started(worker, self.now))
        if len(grants) < len(self.servers) or worker not in self._there:
            return
        clock = max(start.clock for start in grants.values())
        if clock >= self.workload.iterations:
            self._there.remove(worker)
            self._send(lambda server: server.leave(worker))
            return
        for server_number, start in grants.items():
            self.servers[server_number].starts.append(Start(self.now, worker, clock, start.updates, start.lead))
        grants.clear()
        durations = self.workload.durations[worker]
        duration = durations[self._begun[worker] % len(durations)]
        duration += self.servers[0].policy.pause(worker, clock)
        self._begun[worker] += 1
        self._at(self.now + duration, lambda: self._finish(worker, clock))

    def _finish(self, worker: int, clock: int) -> None:
        """An iteration is over: push its gradient, and ask for the next."""
        if worker not in self._there:
            return
        push = Push(worker, clock, self.workload.share(worker))
        last = self.workload.leave_at_once and clock + 1 >= self.workload.iterations
        if last:
            self._there.remove(worker)
        self._send(lambda server: self._hear(server, worker, push, last))

    def _hear(self, server: Server, worker: int, push: Push | None, last: bool) -> None:
        if worker not in server.policy.clocks:
            return  # a message of a worker that has left is dropped
        if push:
            server.push(push, self.now)
        if last:
            server.leave(worker)
        else:
            server.asking.add(worker)

    def _send(self, message: Callable[[Server], None]) -> None:
        """To every server, after a delay each."""
        for server in self.servers:
            delay = self.workload.delays[self._sent % len(self.workload.delays)]
            self._sent += 1
            self._at(self.now + delay, lambda server=server: message(server))

    def _at(self, time: float, event: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._events, (time, self._random.random(), self._scheduled, event))
