"""The policies' cached values equal those computed from every worker.

The plain definitions are here; both get random orders of events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.parameter_server.core.policies import (
    BSP,
    DSSP,
    SSP,
    Action,
    Apply,
    Drop,
    History,
    Partial,
    Policy,
    Push,
)
from farandole.parameter_server.core.policies.policy import Slowest, mean
from tests.unit.test_policies import EVERY_POLICY, POLICIES, QUICK


class LooksAtAll:
    """In the place of `Slowest`."""

    def __init__(self, clocks: dict[int, int]) -> None:
        self.clocks = clocks

    def worker(self) -> int | None:
        return min(self.clocks, key=self.clocks.__getitem__, default=None)

    def clock(self) -> int | None:
        return min(self.clocks.values(), default=None)


class LooksAtAllAfterEachPush(Policy):
    def completed(self, push: Push) -> None:
        self.clocks[push.worker] = push.clock + 1
        self.slowest = min(self.clocks.values())


class PlainBSP(LooksAtAllAfterEachPush, BSP):
    def _complete(self) -> list[Action]:
        if not self._arrived or self.clocks.keys() - self._arrived.keys():
            return []
        parts = mean(self._arrived.values())
        self._arrived.clear()
        return [Apply(parts)]


class HoldsInAList(LooksAtAllAfterEachPush, SSP):
    def __init__(self, workers: Iterable[int], staleness: int = 4) -> None:
        super().__init__(workers, staleness)
        self.held: list[Push] = []

    def started(self, worker: int, now: float) -> list[Action]:
        self._begun[worker] = self.clocks[worker] + 1
        return self._visible()

    def push(self, push: Push, now: float) -> list[Action]:
        self.completed(push)
        self.held.append(push)
        return self._visible()

    def _visible(self) -> list[Action]:
        reached = min(self._begun.values(), default=None)
        due = [push for push in self.held if reached is None or push.clock - self.staleness < reached]
        self.held = [push for push in self.held if push not in due]
        return [Apply(((push, push.share),)) for push in due]


class PlainDSSP(DSSP, HoldsInAList):
    pass


class PlainPartial(LooksAtAllAfterEachPush, Partial):
    def _is_over(self) -> bool:
        all_past = all(clock > self.step for clock in self.clocks.values())
        return all_past or len(self._arrived.get(self.step, ())) >= self.enough


class PlainHistory(LooksAtAllAfterEachPush, History):
    def leave(self, worker: int) -> list[Action]:
        late = self.clocks.get(worker, self.step + 1) <= self.step
        Policy.leave(self, worker)
        newest = self._newest.pop(worker, None) if late else None
        return [Drop(newest)] if newest else []

    def _complete(self, now: float) -> list[Action]:
        missing = [worker for worker, clock in self.clocks.items() if clock <= self.step]
        enough = len(self.clocks) - len(missing) >= self.enough
        if (missing and not (enough and self._is_time(now))) or not self._newest:
            return []
        self.step, self._began = self.step + 1, now
        enough = sum(clock > self.step for clock in self.clocks.values()) >= self.enough
        self._deadline = now if enough else None
        parts = mean(self._newest.values())
        self._newest = {push.worker: push for push, _ in parts if push.worker in self.clocks}  # in mean()'s order
        return [Apply(parts, keep=tuple(self._newest.values()))]


PAIRS: dict[str, Callable[[range], tuple[Policy, Policy]]] = {
    "bsp": lambda workers: (BSP(workers), PlainBSP(workers)),
    "ssp": lambda workers: (SSP(workers, 2), HoldsInAList(workers, 2)),
    "dssp": lambda workers: (DSSP(workers, 1, 3), PlainDSSP(workers, 1, 3)),
    "partial": lambda workers: (Partial(workers, 2), PlainPartial(workers, 2)),
    "history": lambda workers: (History(workers, 2), PlainHistory(workers, 2)),
}
EVENTS = st.lists(
    st.tuples(st.sampled_from(["go", "go", "go", "go", "tick", "leave"]), st.integers(0, 5)), max_size=120
)


@pytest.mark.parametrize("name", PAIRS)
@QUICK
@given(st.integers(1, 6), EVENTS)
def test_the_same_actions_in_the_same_order(name: str, workers: int, events: list[tuple[str, int]]) -> None:
    quick, plain = PAIRS[name](range(workers))
    plain._slowest = LooksAtAll(plain.clocks)  # type: ignore[assignment]
    computing: dict[int, int] = {}
    for now, (event, number) in enumerate(events):
        worker = number % workers
        if event == "tick":
            assert quick.tick(now) == plain.tick(now)
        elif worker not in quick.clocks:
            continue
        elif event == "leave" and number == workers - 1:
            computing.pop(worker, None)
            assert quick.leave(worker) == plain.leave(worker)
        elif worker in computing:
            push = Push(worker, computing.pop(worker), 1 / workers)
            assert quick.push(push, now) == plain.push(push, now)
        elif quick.may_start(worker):
            computing[worker] = quick.next_clock(worker)
            assert quick.started(worker, now) == plain.started(worker, now)
        assert quick.clocks == plain.clocks
        assert quick.slowest == plain.slowest
        for other in quick.clocks:
            assert quick.may_start(other) == plain.may_start(other)
            assert quick.next_clock(other) == plain.next_clock(other)


@EVERY_POLICY
@QUICK
@given(st.data(), st.integers(1, 6), EVENTS)
def test_nobody_who_waits_may_go_on_before_the_gate_moves(
    name: str, data: st.DataObject, workers: int, events: list[tuple[str, int]]
) -> None:
    """So a server need not ask for every worker after each push."""
    policy = data.draw(POLICIES[name])(range(workers))
    computing: dict[int, int] = {}
    for now, (event, number) in enumerate(events):
        worker = number % workers
        idle = policy.clocks.keys() - computing.keys()
        waiting, gate = {each for each in idle if not policy.may_start(each)}, policy.gate
        if event == "tick":
            policy.tick(now)
        elif worker not in policy.clocks:
            continue
        elif event == "leave" and number == workers - 1:
            computing.pop(worker, None)
            policy.leave(worker)
        elif worker in computing:
            policy.push(Push(worker, computing.pop(worker), 1 / workers), now)
        elif policy.may_start(worker):
            computing[worker] = policy.next_clock(worker)
            policy.started(worker, now)
            assert policy.gate == gate
        assert policy.slowest == min(policy.clocks.values(), default=0)
        if policy.gate == gate:
            assert not [each for each in waiting & policy.clocks.keys() if policy.may_start(each)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=60))
def test_the_slowest_is_the_first_of_the_lowest(steps: list[tuple[int, int]]) -> None:
    clocks = dict.fromkeys(range(10), 0)
    quick, plain = Slowest(clocks), LooksAtAll(clocks)
    for worker, further in steps:
        before, was_witness = plain.clock(), worker == quick.witness
        if further == 0:
            clocks.pop(worker, None)
        elif worker in clocks:
            clocks[worker] += further
        assert was_witness or plain.clock() == before, "only the witness can change the smallest"
        assert (quick.worker(), quick.clock()) == (plain.worker(), plain.clock())
