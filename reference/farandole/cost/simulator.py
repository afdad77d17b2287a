"""The parameter server's policies at 10,000 workers: the same objects, driven by events instead of messages.

One event after the other in the order of time: a worker is done computing and sends its gradient; the gradient has
come. In between a worker waits for the policy's word, as at a real server (`parameter_server.shard`).

    read        the parameters, P bytes, pass the link from the servers: it is free, or they queue for it
    compute     the policy's own pause, if it makes one, and a time drawn from the straggler distribution
    push        the gradient, P bytes, passes the link to the servers, likewise

Each of S servers has 1/S of the bytes and a link of its own, which is busy with a message for P/S·β; α later it is
there. A worker's own link takes Pβ for the whole. So n workers keep the link of one server busy for 2Pnβ a round, or,
where it carries messages in both directions at the same time, for Pnβ in each. All servers decide alike, so one
policy stands for all of them. That an update takes a server time is left out.

What the staleness does to learning is shown on a quadratic with noise, ½Σhᵢxᵢ²: the gradient that a worker pushes is
the one at the parameters that it read, and is applied when the policy says so.

Discrete-event simulation, see Law, "Simulation modeling and analysis", 2015, chapter 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from farandole.collectives.costs import Link
from farandole.cost.stragglers import Constant, Straggler
from farandole.parameter_server.core.policies import Action, Apply, Policy, Push

Vector = NDArray[np.float64]
COMPUTED, ARRIVED, TICK = range(3)
TICK_S = 0.005  # a real server looks at the time every few milliseconds
CURVATURES = np.array([1.0, 0.5, 0.2, 0.1])
ROWS_OF_NOISE = 1 << 14
NO_NETWORK = Link(0.0, 0.0)  # everything is there at once


@dataclass(frozen=True)
class Setting:
    """What is simulated, whatever the method.

    Attributes:
        steps: gradients of each worker, on average.
        compute_s: mean time of an unhindered worker's step.
        nbytes: the parameters, and a gradient.
        link: of each worker and of each server.
        duplex: whether reads do not queue with pushes.
        noise: standard deviation of each entry of one worker's gradient.
        target: which part of the loss at the start is to be reached.
    """

    workers: int
    steps: int
    compute_s: float = 0.1
    straggler: Straggler = field(default_factory=Constant)
    nbytes: float = 0.0
    link: Link = NO_NETWORK
    servers: int = 1
    duplex: bool = False
    lr: float = 0.2
    noise: float = 0.3
    target: float = 0.05
    seed: int = 0


@dataclass
class Outcome:
    """What came of it.

    Attributes:
        wall_s: until the last update.
        gradients: how many were applied; one that is used again counts once.
        computed: how many were begun; some may never be applied.
        compute_s, comm_s, wait_s: seconds of all workers together; a pause that a policy makes is waiting.
        staleness: histogram, others' updates between reading and application.
        lead: histogram, clock minus slowest clock at each start.
        to_loss_s: when the loss came to the target; None: never.
        consensus_error: how far the workers' copies are apart at the end; None: there is one vector for all.
    """

    wall_s: float = 0.0
    gradients: int = 0
    computed: int = 0
    dropped: int = 0
    compute_s: float = 0.0
    comm_s: float = 0.0
    wait_s: float = 0.0
    staleness: Counter[int] = field(default_factory=Counter)
    lead: Counter[int] = field(default_factory=Counter)
    to_loss_s: float | None = None
    final_loss: float = 0.0
    consensus_error: float | None = None

    @property
    def wait_share(self) -> float:
        """Of all workers' time."""
        total = self.compute_s + self.comm_s + self.wait_s
        return self.wait_s / total if total else 0.0

    def efficiency(self, workers: int) -> float:
        """Return the speed relative to a training with the same computing times, but without waiting or messages.

        At most 1, however the times were drawn: the computing time of the applied gradients, each counted with the mean
        of the drawn times, over the time of all workers.
        """
        mean_s = self.compute_s / self.computed
        return self.gradients * mean_s / (workers * self.wall_s)


class Quadratic:
    """½Σhᵢxᵢ² from x = 1, and when it has come down far enough."""

    def __init__(self, setting: Setting, outcome: Outcome) -> None:
        self.x = np.ones(len(CURVATURES))
        self._slope = CURVATURES * self.x
        self._rng = np.random.default_rng([setting.seed, 1])
        self._noise, self._row = np.empty((0, len(self.x))), 0
        self._setting, self._outcome = setting, outcome
        self._goal = setting.target * self.loss
        self._unseen = 0

    @property
    def loss(self) -> float:
        return float(CURVATURES @ (self.x * self.x)) / 2

    def gradient(self) -> Vector:
        """At x as it is now, as one worker sees it."""
        if self._row == len(self._noise):
            shape = ROWS_OF_NOISE, len(self.x)
            self._noise, self._row = self._rng.normal(scale=self._setting.noise, size=shape), 0
        self._row += 1
        seen: Vector = self._slope + self._noise[self._row - 1]
        return seen

    def move(self, gradient: Vector, gradients: int, now: float) -> None:
        """One update, made of so many gradients. A tenth of a step later than it happens, the goal is noticed."""
        self.x = self.x - self._setting.lr * gradient
        self._slope = CURVATURES * self.x
        self._unseen += gradients
        if self._outcome.to_loss_s is None and self._unseen * 10 >= self._setting.workers:
            self._unseen = 0
            if self.loss <= self._goal:
                self._outcome.to_loss_s = now


