"""Consistency policies without MPI: bounds kept, nothing lost, nothing twice, and never a deadlock.

For any speeds of the workers, any order of messages, and any worker that leaves at any moment. In every
run the driver asserts that an applied gradient is still in the server's memory, and that a discarded one
is never used again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farandole.parameter_server.core.policies import (
    BSP,
    DSSP,
    SSP,
    Apply,
    Asynchronous,
    Drop,
    Half,
    History,
    Partial,
    Policy,
    Push,
)
from farandole.parameter_server.core.policies.half import GAMMA, mixed
from farandole.parameter_server.core.policies.policy import Slowest, mean
from tests.unit.policy_driver import Run, Server, Workload

Make = Callable[[Iterable[int]], Policy]

settings.register_profile(
    "policies", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
QUICK = settings.get_profile("policies")

DURATIONS = st.sampled_from([0.0, 1.0, 1.0, 1.0, 1.5, 3.0, 20.0])
LIVELY = st.sampled_from([0.5, 1.0, 1.0, 1.5, 3.0, 20.0])
DELAYS = st.sampled_from([0.0, 0.0, 0.5, 2.0, 7.0])


@st.composite
def workloads(
    draw: st.DrawFn, leaving: bool = True, delayed: bool = True, durations: st.SearchStrategy[float] = DURATIONS
) -> Workload:
    """Draw 1–16 workers: equally fast or not, always or at times, some of which leave."""
    workers = draw(st.integers(1, 16))
    iterations = draw(st.integers(1, 7))
    speeds = st.lists(durations, min_size=1, max_size=4).map(tuple)
    leaves = st.tuples(st.integers(1, 3 * workers * iterations), st.integers(0, workers - 1))
    return Workload(
        iterations,
        draw(st.tuples(*[speeds] * workers)),
        draw(st.lists(DELAYS, min_size=1, max_size=5).map(tuple)) if delayed else (0.0,),
        draw(st.lists(leaves, max_size=workers).map(tuple)) if leaving else (),
        draw(st.booleans()),
        draw(st.sampled_from([None, 0.3, 1.0])),
        draw(st.integers(0, 2**16)),
    )


stalenesses = st.integers(0, 5)
POLICIES: dict[str, st.SearchStrategy[Make]] = {
    "bsp": st.just(BSP),
    "ssp": stalenesses.map(lambda s: lambda workers: SSP(workers, s)),
    "asynchronous": st.just(Asynchronous),
    "half": stalenesses.map(lambda s: lambda workers: Half(workers, s, longest_wait=2.0)),
    "partial": st.integers(1, 16).map(lambda enough: lambda workers: Partial(workers, enough)),
    "dssp": st.tuples(stalenesses, stalenesses).map(
        lambda bounds: lambda workers: DSSP(workers, min(bounds), max(bounds))
    ),
    "history": st.tuples(st.integers(1, 16), st.sampled_from([0.0, 0.5, 3.0])).map(
        lambda choice: lambda workers: History(workers, *choice)
    ),
}
EVERY_POLICY = pytest.mark.parametrize("name", POLICIES)


def run(make: Make, workload: Workload, servers: int = 1) -> Run:
    return Run([make(workload.workers) for _ in range(servers)], workload)


def served(make: Make, workload: Workload) -> Server:
    """Return the events at a single server."""
    return run(make, workload).servers[0]


def seen(server: Server) -> list[set[tuple[int, int]]]:
    """Return for each start (worker, clock) of all gradients in the parameters that it read."""
    after: list[set[tuple[int, int]]] = [set()]  # so many updates
    for update in server.updates:
        after.append(after[-1] | {(push.worker, push.clock) for push in update.pushes})
    return [after[start.updates] for start in server.starts]


def final_sum(server: Server) -> float:
    """Return the final parameters, if each gradient is a different number."""
    return sum(
        weight * math.sin(1 + 17 * push.worker + 5 * push.clock) for u in server.updates for push, weight in u.parts
    )


# No deadlock, and nothing lost: for every policy


@EVERY_POLICY
@QUICK
@given(st.data(), workloads(), st.integers(1, 3))
def test_a_run_ends_and_every_gradient_counts_once(
    name: str, data: st.DataObject, workload: Workload, servers: int
) -> None:
    done = run(data.draw(POLICIES[name]), workload, servers)
    assert_every_worker_can_go_on(name, done, workload)
    for server in done.servers:
        assert_every_gradient_is_applied_or_dropped(name, server)
        assert_a_worker_counts_once_per_update_with_its_weight(server)
        assert_clocks_only_rise(name, server, workload)


def assert_every_worker_can_go_on(name: str, done: Run, workload: Workload) -> None:
    """The run has ended: at any moment some worker could start or compute, or a message was under way."""
    assert name == "history" or done.idle_ticks == 0, "only history may need that time passes"
    for server in done.servers:
        gone = {worker for _, worker in workload.leaves}
        finished = {start.worker for start in server.starts if start.clock + 1 == workload.iterations}
        if name in ("partial", "history"):  # a late worker skips what the others have finished
            assert finished or gone == set(workload.workers)
        else:
            assert set(workload.workers) - gone <= finished


def assert_every_gradient_is_applied_or_dropped(name: str, server: Server) -> None:
    applied = Counter(push for update in server.updates for push in update.pushes)
    assert not server.memory, "at the end nothing is held any more"
    assert max(Counter(server.dropped).values(), default=1) == 1
    if name == "history":
        assert set(server.pushed) == set(applied) | set(server.dropped)
    else:
        assert Counter(list(server.pushed)) == applied + Counter(server.dropped), "each exactly once"
    if name not in ("partial", "history"):
        assert not server.dropped


def assert_a_worker_counts_once_per_update_with_its_weight(server: Server) -> None:
    for update in server.updates:
        workers = [push.worker for push in update.pushes]
        assert workers == sorted(set(workers)), "in a fixed order, each once"
        weights = [weight for _, weight in update.parts]
        if server.policy.in_rounds:
            assert math.isclose(sum(weights), 1)
            share = sum(push.share for push in update.pushes)
            assert weights == pytest.approx([push.share / share for push in update.pushes])
        elif getattr(server.policy, "staleness", 1) == 0:
            assert len({push.clock for push in update.pushes}) == 1, "an iteration's gradients, as their mean"
            assert math.isclose(sum(weights), 1)
        else:
            assert weights == [update.pushes[0].share]


def assert_clocks_only_rise(name: str, server: Server, workload: Workload) -> None:
    """One gradient per worker and clock: a server would treat a second one as a duplicate."""
    for worker in workload.workers:
        clocks = [push.clock for push in server.pushed if push.worker == worker]
        assert all(earlier < later for earlier, later in pairwise(clocks))
        if name not in ("partial", "history"):
            assert clocks == list(range(len(clocks)))


@EVERY_POLICY
@QUICK
@given(st.data(), workloads(leaving=False), st.integers(1, 3))
def test_one_worker_alone_never_waits(name: str, data: st.DataObject, workload: Workload, servers: int) -> None:
    alone = Workload(workload.iterations, workload.durations[:1], seed=workload.seed, delays=(0.0,))
    done = run(data.draw(POLICIES[name]), alone, servers)
    for server in done.servers:
        assert [start.clock for start in server.starts] == list(range(alone.iterations))
        assert len(server.updates) == alone.iterations
        assert not server.dropped or name == "history"
        waits = [later.time - earlier.time for earlier, later in pairwise(server.starts)]
        spent = [alone.durations[0][i % len(alone.durations[0])] for i in range(len(waits))]
        pauses = [server.policy.pause(0, clock) for clock in range(len(waits))]
        assert waits == pytest.approx([a + b for a, b in zip(spent, pauses, strict=True)])


# The bound


def assert_bounded(servers: Iterable[Server], staleness: int, sees: int | None = None) -> None:
    """Lead ≤ s, spread ≤ s + 1; iteration c has read all of ≤ c − s − 1, and none of ≥ c + s.

    Args:
        sees: s for what is read, where that is not the bound of the lead.
    """
    s = staleness if sees is None else sees
    for server in servers:
        assert server.spread <= staleness + 1
        applied_at = {push: numbers[0] for push, numbers in server.applied_at().items()}
        for start in server.starts:
            assert start.lead <= staleness
            for push, number in applied_at.items():
                if push.clock <= start.clock - s - 1:
                    assert number < start.updates, f"{start} has not read {push}"
                if push.clock >= start.clock + max(s, 1):
                    assert number >= start.updates, f"{start} has read {push}"


@QUICK
@given(workloads(), stalenesses, st.integers(1, 3))
def test_stale_keeps_its_bound_and_reads_what_it_must(workload: Workload, staleness: int, servers: int) -> None:
    assert_bounded(run(lambda workers: SSP(workers, staleness), workload, servers).servers, staleness)


@QUICK
@given(workloads(), stalenesses, st.sampled_from([0.1, 5.0]), st.integers(0, 9))
def test_half_keeps_the_bound_of_stale(workload: Workload, staleness: int, wait: float, seed: int) -> None:
    assert_bounded(run(lambda workers: Half(workers, staleness, wait, seed), workload).servers, staleness)


@QUICK
@given(workloads(), stalenesses, stalenesses, st.integers(1, 3))
def test_dynamic_stays_below_its_upper_bound(workload: Workload, low: int, more: int, servers: int) -> None:
    assert_bounded(run(lambda workers: DSSP(workers, low, low + more), workload, servers).servers, low + more)


@QUICK
@given(workloads(), st.integers(1, 3))
def test_minibatch_never_leads_and_reads_exactly_what_came_before(workload: Workload, servers: int) -> None:
    for server in run(BSP, workload, servers).servers:
        assert server.spread <= 1
        pushed = {(push.worker, push.clock) for push in server.pushed}
        for start, read in zip(server.starts, seen(server), strict=True):
            assert start.lead == 0
            assert read == {(worker, clock) for worker, clock in pushed if clock < start.clock}
        for step, update in enumerate(server.updates):
            assert {push.clock for push in update.pushes} == {step}


@pytest.mark.parametrize("staleness", range(5))
def test_the_bound_is_reached(staleness: int) -> None:
    """Beside a worker that never progresses, another does exactly s + 1 iterations, and none after that."""
    policy = SSP([3, 8], staleness)
    for clock in range(staleness + 1):
        assert policy.may_start(8)
        policy.started(8, now=0.0)
        policy.push(Push(8, clock, 0.5), now=0.0)
    assert not policy.may_start(8)
    assert policy.lead(8) == staleness + 1
    assert policy.may_start(3)


@pytest.mark.parametrize("staleness", range(1, 5))
def test_a_gradient_is_visible_once_every_worker_has_begun_s_iterations_before_it(staleness: int) -> None:
    """Worker 1 has completed iteration 0, and is late to begin iteration 1: it must not read one of s + 1."""
    policy = SSP([0, 1], staleness)
    policy.started(0, now=0.0)
    policy.started(1, now=0.0)
    policy.push(Push(1, 0, 0.5), now=0.0)
    for clock in range(staleness + 1):
        push = Push(0, clock, 0.5)
        assert policy.push(push, now=0.0) == [Apply(((push, 0.5),))]
        assert policy.may_start(0)
        assert policy.started(0, now=0.0) == []
    late = Push(0, staleness + 1, 0.5)
    assert policy.push(late, now=0.0) == []
    assert policy.started(1, now=0.0) == [Apply(((late, 0.5),))]


def test_gradients_that_become_visible_together_are_applied_in_the_order_of_their_arrival() -> None:
    policy = SSP(range(3), staleness=1)
    for worker in range(3):
        policy.started(worker, now=0.0)
    policy.push(Push(2, 0, 0.25), now=0.0)
    for worker, clock in ((1, 0), (1, 1), (0, 0), (0, 1)):
        assert policy.push(Push(worker, clock, 0.25), now=0.0) != []
        policy.started(worker, now=0.0)
    first, second = Push(1, 2, 0.25), Push(0, 2, 0.25)
    assert policy.push(first, now=0.0) == policy.push(second, now=0.0) == [], "worker 2 has not begun iteration 1"
    assert policy.started(2, now=0.0) == [Apply(((first, 0.25),)), Apply(((second, 0.25),))]


def test_a_gradient_of_no_samples_has_no_weight() -> None:
    """A worker without samples among others, and nothing but such workers."""
    none, some = Push(0, 0, 0.0), Push(1, 0, 0.5)
    assert mean([some, none]) == ((none, 0.0), (some, 1.0))
    assert mean([none]) == ((none, 0.0),)


def test_a_worker_that_leaves_is_no_longer_waited_for() -> None:
    policy = SSP(range(3), staleness=0)
    for worker in (0, 1):
        policy.started(worker, now=0.0)
        assert policy.push(Push(worker, 0, 1 / 3), now=0.0) == [], "worker 2 has not begun iteration 0"
        assert not policy.may_start(worker)
    assert policy.leave(2) == [Apply(((Push(0, 0, 1 / 3), 0.5), (Push(1, 0, 1 / 3), 0.5)))]
    assert policy.may_start(0)
    assert policy.may_start(1)


def test_when_the_last_worker_leaves_nothing_is_held_any_more() -> None:
    policy = SSP(range(2), staleness=0)
    policy.started(0, now=0.0)
    assert policy.push(Push(0, 0, 0.5), now=0.0) == []
    assert policy.leave(0) == [], "worker 1 has still to begin iteration 0"
    assert policy.leave(1) == [Apply(((Push(0, 0, 0.5), 1.0),))]


@QUICK
@given(workloads(delayed=False))
def test_asynchronous_makes_nobody_wait(workload: Workload) -> None:
    server = served(Asynchronous, workload)
    for worker in workload.workers:
        starts = [start for start in server.starts if start.worker == worker]
        for earlier, later in pairwise(starts):
            durations = workload.durations[worker]
            assert later.time - earlier.time == pytest.approx(durations[earlier.clock % len(durations)])
    assert [update.pushes for update in server.updates] == [[push] for push in server.pushed], "at once, in order"


@QUICK
@given(st.dictionaries(st.integers(0, 9), st.integers(0, 3)), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3))))
def test_the_slowest_is_the_lowest_number_of_those_with_the_smallest_clock(
    clocks: dict[int, int], events: list[tuple[int, int]]
) -> None:
    """By its definition, after each event: a worker's clock rises, or, by 0, it leaves."""
    slowest = Slowest(clocks)
    for worker, rise in [(-1, 1), *events]:
        if worker in clocks and rise:
            clocks[worker] += rise
        elif worker in clocks:
            del clocks[worker]
        clock, who = min(((clock, worker) for worker, clock in clocks.items()), default=(None, None))
        assert (slowest.clock(), slowest.worker()) == (clock, who)


