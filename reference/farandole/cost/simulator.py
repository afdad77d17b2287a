"""The parameter server's policies at 10,000 workers: the servers' own ledger, driven by events instead of messages.

Two kinds of events happen in the order of time: a worker has computed and sends its gradient; the gradient arrives. In
between a worker waits until the `Ledger` lets it start, as at a real server (`parameter_server.shard`).

    pull        the parameters, P bytes, pass the link from the servers: it is free, or they queue for it
    compute     the policy's own pause, if it makes one, and a time drawn from the straggler distribution
    push        the gradient, P bytes, passes the link to the servers in the same way

Each of S servers has 1/S of the bytes and its own link, which is busy with a message for P/S·β; α later the message
arrives. A worker's own link takes Pβ for the whole. So n workers keep the link of one server busy for 2Pnβ a round, or,
where it carries messages in both directions at the same time, for Pnβ in each. All servers decide alike, so one
ledger stands for all of them. The time that a server takes for an update is left out.

Discrete-event simulation, see Law, "Simulation modeling and analysis", 2015, chapter 1.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from farandole.cost.quadratic import CURVATURES, Quadratic
from farandole.cost.setting import Draws, Outcome, Setting, Vector
from farandole.parameter_server.core.events import Dropped, Event, Grant, Move
from farandole.parameter_server.core.ledger import Ledger
from farandole.parameter_server.core.policies import Policy, Push
from farandole.runtime.event_queue import EventQueue

TICK_S = 0.005  # a real server looks at the time every few milliseconds


class Simulation:
    """Workers 0 to n − 1 and one policy, from the first read to the last update."""

    def __init__(self, policy: Policy, setting: Setting) -> None:
        self.policy, self.setting = policy, setting
        self.outcome = Outcome()
        self.starts: list[tuple[float, int, int]] = []  # with few workers: when, which worker, which iteration
        self.now = 0.0
        self._ledger = Ledger(policy, setting.steps * (1 if policy.in_rounds else setting.workers))
        self._quadratic, self._draws = Quadratic(setting, self.outcome), Draws(setting)
        self._own = setting.nbytes * setting.link.beta  # a message on the worker's own link
        self._share = self._own / setting.servers  # … and on each server's
        self._queue = EventQueue[tuple[str, int]]()  # what happens, to which worker
        self._reads, self._pushes = 0, int(setting.duplex)  # which of the links they pass
        self._free = [0.0, 0.0]  # when a server's links will be
        self._iterations = [0] * setting.workers
        self._computing = [(0.0, 0.0)] * setting.workers  # per worker: the last computation's end and duration
        self._clock = [0] * setting.workers  # of the gradient that is being computed
        self._being_made: list[Vector] = [self._quadratic.x] * setting.workers

    def run(self) -> Outcome:
        with _collections_paused():
            return self._run()

    def _run(self) -> Outcome:
        for worker in range(self.setting.workers):
            self._carry_out(self._ledger.pull(worker, self.now))
        tick_s = max(TICK_S, self.setting.compute_s / 100, self._share)  # a push looks at the time, too
        if type(self.policy).tick is not Policy.tick:
            self._queue.add(tick_s, ("tick", 0))
        for kind, worker in self._queue.events():
            self.now = self._queue.now
            if kind == "computed":
                self._send(worker)
            elif kind == "arrived":
                self._arrived(worker)
            else:
                self._carry_out(self._ledger.tick(self.now))
                if self._queue:
                    self._queue.add(self.now + tick_s, ("tick", 0))
        assert not self._ledger.give_up_pulls(), "a worker waits for ever"
        for worker in list(self.policy.clocks):
            events, _ = self._ledger.remove(worker, self.now)
            self._carry_out(events)
        for until, compute_s in self._computing:  # computing after the last update does not count
            self.outcome.compute_s -= min(max(until - self.outcome.wall_s, 0.0), compute_s)
        self.outcome.final_loss = self._quadratic.loss
        return self.outcome

    def _send(self, worker: int) -> None:
        arrives = self._passed(self._pushes)
        self.outcome.comm_s += arrives - self.now
        self._queue.add(arrives, ("arrived", worker))

    def _passed(self, link: int) -> float:
        """Return when a message that is given to this link of the servers now will have arrived."""
        self._free[link] = max(self.now, self._free[link]) + self._share
        return max(self._free[link], self.now + self._own) + self.setting.link.alpha

    def _arrived(self, worker: int) -> None:
        push = Push(worker, self._clock[worker], 1 / self.setting.workers)
        self._carry_out(self._ledger.push(push, self._being_made[worker], self.now))
        self._carry_out(self._ledger.pull(worker, self.now))

    def _carry_out(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Grant):
                self._begin(event)
            elif isinstance(event, Move):
                self._move(event)
            elif isinstance(event, Dropped):
                self.outcome.dropped += event.unused

    def _begin(self, grant: Grant) -> None:
        """Let a worker read the parameters as they are now, and compute."""
        worker, outcome = grant.worker, self.outcome
        self._clock[worker] = grant.clock
        self._being_made[worker] = self._quadratic.gradient()
        compute_s = self._draws(worker, self._iterations[worker])
        pause_s = self.policy.pause(worker, grant.clock)
        self._iterations[worker] += 1
        read = self._passed(self._reads)
        outcome.lead[grant.lead] += 1
        outcome.comm_s += read - self.now
        outcome.wait_s += grant.waited_s + pause_s
        outcome.compute_s += compute_s
        outcome.computed += 1
        self._computing[worker] = read + pause_s + compute_s, compute_s
        if self.setting.workers <= 16:
            self.starts.append((self.now, worker, grant.clock))
        self._queue.add(read + compute_s + pause_s, ("computed", worker))

    def _move(self, move: Move) -> None:
        total = np.zeros(len(CURVATURES))
        for part in move.parts:
            total += part.weight * part.gradient.content
            if part.first:
                self.outcome.gradients += 1
                self.outcome.staleness[part.staleness] += 1
        self.outcome.wall_s = self.now
        self._quadratic.move(total, len(move.parts), self.now)


@contextmanager
def _collections_paused() -> Iterator[None]:
    """Nothing here refers to itself in a circle, and searching for that takes as long as the simulation."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
