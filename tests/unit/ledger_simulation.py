"""The simulator driven by a server's own `Ledger`, event by event: slow, and the reference for `cost.simulator`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farandole.cost.quadratic import CURVATURES, Quadratic
from farandole.cost.setting import Draws, Outcome, Setting, Vector
from farandole.cost.simulator import TICK_S
from farandole.parameter_server.core.events import Dropped, Event, Grant, Move
from farandole.parameter_server.core.ledger import Ledger
from farandole.parameter_server.core.policies import Policy, Push
from farandole.runtime.event_queue import EventQueue


class LedgerSimulation:
    """Has the same outcome as `Simulation`, and takes several times as long."""

    def __init__(self, policy: Policy, setting: Setting) -> None:
        self.policy, self.setting = policy, setting
        self.outcome = Outcome()
        self.now = 0.0
        self._ledger = Ledger(policy, setting.steps * (1 if policy.in_rounds else setting.workers))
        self._quadratic, self._draws = Quadratic(setting, self.outcome), Draws(setting)
        self._own = setting.nbytes * setting.link.beta  # a message on the worker's own link
        self._share = self._own / setting.servers  # … and on each server's
        self._queue = EventQueue[tuple[str, int]]()  # what happens, to which worker
        self._reads, self._pushes = 0, int(setting.duplex)  # which of the links they pass
        self._free = [0.0, 0.0]  # when a server's links will be
        self._read_s = self._push_s = 0.0  # of all messages so far
        self._iterations = [0] * setting.workers
        self._computing = [(0.0, 0.0)] * setting.workers  # per worker: the last computation's end and duration
        self._clock = [0] * setting.workers  # of the gradient that is being computed
        self._being_made: list[Vector] = [self._quadratic.x] * setting.workers

    def run(self) -> Outcome:
        for worker in range(self.setting.workers):
            self._carry_out(self._ledger.pull(worker, self.now))
        tick_s = max(TICK_S, self.setting.compute_s / 100, self._share)  # a push depends on the time, too
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
        self.outcome.comm_s = self._read_s + self._push_s
        self.outcome.final_loss = self._quadratic.loss
        return self.outcome

    def _send(self, worker: int) -> None:
        arrives = self._passed(self._pushes)
        self._push_s += arrives - self.now
        self._queue.add(arrives, ("arrived", worker))

    def _passed(self, link: int) -> float:
        """Return when a message submitted to this link of the servers now will have arrived."""
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
        """Let a worker read the current parameters, and compute."""
        worker, outcome = grant.worker, self.outcome
        self._clock[worker] = grant.clock
        self._being_made[worker] = self._quadratic.gradient()
        compute_s = self._draws.seconds(worker, self._iterations[worker])
        pause_s = self.policy.pause(worker, grant.clock)
        self._iterations[worker] += 1
        read = self._passed(self._reads)
        outcome.lead[grant.lead] += 1
        self._read_s += read - self.now
        outcome.wait_s += grant.waited_s + pause_s
        outcome.compute_s += compute_s
        outcome.computed += 1
        self._computing[worker] = read + pause_s + compute_s, compute_s
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