# Policies that are equal under different names


def assert_same(one: Make, other: Make, workload: Workload, servers: int, bitwise: bool = False) -> None:
    """Check for the same permissions at the same moments, and the same gradients read at each start.

    Args:
        bitwise: also the same weights in the same order: the same bits, whatever rule applies them.
    """
    for left, right in zip(run(one, workload, servers).servers, run(other, workload, servers).servers, strict=True):
        assert [(s.time, s.worker, s.clock) for s in left.starts] == [(s.time, s.worker, s.clock) for s in right.starts]
        assert list(left.pushed) == list(right.pushed)
        assert seen(left) == seen(right)
        if bitwise:
            assert [update.parts for update in left.updates] == [update.parts for update in right.updates]
        if not workload.leaves:  # otherwise a mean over the present workers is not a sum of shares
            assert math.isclose(final_sum(left), final_sum(right), abs_tol=1e-9)


SYNCHRONOUS: dict[str, Make] = {
    "ssp": lambda workers: SSP(workers, 0),
    "half": lambda workers: Half(workers, 0, longest_wait=0.0),
    "dssp": lambda workers: DSSP(workers, 0, 0),
    "partial": lambda workers: Partial(workers, 16),
}


@pytest.mark.parametrize("name", SYNCHRONOUS)
@QUICK
@given(workloads(), st.integers(1, 3))
def test_with_no_slack_the_updates_are_those_of_minibatch(name: str, workload: Workload, servers: int) -> None:
    assert_same(SYNCHRONOUS[name], BSP, workload, servers, bitwise=True)