class Draws:
    """The computing times: the i-th of a worker is the same whatever the method, so methods meet the same luck."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._rng = np.random.default_rng([setting.seed, 0])
        self._rows = setting.steps
        self._blocks: list[list[list[float]]] = []  # so many times for each worker

    def __call__(self, worker: int, iteration: int) -> float:
        if recorded := self._setting.straggler.recorded:
            own = recorded[worker]
            return own[iteration % len(own)] * self._setting.compute_s
        block, row = divmod(iteration, self._rows)
        while block >= len(self._blocks):
            self._blocks.append((self.block() * self._setting.compute_s).T.tolist())
        return self._blocks[block][worker][row]

    def block(self) -> Vector:
        return self._setting.straggler.sample(self._rng, self._rows, self._setting.workers)


class Simulation:
    """Workers 0 to n − 1 and one policy, from the first read to the last update."""

    def __init__(self, policy: Policy, setting: Setting) -> None:
        self.policy, self.setting = policy, setting
        self.outcome = Outcome()
        self.starts: list[tuple[float, int, int]] = []  # only of few workers: when, who, which iteration
        self.now = 0.0
        self._quadratic, self._draws = Quadratic(setting, self.outcome), Draws(setting)
        self._own = setting.nbytes * setting.link.beta  # a message on the worker's own link
        self._share = self._own / setting.servers  # … and on each server's
        self._events: list[tuple[float, int, int, int]] = []  # time, number, kind, worker
        self._number = 0
        self._reads, self._pushes = 0, int(setting.duplex)  # which of the links they pass
        self._free = [0.0, 0.0]  # when a server's links will be
        self._asked: dict[int, float] = {}  # worker → since when it waits for the policy's word
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
            self._ask(worker)
        tick_s = max(TICK_S, self.setting.compute_s / 100, self._share)  # a push looks at the time, too
        if type(self.policy).tick is not Policy.tick:
            self._at(tick_s, TICK, 0)
        while self._events:
            self.now, _, kind, worker = heappop(self._events)
            if kind == COMPUTED:
                self._send(worker)
            elif kind == ARRIVED:
                self._arrived(worker)
            else:
                self._carry_out(self.policy.tick(self.now))
                self._let_go()
                if self._events:
                    self._at(self.now + tick_s, TICK, 0)
        for worker in list(self._asked):  # the work ran out while they waited
            self._grant(worker)
        assert not self._asked, "nobody waits for ever"
        for worker in list(self.policy.clocks):
            self._carry_out(self.policy.leave(worker))
        for until, compute_s in self._computing:  # computing after the last update does not count
            self.outcome.compute_s -= min(max(until - self.outcome.wall_s, 0.0), compute_s)
        self.outcome.final_loss = self._quadratic.loss
        return self.outcome

    def _at(self, time: float, kind: int, worker: int) -> None:
        self._number += 1
        heappush(self._events, (time, self._number, kind, worker))

    def _ask(self, worker: int) -> None:
        self._asked[worker] = self.now
        self._grant(worker)

    def _let_go(self) -> None:
        """Let all go on that may, now that something has changed."""
        while self.policy.gate != self._gate:
            self._gate = self.policy.gate
            for worker in list(self._asked):
                self._grant(worker)

    def _grant(self, worker: int) -> None:
        """Let `worker` read the parameters and begin, if it may."""
        if self._is_finished(worker):
            del self._asked[worker]
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
        self.outcome.wait_s += self.now - self._asked.pop(worker) + pause_s
        self.outcome.compute_s += compute_s
        self.outcome.computed += 1
        self._computing[worker] = read + pause_s + compute_s, compute_s
        if self.setting.workers <= 16:
            self.starts.append((self.now, worker, clock))
        self._at(read + compute_s + pause_s, COMPUTED, worker)
        self._carry_out(self.policy.started(worker, self.now))

    def _is_finished(self, worker: int) -> bool:
        if self.policy.in_rounds:
            return self.policy.next_clock(worker) >= self.setting.steps
        return self._begun >= self.setting.steps * self.setting.workers

    def _send(self, worker: int) -> None:
        arrives = self._passed(self._pushes)
        self.outcome.comm_s += arrives - self.now
        self._at(arrives, ARRIVED, worker)

    def _passed(self, way: int) -> float:
        """When a message that is given to the link now will be there."""
        self._free[way] = max(self.now, self._free[way]) + self._share
        return max(self._free[way], self.now + self._own) + self.setting.link.alpha

    def _arrived(self, worker: int) -> None:
        push = Push(worker, self._clock[worker], 1 / self.setting.workers)
        self._gradients[push] = self._being_made[worker], self._read_at[worker]
        self._carry_out(self.policy.push(push, self.now))
        if self.policy.gate == self._gate:
            self._ask(worker)
        else:
            self._asked[worker] = self.now
            self._let_go()

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
