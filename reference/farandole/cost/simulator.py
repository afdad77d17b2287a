"""The parameter server's policies at 10,000 workers: a server's own policy, driven by events instead of messages.

Two kinds of events happen in the order of time: a worker has computed and sends its gradient; the gradient arrives. In
between a worker waits until the policy lets it start, as at a real server.

    pull        the parameters, P bytes, pass the link from the servers: it is free, or they queue for it
    compute     the policy's own pause, if it makes one, and a time drawn from the straggler distribution
    push        the gradient, P bytes, passes the link to the servers in the same way

Each of S servers has 1/S of the bytes and its own link, which is busy with a message for P/S·β; α later the message
arrives. A worker's own link takes Pβ for the whole. So n workers keep the link of one server busy for 2Pnβ a round, or,
where it carries messages in both directions at the same time, for Pnβ in each. All servers decide alike, so one
policy stands for all of them. The time that a server takes for an update is left out.

A server's `Ledger` also knows gradients in ranges, messages that come twice and workers that die. None of them is here,
and what is left of it is `_pull` and `LateGradients.carry_out`: a test holds them against the ledger.

Discrete-event simulation, see Law, "Simulation modeling and analysis", 2015, chapter 1.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from farandole.cost.event_windows import events_of
from farandole.cost.late_gradients import LateGradients
from farandole.cost.setting import Outcome, Setting
from farandole.parameter_server.core.policies import Policy

NO_LIMIT = sys.maxsize
TICK_S = 0.005  # a real server looks at the time every few milliseconds


class Simulation:
    """Workers 0 to n − 1 and one policy, from the first read to the last update."""

    def __init__(self, policy: Policy, setting: Setting) -> None:
        self.policy, self.setting = policy, setting
        self.outcome = Outcome()
        self.starts: list[tuple[float, int, int]] = []  # with few workers: when, which worker, which iteration
        workers = setting.workers
        self._learning = LateGradients(setting, self.outcome)
        self._events = events_of(setting, policy)
        self._begun = 0  # gradients
        self._steps = setting.steps if policy.in_rounds else NO_LIMIT
        self._gradients = NO_LIMIT if policy.in_rounds else setting.steps * workers
        self._made: list[Any] = [None] * workers  # the `Gradient` that each worker computes or sends
        self._waiting: dict[int, float] = {}  # worker → since when
        self._gate: int | None = None  # the policy's, when all waiting workers were last considered; None: not yet
        self._starts = type(policy).started is not Policy.started
        self._few = workers <= 16

    def run(self) -> Outcome:
        with _collections_paused():
            return self._run()

    def _run(self) -> Outcome:
        policy, events, made, waiting = self.policy, self._events, self._made, self._waiting
        push, carry_out, request, server = policy.push, self._learning.carry_out, self._request, events.server
        for worker in list(policy.clocks):
            request(worker, 0.0, 0.0)
        tick_s = max(TICK_S, self.setting.compute_s / 100, self.setting.link_busy_s)  # a push looks at the time, too
        if type(policy).tick is not Policy.tick:
            events.ticks(tick_s)
        for now, worker in events:
            if worker != server:
                if actions := push(made[worker], now):
                    carry_out(actions, now)
                if waiting and policy.gate != self._gate:
                    self._answer(now)
                request(worker, now, now)
                if self._gate is None:
                    self._answer(now)
            else:
                carry_out(policy.tick(now), now)
                self._answer(now)
                if events:
                    events.ticks(now + tick_s)
        assert not self._waiting, "a worker waits for ever"
        assert policy.slowest == min(policy.clocks.values(), default=0), "the policy's `push` has to call `completed`"
        for worker in list(policy.clocks):
            carry_out(policy.leave(worker), now)
        return self._finished()

    def _finished(self) -> Outcome:
        outcome = self.outcome
        outcome.computed = self._begun
        self._learning.finish()
        events = self._events
        outcome.comm_s = events.read_s + events.push_s
        outcome.wait_s = events.wait_s
        unfinished = events.unfinished(outcome.wall_s)  # computing after the last update does not count
        outcome.compute_s = float(np.subtract.accumulate(np.concatenate([[events.compute_s], unfinished]))[-1])
        return outcome

    def _answer(self, now: float) -> None:
        """Consider all waiting workers, as often as the gate has moved: before that none of them may start."""
        while (gate := self.policy.gate) != self._gate:
            self._gate = gate
            if self._waiting:
                self._events.waiting_start()
                waiting = list(self._waiting.items())
                self._waiting.clear()
                for worker, since in waiting:
                    self._request(worker, since, now)

    def _request(self, worker: int, since: float, now: float) -> None:
        """Let a worker start its next iteration, which it has requested at `since`, or end, or wait."""
        policy = self.policy
        clock = policy.next_clock(worker)
        if clock >= self._steps or self._begun >= self._gradients:
            if policy.in_rounds:  # a gradient that a later step would have used will not be
                self._learning.carry_out(policy.leave(worker), now)
                self._gate = None
            return
        if not policy.may_start(worker):
            self._waiting[worker] = since
            return
        self._events.starts(worker, now, since, clock)
        self._made[worker] = self._learning.begin(worker, clock, policy.lead(worker))
        self._begun += 1
        if self._few:
            self.starts.append((now, worker, clock))
        if self._starts and (actions := policy.started(worker, now)):
            self._learning.carry_out(actions, now)
        if self._begun >= self._gradients:
            self._gate = None  # those that wait have ended


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