@QUICK
@given(workloads(), stalenesses, st.integers(1, 3))
def test_half_without_a_wait_is_stale(workload: Workload, staleness: int, servers: int) -> None:
    def half(workers: Iterable[int]) -> Policy:
        return Half(workers, staleness, longest_wait=0.0)

    assert_same(half, lambda workers: SSP(workers, staleness), workload, servers)


@QUICK
@given(workloads(), stalenesses, st.integers(1, 3))
def test_dynamic_between_equal_bounds_is_stale(workload: Workload, staleness: int, servers: int) -> None:
    def dssp(workers: Iterable[int]) -> Policy:
        return DSSP(workers, staleness, staleness)

    assert_same(dssp, lambda workers: SSP(workers, staleness), workload, servers)


@QUICK
@given(workloads(durations=LIVELY, leaving=False), st.integers(1, 16))
def test_history_is_minibatch_while_nobody_is_late(workload: Workload, enough: int) -> None:
    def history(workers: Iterable[int]) -> Policy:
        return History(workers, enough, patience=1e9)

    assert_same(history, BSP, workload, servers=1, bitwise=True)


@QUICK
@given(workloads(), st.integers(1, 3))
def test_history_that_needs_everybody_applies_what_minibatch_applies(workload: Workload, servers: int) -> None:
    """Also when workers leave; then only a tick detects it, so the moments differ."""
    for server in run(lambda workers: History(workers, enough=16), workload, servers).servers:
        if servers == 1:
            for step, update in enumerate(server.updates):
                assert {push.clock for push in update.pushes} == {step}
            assert set(server.dropped) <= {push for update in server.updates for push in update.pushes}
        assert len(server.applied_at()) == len(server.pushed)


