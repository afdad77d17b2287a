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
and what is left of it is `_pull`, `_consider` and `_apply`: a test holds them against the ledger.

Discrete-event simulation, see Law, "Simulation modeling and analysis", 2015, chapter 1.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from farandole.cost.late_gradients import LateGradients
from farandole.cost.server_links import READS, Links
from farandole.cost.setting import Draws, Outcome, Setting
from farandole.cost.worker_events import WorkerEvents
from farandole.parameter_server.core.policies import Action, Apply, Policy, Push

TICK_S = 0.005  # a real server looks at the time every few milliseconds


@dataclass(slots=True, eq=False)
class Gradient(Push):
    """A push, and what the simulator knows of it.

    Attributes:
        slot: where `LateGradients` has its values.
        read_at: updates by others that the parameters contained at which it was computed.
        counted: whether it has moved the parameters already; a policy may use it again.
    """

    slot: int
    read_at: int
    iteration: int
    ends: float
    takes: float
    counted: bool = False


NOTHING = Gradient(-1, -1, 0.0, -1, 0, -1, 0.0, 0.0)


class Simulation:
    """Workers 0 to n − 1 and one policy, from the first read to the last update."""

    def __init__(self, policy: Policy, setting: Setting) -> None:
        self.policy, self.setting = policy, setting
        self.outcome = Outcome()
        self.starts: list[tuple[float, int, int]] = []  # with few workers: when, which worker, which iteration
        workers = setting.workers
        self._learning, self._draws = LateGradients(setting, self.outcome), Draws(setting)
        self._links = Links(setting)
        self._each = 1 / workers  # of the whole batch
        self._events = WorkerEvents(workers + 1)  # the last one is the server's clock
        self._limit = setting.steps * (1 if policy.in_rounds else workers)  # in steps, or in gradients
        self._made: list[Gradient] = [NOTHING] * workers  # what each worker computes or sends
        self._waiting: dict[int, float] = {}  # worker → since when
        self._gate: int | None = None  # the policy's, when all waiting workers were last considered
        self._updates = 0
        self._updates_of = [0] * workers  # that contained a new gradient of this worker
        self._starts = type(policy).started is not Policy.started
        self._pauses = type(policy).pause is not Policy.pause

    def run(self) -> Outcome:
        with _collections_paused():
            return self._run()

    def _run(self) -> Outcome:
        policy, events, links, server = self.policy, self._events, self._links, self.setting.workers
        for worker in range(server):
            self._pull(worker, 0.0)
        tick_s = max(TICK_S, self.setting.compute_s / 100, links.share)  # a push looks at the time, too
        if type(policy).tick is not Policy.tick:
            events.computes(server, tick_s)
        for now, worker, arrived in events:
            if arrived:
                self._carry_out(policy.push(self._made[worker], now), now)
                if self._waiting:
                    self._answer(now)
                self._pull(worker, now)
            elif worker != server:
                events.arrives(worker, links.passed(links.pushes, now))
            else:
                self._carry_out(policy.tick(now), now)
                self._answer(now)
                if events:
                    events.computes(server, now + tick_s)
        assert not self._waiting, "a worker waits for ever"
        for worker in list(policy.clocks):
            self._carry_out(policy.leave(worker), now)
        return self._finished()

    def _finished(self) -> Outcome:
        outcome = self.outcome
        outcome.comm_s = self._links.comm_s
        for last in self._made:  # computing after the last update does not count
            outcome.compute_s -= min(max(last.ends - outcome.wall_s, 0.0), last.takes)
        self._learning.catch_up()
        outcome.final_loss = self._learning.loss
        return outcome

    def _pull(self, worker: int, now: float) -> None:
        """`worker` requests to start its next iteration."""
        self._waiting[worker] = now
        if self._consider(worker, now):
            self._answer(now)

    def _answer(self, now: float) -> None:
        """Consider all waiting workers, as often as the gate has moved: before that none of them may start."""
        while (gate := self.policy.gate) != self._gate:
            self._gate = gate
            for worker in list(self._waiting):
                self._consider(worker, now)

    def _consider(self, worker: int, now: float) -> bool:
        """Let `worker` start, or end, if it can; return whether others may have waited for that."""
        policy, outcome = self.policy, self.outcome
        clock = policy.next_clock(worker)
        if (clock if policy.in_rounds else outcome.computed) >= self._limit:
            del self._waiting[worker]
            if policy.in_rounds:  # a gradient that a later step would have used will not be
                self._carry_out(policy.leave(worker), now)
            return True
        if not policy.may_start(worker):
            return False
        self._begin(worker, clock, now)
        if self._starts and (actions := policy.started(worker, now)):
            self._carry_out(actions, now)
        if policy.in_rounds or outcome.computed < self._limit:
            return False
        self._gate = None  # those that wait have ended
        return True

    def _begin(self, worker: int, clock: int, now: float) -> None:
        """Let a worker read the parameters as they are now, and compute."""
        policy, outcome, before = self.policy, self.outcome, self._made[worker]
        iteration = before.iteration + 1
        takes_s = self._draws(worker, iteration)
        pause_s = policy.pause(worker, clock) if self._pauses else 0.0
        read = self._links.passed(READS, now)
        read_at = self._updates - self._updates_of[worker]
        self._made[worker] = Gradient(
            worker,
            clock,
            self._each,
            self._learning.begin(),
            read_at,
            iteration,
            read + pause_s + takes_s,
            takes_s,
            False,
        )
        outcome.computed += 1
        outcome.lead[policy.lead(worker)] += 1
        outcome.compute_s += takes_s
        outcome.wait_s += now - self._waiting.pop(worker) + pause_s
        self._events.computes(worker, read + takes_s + pause_s)
        if len(self._made) <= 16:
            self.starts.append((now, worker, clock))

    def _carry_out(self, actions: Sequence[Action], now: float) -> None:
        for action in actions:
            if isinstance(action, Apply):
                self._apply(action, now)
            else:
                gradient: Any = action.push
                self.outcome.dropped += not gradient.counted
                self._learning.release([gradient.slot])

    def _apply(self, update: Apply, now: float) -> None:
        """Move the parameters, and note how stale each gradient is that has not counted before."""
        outcome, learning, own = self.outcome, self._learning, self._updates_of
        parts: Any = update.parts  # of `Gradient`s, since a policy returns the pushes that it was given
        outcome.wall_s = now
        updates, self._updates = self._updates, self._updates + 1
        keep: Any = update.keep
        if len(parts) == 1 and not keep:  # as below, but most moves of most policies are of one gradient
            [(gradient, weight)] = parts
            if not gradient.counted:
                worker = gradient.worker
                outcome.staleness[updates - own[worker] - gradient.read_at] += 1
                own[worker] += 1
                outcome.gradients += 1
            learning.apply_one(gradient.slot, weight, now)
            return
        new = [gradient for gradient, _ in parts if not gradient.counted]
        outcome.staleness.update([updates - own[gradient.worker] - gradient.read_at for gradient in new])
        outcome.gradients += len(new)
        for gradient in new:
            gradient.counted = True
            own[gradient.worker] += 1
        slots, kept = [gradient.slot for gradient, _ in parts], {gradient.slot for gradient in keep}
        learning.apply(slots, [weight for _, weight in parts], now)
        learning.release([slot for slot in slots if slot not in kept])


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
