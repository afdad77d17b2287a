"""The parameter server's policies at 10,000 workers: the same objects, driven by events instead of messages.

Two kinds of events happen in the order of time: a worker has computed and sends its gradient; the gradient arrives. In
between a worker waits until the policy lets it start, as at a real server (`parameter_server.shard`). The simulation
keeps its own books of pulls and pushes: with the servers' `Ledger` it takes one and a half to two times as long.

    pull        the parameters, P bytes, pass the link from the servers: it is free, or they queue for it
    compute     the policy's own pause, if it makes one, and a time drawn from the straggler distribution
    push        the gradient, P bytes, passes the link to the servers in the same way

Each of S servers has 1/S of the bytes and its own link, which is busy with a message for P/S·β; α later the message
arrives. A worker's own link takes Pβ for the whole. So n workers keep the link of one server busy for 2Pnβ a round, or,
where it carries messages in both directions at the same time, for Pnβ in each. All servers decide alike, so one
policy stands for all of them. The time that a server takes for an update is left out.

Discrete-event simulation, see Law, "Simulation modeling and analysis", 2015, chapter 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farandole.cost.quadratic import CURVATURES, Quadratic
from farandole.cost.setting import Draws, Outcome, Setting, Vector
from farandole.parameter_server.core.policies import Action, Apply, Policy, Push
from farandole.runtime.event_queue import EventQueue

TICK_S = 0.005  # a real server looks at the time every few milliseconds


class Simulation:
    """Workers 0 to n − 1 and one policy, from the first read to the last update."""

    def __init__(self, policy: Policy, setting: Setting) -> None:
        self.policy, self.setting = policy, setting
        self.outcome = Outcome()
        self.starts: list[tuple[float, int, int]] = []  # with few workers: when, which worker, which iteration
        self.now = 0.0
        self._quadratic, self._draws = Quadratic(setting, self.outcome), Draws(setting)
        self._own = setting.nbytes * setting.link.beta  # a message on the worker's own link
        self._share = self._own / setting.servers  # … and on each server's
        self._queue = EventQueue[tuple[str, int]]()  # what happens, to which worker
        self._reads, self._pushes = 0, int(setting.duplex)  # which of the links they pass
        self._free = [0.0, 0.0]  # when a server's links will be
        self._waiting: dict[int, float] = {}  # worker → since when it waits for permission to start
        self._gate = policy.gate
        self._iterations = [0] * setting.workers
        self._computing = [(0.0, 0.0)] * setting.workers  # per worker: the last computation's end and duration
        self._clock = [0] * setting.workers  # of the gradient that is being computed
        self._begun = self._updates = 0
        self._own_updates = [0] * setting.workers
        self._read_at = [0] * setting.workers
        self._being_made: list[Vector] = [self._quadratic.x] * setting.workers
        self._gradients: dict[Push, tuple[Vector, int]] = {}  # and others' updates before it was read
        self._kept: set[Push] = set()  # applied, and perhaps to be used again

    def run(self) -> Outcome:
        for worker in range(self.setting.workers):
            self._pull(worker)
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
                self._carry_out(self.policy.tick(self.now))
                self._grant_waiting()
                if self._queue:
                    self._queue.add(self.now + tick_s, ("tick", 0))
        for worker in list(self._waiting):  # the work ran out while they waited
            self._grant(worker)
        assert not self._waiting, "a worker waits for ever"
        for worker in list(self.policy.clocks):
            self._carry_out(self.policy.leave(worker))
        for until, compute_s in self._computing:  # computing after the last update does not count
            self.outcome.compute_s -= min(max(until - self.outcome.wall_s, 0.0), compute_s)
        self.outcome.final_loss = self._quadratic.loss
        return self.outcome

    def _pull(self, worker: int) -> None:
        self._waiting[worker] = self.now
        self._grant(worker)

    def _grant_waiting(self) -> None:
        """Let every waiting worker start that may, now that something has changed."""
        while self.policy.gate != self._gate:
            self._gate = self.policy.gate
            for worker in list(self._waiting):
                self._grant(worker)

    def _grant(self, worker: int) -> None:
        """Let `worker` read the parameters and begin, if it may."""
        if self._is_finished(worker):
            del self._waiting[worker]
            if self.policy.in_rounds:
                self._carry_out(self.policy.leave(worker))
            return
        if not self.policy.may_start(worker):
            return
        clock = self._clock[worker] = self.policy.next_clock(worker)
        self._begun += 1
        self._read_at[worker] = self._updates - self._own_updates[worker]
        self._being_made[worker] = self._quadratic.gradient()
        self.outcome.lead[self.policy.lead(worker)] += 1
        compute_s, pause_s = self._draws(worker, self._iterations[worker]), self.policy.pause(worker, clock)
        self._iterations[worker] += 1
        read = self._passed(self._reads)
        self.outcome.comm_s += read - self.now
        self.outcome.wait_s += self.now - self._waiting.pop(worker) + pause_s
        self.outcome.compute_s += compute_s
        self.outcome.computed += 1
        self._computing[worker] = read + pause_s + compute_s, compute_s
        if self.setting.workers <= 16:
            self.starts.append((self.now, worker, clock))
        self._queue.add(read + compute_s + pause_s, ("computed", worker))
        self._carry_out(self.policy.started(worker, self.now))

    def _is_finished(self, worker: int) -> bool:
        if self.policy.in_rounds:
            return self.policy.next_clock(worker) >= self.setting.steps
        return self._begun >= self.setting.steps * self.setting.workers

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
        self._gradients[push] = self._being_made[worker], self._read_at[worker]
        self._carry_out(self.policy.push(push, self.now))
        if self.policy.gate == self._gate:
            self._pull(worker)
        else:
            self._waiting[worker] = self.now
            self._grant_waiting()

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Apply):
                self._apply(action)
            else:
                self.outcome.dropped += action.push not in self._kept
                del self._gradients[action.push]

    def _apply(self, update: Apply) -> None:
        total = np.zeros(len(CURVATURES))
        for push, weight in update.parts:
            gradient, read_at = self._gradients[push]
            total += weight * gradient
            if push not in self._kept:
                self.outcome.gradients += 1
                self.outcome.staleness[self._updates - self._own_updates[push.worker] - read_at] += 1
        self._updates += 1
        before, self._kept = self._kept, set(update.keep)
        for push, _ in update.parts:
            self._own_updates[push.worker] += push not in before
            if push not in self._kept:
                del self._gradients[push]
        self.outcome.wall_s = self.now
        self._quadratic.move(total, len(update.parts), self.now)