@QUICK
@given(workloads(leaving=False), st.integers(1, 16))
def test_stale_with_a_large_bound_is_asynchronous(workload: Workload, servers: int) -> None:
    assert_same(lambda workers: SSP(workers, 100), Asynchronous, workload, servers % 3 + 1)


# Partial, history, dssp, half: their own rules


@QUICK
@given(workloads(), st.integers(1, 16), st.integers(1, 3))
def test_partial_takes_the_first_k_and_never_a_late_one(workload: Workload, enough: int, servers: int) -> None:
    for server in run(lambda workers: Partial(workers, enough), workload, servers).servers:
        steps = []
        for update in server.updates:
            (step,) = {push.clock for push in update.pushes}
            steps.append(step)
            of_step = [push for push in server.pushed if push.clock == step]
            assert set(update.pushes) == set(of_step[:enough]), "the first that came"
            if len(update.parts) < enough:
                assert update.there <= {push.worker for push in server.pushed if push.clock >= step}, (
                    "no more could come"
                )
        assert steps == sorted(set(steps))
        if servers == 1:
            assert steps == list(range(len(steps)))


@QUICK
@given(workloads(leaving=False), st.integers(1, 16))
def test_partial_drops_exactly_what_came_after_its_step_was_over(workload: Workload, enough: int) -> None:
    server = served(lambda workers: Partial(workers, enough), workload)
    assert len(server.updates) == workload.iterations
    needed = min(enough, len(workload.workers))
    assert [len(update.parts) for update in server.updates] == [needed] * workload.iterations
    for step in range(workload.iterations):
        of_step = [push for push in server.pushed if push.clock == step]
        assert [push for push in server.dropped if push.clock == step] == of_step[needed:]


@pytest.mark.parametrize("enough", [1, 2])
def test_partial_with_two_servers_survives_a_worker_that_dies_between_its_pushes(enough: int) -> None:
    """Server 1 has finished a step of which server 0 lacks a gradient that no worker will send."""
    behind, ahead = Partial(range(3), enough=2), Partial(range(3), enough=2)
    for policy in (behind, ahead):
        policy.push(Push(0, 0, 1 / 3), now=0.0)
    ahead.push(Push(2, 0, 1 / 3), now=0.0)
    assert (behind.step, ahead.step) == (0, 1)
    for policy in (behind, ahead):
        policy.leave(2)
        policy.push(Push(1, 1, 1 / 3), now=0.0)  # after 0 from one and 1 from the other
    assert behind.step >= 1
    assert behind.may_start(0)
    assert ahead.may_start(0)


def test_partial_takes_k_also_of_what_has_come_before_its_step_began() -> None:
    """Another server is a step ahead, and has sent the workers 2, 3 and 4 straight to step 1."""
    policy = Partial(range(5), enough=2)
    for worker, clock in ((0, 0), (2, 1), (3, 1), (4, 1)):
        assert policy.push(Push(worker, clock, 0.2), now=0.0) == []
    first, second, dropped = policy.push(Push(1, 0, 0.2), now=1.0)
    assert isinstance(first, Apply)
    assert isinstance(second, Apply)
    assert first.parts == ((Push(0, 0, 0.2), 0.5), (Push(1, 0, 0.2), 0.5))
    assert second.parts == ((Push(2, 1, 0.2), 0.5), (Push(3, 1, 0.2), 0.5))
    assert dropped == Drop(Push(4, 1, 0.2))


def test_partial_passes_over_a_step_of_which_nothing_came() -> None:
    """The first step was completed on another server, which sent both workers straight to step 1."""
    policy = Partial(range(2), enough=1)
    first, second = Push(0, 1, 0.5), Push(1, 1, 0.5)
    assert policy.push(first, now=0.0) == []
    assert policy.push(second, now=0.0) == [Apply(((first, 1.0),)), Drop(second)]
    assert policy.step == 2


@QUICK
@given(workloads(), st.integers(1, 16), st.sampled_from([0.0, 0.5, 3.0]))
def test_history_counts_everybody_who_is_there_with_the_newest_it_has(
    workload: Workload, enough: int, patience: float
) -> None:
    server = served(lambda workers: History(workers, enough, patience), workload)
    for step, update in enumerate(server.updates):
        assert update.there <= {push.worker for push in update.pushes}
        assert all(push.clock <= step for push in update.pushes)
        fresh = update.there & {push.worker for push in update.pushes if push.clock == step}
        assert len(fresh) >= (len(update.there) if step == 0 else min(enough, len(update.there)))
    for earlier, later in pairwise(server.updates):
        before = {push.worker: push.clock for push in earlier.pushes}
        for push in later.pushes:
            assert push.clock >= before.get(push.worker, 0), "never an older one after a newer"


@QUICK
@given(workloads(), st.integers(1, 16), st.sampled_from([0.0, 0.5, 3.0]))
def test_history_applies_each_gradient_until_it_is_replaced(workload: Workload, enough: int, patience: float) -> None:
    """Only a late one may be replaced, or its worker leave, before the step in which it has come is over."""
    server = served(lambda workers: History(workers, enough, patience), workload)
    for push, numbers in server.applied_at().items():
        arrived_in = server.pushed[push]  # the number of the step
        if numbers:
            assert numbers == list(range(arrived_in, numbers[-1] + 1)), "from then on in each step"
        else:
            assert push.clock < arrived_in, "on time, and not applied"
            assert push in server.dropped


def test_history_fills_in_for_a_late_worker_and_counts_its_gradient_when_it_comes() -> None:
    policy = History(range(3), enough=2, patience=0.5)
    zero = [Push(worker, 0, 1 / 3) for worker in range(3)]
    policy.push(zero[0], now=1.0)
    policy.push(zero[1], now=2.0)
    assert policy.tick(now=50.0) == [], "the first step has no history to fill in"
    (first,) = policy.push(zero[2], now=60.0)
    assert isinstance(first, Apply)
    assert set(first.keep) == set(zero)

    one = [Push(worker, 1, 1 / 3) for worker in range(3)]
    assert policy.push(one[0], now=61.0) == [Drop(zero[0])]
    assert policy.push(one[1], now=64.0) == [Drop(zero[1])], "enough are in, after 4 s; patience is 2 s more"
    assert not policy.may_start(0)
    assert policy.tick(now=65.9) == []
    (second,) = policy.tick(now=66.0)
    assert isinstance(second, Apply)
    assert [push for push, _ in second.parts] == [one[0], one[1], zero[2]]
    assert policy.may_start(0)

    assert policy.push(one[2], now=67.0) == [Drop(zero[2])], "late, so it is now worker 2's newest"
    assert policy.next_clock(2) == 2
    two = [Push(worker, 2, 1 / 3) for worker in range(2)]
    policy.push(two[0], now=68.0)
    policy.push(two[1], now=68.0)
    (third,) = policy.tick(now=69.0)
    assert isinstance(third, Apply)
    assert [push for push, _ in third.parts] == [two[0], two[1], one[2]]


@pytest.mark.parametrize(("enough", "at_once"), [(2, True), (3, False)])
def test_history_waits_no_longer_where_enough_have_come_before_the_step_began(enough: int, at_once: bool) -> None:
    """Another server is a step ahead, and has sent the workers 0 and 1 straight to step 1."""
    policy = History(range(4), enough, patience=0.5)
    for worker in range(2):
        policy.push(Push(worker, 1, 0.25), now=1.0)
    for worker in (2, 3):
        actions = policy.push(Push(worker, 0, 0.25), now=10.0)
    assert [type(action) for action in actions] == [Apply], "step 0 is over"
    assert policy.step == 1
    assert bool(policy.tick(now=10.5)) == at_once, "enough have been in since the step began, at 10"
    assert policy.step == 1 + at_once


def test_a_worker_that_leaves_history_counts_for_the_step_it_has_worked_for_and_no_other() -> None:
    policy = History(range(2), enough=2)
    for worker in range(2):
        policy.push(Push(worker, 0, 0.5), now=1.0)
    policy.push(Push(1, 1, 0.5), now=2.0)
    assert policy.leave(1) == []
    *_, update = policy.push(Push(0, 1, 0.5), now=3.0)
    assert isinstance(update, Apply)
    assert [push for push, _ in update.parts] == [Push(0, 1, 0.5), Push(1, 1, 0.5)]
    assert update.keep == (Push(0, 1, 0.5),)
    *_, alone = policy.push(Push(0, 2, 0.5), now=4.0)
    assert isinstance(alone, Apply)
    assert alone.parts == ((Push(0, 2, 0.5), 1.0),)
    late = History(range(2), enough=1)
    for worker in range(2):
        late.push(Push(worker, 0, 0.5), now=1.0)
    assert late.leave(1) == [Drop(Push(1, 0, 0.5))], "it has given nothing for step 1"


# DSSP


def at_paces(make: Make, *durations: Iterable[float], iterations: int = 60) -> Server:
    """Return the events at a single server with workers of these durations."""
    return served(make, Workload(iterations, tuple(tuple(own) for own in durations)))


def furthest_start(server: Server) -> int:
    return max(start.lead for start in server.starts)


def waited(server: Server, duration: float) -> float:
    """Return the seconds that worker 0 was held in all, if each of its iterations takes `duration`."""
    starts = [start.time for start in server.starts if start.worker == 0]
    return sum(later - earlier - duration for earlier, later in pairwise(starts))


def test_dynamic_grants_what_the_controller_computes_and_counts_it_down() -> None:
    policy = DSSP(range(2), low=1, high=7)

    def iteration(worker: int, start: float, end: float) -> None:
        assert policy.may_start(worker)
        policy.started(worker, start)
        policy.push(Push(worker, policy.clocks[worker], 0.5), end)

    assert policy.may_start(1)
    policy.started(1, 0.0)
    iteration(0, 0.0, 1.0)
    iteration(0, 1.0, 2.0)
    assert not policy.may_start(0), "of worker 1 no iteration is known"
    policy.push(Push(1, 0, 0.5), 2.6)
    policy.started(1, 2.6)
    assert policy.may_start(0), "1 ahead, which is the lower bound"
    iteration(0, 2.6, 3.8)
    # It needs 1.2 s, worker 1 2.6 s, whose next pushes are foreseen at 5.2, 7.8 and 10.4. After 0 to 6 further
    # iterations it would be 1.4, 0.2, 1.0, 0.4, 0.8, 0.6, 0.6 s away from the nearest.
    assert policy.lead(0) == 2
    iteration(0, 3.8, 5.0)
    assert policy.lead(0) == 3
    assert not policy.may_start(0), "one was granted, and is used up"
    policy.push(Push(1, 1, 0.5), 5.2)
    assert not policy.may_start(0), "beyond the lower bound it is not granted more"
    policy.started(1, 5.2)
    policy.push(Push(1, 2, 0.5), 7.8)
    assert policy.may_start(0)


def test_dynamic_grants_nothing_before_its_lower_bound_is_passed() -> None:
    """A grant at the bound itself would be used up in part by an iteration that may start in any case."""
    policy = DSSP(range(2), low=1, high=3)

    def iteration(worker: int, start: float, end: float) -> None:
        assert policy.may_start(worker)
        policy.started(worker, start)
        policy.push(Push(worker, policy.clocks[worker], 0.5), end)

    iteration(0, 0.0, 1.0)
    iteration(1, 0.0, 4.0)
    policy.started(1, 4.0)  # its next push is foreseen at 8.0
    for second in range(4, 8):  # from a lead of 0 to one of 4; 2 iterations are granted at 6.0
        iteration(0, second, second + 1.0)
    assert policy.lead(0) == 4
    assert not policy.may_start(0)


@pytest.mark.parametrize(("low", "high"), [(1, 8), (1, 20), (3, 7)])
@pytest.mark.parametrize("slow", [2, 3, 4, 6, 8, 10, 16])
def test_the_lead_under_dynamic_follows_the_workers_speeds(slow: int, low: int, high: int) -> None:
    """It passes the lower bound one iteration after a push of the slowest, so slow − 1 more end with its next."""
    server = at_paces(lambda workers: DSSP(workers, low, high), [1.0], [float(slow)])
    assert furthest_start(server) == min(high, low + slow - 1)


@pytest.mark.parametrize("unit", [2.0**-10, 2.0**10])
def test_dynamic_does_not_depend_on_the_unit_of_time(unit: float) -> None:
    server = at_paces(lambda workers: DSSP(workers, 1, 8), [unit], [5 * unit])
    assert furthest_start(server) == 5


@pytest.mark.parametrize("slow", [2, 4, 10])
def test_dynamic_does_not_depend_on_rounding(slow: int) -> None:
    """The controller lets two pushes coincide: a billionth of a second decides which one comes first."""

    def dssp(workers: Iterable[int]) -> Policy:
        return DSSP(workers, 1, 8)

    exact = at_paces(dssp, [1.0], [float(slow)])
    for seed in range(10):
        random = Random(seed)
        jitter = [[pace * (1 + random.uniform(-1e-9, 1e-9)) for _ in range(61)] for pace in (1.0, float(slow))]
        server = at_paces(dssp, *jitter)
        assert furthest_start(server) == furthest_start(exact)
        assert waited(server, 1.0) == pytest.approx(waited(exact, 1.0), abs=1e-5)


@QUICK
@given(workloads(leaving=False, delayed=False), st.integers(0, 3), st.integers(0, 4))
def test_dynamic_starts_no_later_than_its_lower_bound_and_no_earlier_than_its_upper_bound(
    workload: Workload, low: int, more: int
) -> None:
    def times(make: Make) -> dict[tuple[int, int], float]:
        return {(start.worker, start.clock): start.time for start in served(make, workload).starts}

    upper, lower = (times(lambda workers, s=s: SSP(workers, s)) for s in (low + more, low))
    for start, time in times(lambda workers: DSSP(workers, low, low + more)).items():
        assert upper[start] - 1e-9 <= time <= lower[start] + 1e-9


@pytest.mark.parametrize("paces", [(1.0, 2.3, 10.7), (1.0, 1.17, 4.1), (1.0, 6.1, 6.3), (1.0, 1.0, 2.3, 9.1)])
def test_under_dynamic_a_fast_worker_is_never_behind_a_slower_one(paces: tuple[float, ...]) -> None:
    server = at_paces(lambda workers: DSSP(workers, 1, 8), *([pace] for pace in paces))
    clocks = [0] * len(paces)
    for push in server.pushed:
        clocks[push.worker] = push.clock + 1
        assert clocks[-2] <= clocks[0]
        assert clocks[-1] <= clocks[0]
    assert furthest_start(server) > 1


def test_dynamic_grants_further_iterations_to_the_furthest_worker_alone() -> None:
    policy = DSSP(range(3), low=0, high=4)
    for worker in range(3):
        policy.started(worker, 0.0)
    for worker, now in ((0, 1.0), (1, 1.5), (2, 4.0)):
        policy.push(Push(worker, 0, 1 / 3), now)
    for worker in range(3):
        policy.started(worker, 4.0)
    policy.push(Push(0, 1, 1 / 3), 5.0)
    policy.push(Push(1, 1, 1 / 3), 5.5)
    assert policy.lead(0) == policy.lead(1) == 1
    assert policy.may_start(0), "3 more iterations end with worker 2's at 8"
    assert not policy.may_start(1), "worker 0 has come so far before it"
    policy.leave(0)
    policy.push(Push(2, 1, 1 / 3), 8.0)
    policy.started(1, 8.0)
    policy.started(2, 8.0)
    policy.push(Push(1, 2, 1 / 3), 9.5)
    assert policy.may_start(1), "of those who are there it is the furthest"


def test_when_the_furthest_worker_leaves_another_one_is_the_furthest() -> None:
    policy = DSSP(range(4), low=0, high=4)
    for begun, ends in ((0.0, (1.0, 1.5, 2.0, 4.0)), (4.0, (5.0, 5.5))):
        for worker in range(4):
            policy.started(worker, begun)
        for worker, end in enumerate(ends):
            policy.push(Push(worker, policy.clocks[worker], 0.25), end)
    assert policy.may_start(0), "3 more iterations end with worker 3's at 8"
    policy.leave(0)
    policy.push(Push(2, 1, 0.25), 6.0)
    assert policy.lead(1) == policy.lead(2) == 1
    assert not policy.may_start(2), "worker 1 has come so far before it"


@given(st.floats(0, 100), st.integers(0, 9), st.integers(0, 15), st.integers(0, 1000))
def test_the_wait_of_half_is_within_its_limit_and_reproducible(wait: float, seed: int, worker: int, clock: int) -> None:
    policy = Half(range(16), longest_wait=wait, seed=seed)
    assert 0 <= policy.pause(worker, clock) <= wait
    assert policy.pause(worker, clock) == Half(range(16), longest_wait=wait, seed=seed).pause(worker, clock)


@given(st.floats(0, 100), st.integers(-9, 2**70), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**9))))
def test_the_waits_of_half_are_the_same_for_many_workers_at_once(
    wait: float, seed: int, of: list[tuple[int, int]]
) -> None:
    policy = Half([0], longest_wait=wait, seed=seed)
    workers, clocks = np.array(of, dtype=np.uint64).reshape(-1, 2).T
    expected = [policy.pause(worker, clock) for worker, clock in of]
    assert policy.pauses(workers, clocks).tolist() == expected
    assert Policy.pauses(policy, workers, clocks) == expected


def test_the_waits_of_half_are_evenly_distributed() -> None:
    """Over the workers, over one worker's iterations, and independent of the wait before."""
    policy = Half([0], longest_wait=1.0)
    alone, many = np.zeros(20_000, dtype=np.uint64), np.arange(20_000, dtype=np.uint64)
    for workers, clocks in ((many, alone), (alone, many), (many % 100, many // 100)):
        waits = np.asarray(policy.pauses(workers, clocks))
        pairs, _, _ = np.histogram2d(waits[1:], waits[:-1], bins=10, range=[[0, 1], [0, 1]])
        assert ((pairs - 200) ** 2 / 200).sum() < 160, "χ² with 99 degrees of freedom"


def test_splitmix64_is_the_published_one() -> None:
    """The first numbers of the generator with the seed 1234567, from its reference implementation."""
    seeds = [1234567 + GAMMA * number for number in range(3)]
    assert [mixed(seed) for seed in seeds] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_the_waits_of_half_differ_between_workers_iterations_and_seeds() -> None:
    waits = {Half([0], longest_wait=1.0, seed=s).pause(w, c) for s in range(5) for w in range(5) for c in range(5)}
    assert len(waits) == 125
    assert 0.4 < sum(waits) / 125 < 0.6
