"""The cost model: costs computed from the schedules equal the formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import log2

import pytest

from farandole.collectives.bidirectional_ring import BIDIRECTIONAL_RING
from farandole.collectives.central import CENTRAL
from farandole.collectives.costs import Link, Machine, bus_factor, coefficients, critical_path_s, predicted_s
from farandole.collectives.doubling import DOUBLING
from farandole.collectives.fitting import MODELLED, Measurement, fastest, fitted
from farandole.collectives.halving_doubling import HALVING_DOUBLING
from farandole.collectives.hierarchical import hierarchical
from farandole.collectives.pat import pat_all_gather, pat_reduce_scatter
from farandole.collectives.ring import RING, segmented
from farandole.collectives.schedules import COLLECTIVES, SCHEDULES
from farandole.collectives.steps import Exchange, Schedule, Steps, Together
from farandole.collectives.tree import BROADCAST, GATHER, REDUCE, SCATTER, TREE

ALPHA, BETA, GAMMA = 1e-5, 1e-9, 2e-10
MACHINE = Machine(Link(ALPHA, BETA), GAMMA)
N = 7 * 64 * 1024  # bytes; divisible by all the numbers of ranks here
Formula = Callable[[int], float]

ANY_NUMBER: dict[Schedule, Formula] = {
    RING: lambda p: 2 * (p - 1) * ALPHA + 2 * (p - 1) / p * N * BETA + (p - 1) / p * N * GAMMA,
    CENTRAL: lambda p: 2 * (p - 1) * (ALPHA + N * BETA) + (p - 1) * N * GAMMA,
    BIDIRECTIONAL_RING: lambda p: 2 * (p - 1) * ALPHA + 2 * (p - 1) / p * N * BETA + (p - 1) / p * N * GAMMA,
    segmented(4): lambda p: 8 * (p - 1) * ALPHA + 2 * (p - 1) / p * N * BETA + (p - 1) / p * N * GAMMA,
}
POWERS_OF_TWO: dict[Schedule, Formula] = {
    DOUBLING: lambda p: log2(p) * (ALPHA + N * BETA + N * GAMMA),
    HALVING_DOUBLING: lambda p: 2 * log2(p) * ALPHA + 2 * (p - 1) / p * N * BETA + (p - 1) / p * N * GAMMA,
    TREE: lambda p: 2 * log2(p) * (ALPHA + N * BETA) + log2(p) * N * GAMMA,
    BROADCAST: lambda p: log2(p) * (ALPHA + N * BETA),
    REDUCE: lambda p: log2(p) * (ALPHA + N * BETA + N * GAMMA),
    SCATTER: lambda p: log2(p) * ALPHA + (p - 1) / p * N * BETA,
    GATHER: lambda p: log2(p) * ALPHA + (p - 1) / p * N * BETA,
    pat_all_gather(64): lambda p: log2(p) * ALPHA + (p - 1) / p * N * BETA,
    pat_reduce_scatter(64): lambda p: log2(p) * ALPHA + (p - 1) / p * N * (BETA + GAMMA),
}


@pytest.mark.parametrize("ranks", [1, 2, 4, 7, 8, 16])
@pytest.mark.parametrize("schedule", ANY_NUMBER, ids=lambda schedule: schedule.name)
def test_the_cost_is_the_formulas(schedule: Schedule, ranks: int) -> None:
    assert predicted_s(schedule, ranks, N, MACHINE) == pytest.approx(ANY_NUMBER[schedule](ranks))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16, 64])
@pytest.mark.parametrize("schedule", POWERS_OF_TWO, ids=lambda schedule: schedule.name)
def test_the_cost_is_the_formulas_for_powers_of_two(schedule: Schedule, ranks: int) -> None:
    assert predicted_s(schedule, ranks, N, MACHINE) == pytest.approx(POWERS_OF_TWO[schedule](ranks))


@pytest.mark.parametrize(("schedule", "alphas", "lengths"), [(DOUBLING, 4, 4), (HALVING_DOUBLING, 6, 2 + 2 * 3 / 4)])
def test_extra_ranks_cost_two_messages_of_the_whole_vector(schedule: Schedule, alphas: int, lengths: float) -> None:
    adds = {DOUBLING: 3.0, HALVING_DOUBLING: 1 + 3 / 4}[schedule]
    expected = alphas * ALPHA + lengths * N * BETA + adds * N * GAMMA
    assert predicted_s(schedule, 7, N, MACHINE) == pytest.approx(expected)


@pytest.mark.parametrize(("per_node", "nodes"), [(2, 2), (4, 2), (4, 4), (2, 7)])
def test_hierarchical_waits_for_the_slow_links_as_often_as_there_are_nodes(per_node: int, nodes: int) -> None:
    across = Link(50 * ALPHA, 10 * BETA)
    machine = Machine(Link(ALPHA, BETA), GAMMA, across, per_node)
    within = 2 * (per_node - 1) * (ALPHA + N / per_node * BETA) + (per_node - 1) / per_node * N * GAMMA
    beyond = 2 * (nodes - 1) * across.message_s(N // per_node // nodes) + (nodes - 1) / nodes * N / per_node * GAMMA
    ranks = per_node * nodes
    found = predicted_s(hierarchical(per_node), ranks, N, machine)
    assert found == pytest.approx(within + beyond)
    assert found < predicted_s(RING, ranks, N, machine)


@pytest.mark.parametrize("ranks", [3, 4, 7, 16])
def test_with_a_link_to_each_neighbour_both_ways_round_take_half_as_long(ranks: int) -> None:
    torus = Machine(Link(ALPHA, BETA), GAMMA, multiport=True)
    both_ways = 2 * (ranks - 1) * ALPHA + (ranks - 1) / ranks * N * (BETA + GAMMA)
    # A vector is cut between bytes, here into a number of chunks that need not divide it.
    assert predicted_s(BIDIRECTIONAL_RING, ranks, N, torus) == pytest.approx(both_ways, rel=1e-4)
    assert predicted_s(RING, ranks, N, torus) == predicted_s(RING, ranks, N, MACHINE), "one way does not use the other"


def test_two_messages_to_the_same_partner_share_its_link() -> None:
    torus = Machine(Link(ALPHA, BETA), GAMMA, multiport=True)
    assert predicted_s(BIDIRECTIONAL_RING, 2, N, torus) == pytest.approx(predicted_s(RING, 2, N, torus))


def test_a_port_that_is_shared_carries_to_each_partner_at_its_links_speed() -> None:
    """Rank 1's neighbours are on its own node and on the next one: it waits for both, so for the longer latency."""
    across = Link(50 * ALPHA, 10 * BETA)
    nodes = Machine(Link(ALPHA, BETA), GAMMA, across, per_node=2)
    one_step = 50 * ALPHA + N / 8 * (BETA + 10 * BETA)
    assert nodes.messages_s(1, [(0, N // 8), (2, N // 8)]) == pytest.approx(one_step)
    for machine in (nodes, replace(nodes, multiport=True)):
        assert machine.messages_s(1, []) == 0


def test_without_nodes_or_a_link_between_them_all_ranks_are_alike() -> None:
    link, across = Link(ALPHA, BETA), Link(50 * ALPHA, 10 * BETA)
    for machine in (Machine(link, GAMMA, across), Machine(link, GAMMA, per_node=2)):
        assert machine.between(1, 2) == link
    assert Machine(link, GAMMA, across, per_node=2).between(1, 2) == across


def test_ranks_that_do_not_talk_do_not_wait_for_each_other() -> None:
    """In a tree rank 1 has sent its vector, and gets it back long after: the others' rounds count only for the last."""
    assert predicted_s(GATHER, 8, 8, MACHINE) == pytest.approx(3 * ALPHA + 7 * BETA)


def test_the_bus_factor_is_what_each_rank_sends() -> None:
    assert [bus_factor(ranks) for ranks in (1, 2, 4)] == [0, 1, 1.5]


@pytest.mark.parametrize(
    ("schedule", "ranks", "expected"),
    [(RING, 4, (6, 1.5, 0.75)), (CENTRAL, 7, (12, 12, 6)), (DOUBLING, 8, (3, 3, 3)), (RING, 1, (0, 0, 0))],
    ids=lambda each: getattr(each, "name", None),
)
def test_the_coefficients_are_those_of_the_formula(
    schedule: Schedule, ranks: int, expected: tuple[float, float, float]
) -> None:
    assert coefficients(schedule, ranks) == pytest.approx(expected)


def to_all(rank: int, size: int) -> Iterator[Together]:
    """Rank 0 sends its vector to all other ranks in one step."""
    others = range(1, size)
    yield Together(
        tuple(Exchange(send=0, to=other) for other in others) if rank == 0 else (Exchange(recv=0, source=0),)
    )


def of_all(rank: int, size: int) -> Iterator[Together]:
    """Rank 0 receives and adds the vectors of all other ranks in one step."""
    others = range(1, size)
    adding = tuple(Exchange(recv=0, source=other, reduce=True) for other in others)
    yield Together(adding if rank == 0 else (Exchange(send=0, to=0),))


@pytest.mark.parametrize(("steps", "expected"), [(to_all, (1, 3, 0)), (of_all, (1, 3, 3))])
def test_messages_of_one_step_in_one_direction_share_the_port(steps: Steps, expected: tuple[float, ...]) -> None:
    critical = Schedule("at once", steps, chunks=lambda size: 1, critical=lambda size: 0)
    for schedule in (critical, replace(critical, critical=None)):
        assert coefficients(schedule, 4) == expected
    assert coefficients(critical, 4, multiport=True) == (1, 1, expected[2])


SYMMETRIC = [row.schedule for row in COLLECTIVES.values() if row.schedule] + [segmented(4), hierarchical(1)]
SYMMETRIC += [form(aggregated) for form in (pat_all_gather, pat_reduce_scatter) for aggregated in (1, 2, 64)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 12, 16, 17])
@pytest.mark.parametrize("schedule", SYMMETRIC, ids=lambda schedule: schedule.name)
def test_the_critical_rank_takes_as_long_as_all_ranks(schedule: Schedule, ranks: int) -> None:
    """So counting one rank's steps gives the same coefficients as following every rank."""
    chunks = schedule.chunks(ranks)
    alone = coefficients(schedule, ranks)
    assert alone[0] == predicted_s(schedule, ranks, chunks, Machine(Link(1, 0), 0.0))
    assert alone[1] == pytest.approx(predicted_s(schedule, ranks, chunks, Machine(Link(0, 1 / chunks), 0.0)))
    assert alone[2] == pytest.approx(predicted_s(schedule, ranks, chunks, Machine(Link(0, 0), 1 / chunks)))
    assert critical_path_s(schedule, ranks, 48 * chunks, MACHINE) == pytest.approx(
        predicted_s(schedule, ranks, 48 * chunks, MACHINE)
    )


@pytest.mark.parametrize(("per_node", "nodes"), [(1, 1), (2, 2), (4, 2), (3, 4), (2, 7)])
def test_the_critical_rank_of_several_nodes(per_node: int, nodes: int) -> None:
    machine = Machine(Link(ALPHA, BETA), GAMMA, Link(50 * ALPHA, 10 * BETA), per_node)
    schedule, ranks = hierarchical(per_node), per_node * nodes
    by_all = predicted_s(schedule, ranks, 48 * ranks, machine)
    assert critical_path_s(schedule, ranks, 48 * ranks, machine) == pytest.approx(by_all)


def test_without_a_critical_rank_all_ranks_are_followed() -> None:
    ring = replace(RING, critical=None)
    assert coefficients(ring, 4) == coefficients(RING, 4)
    with pytest.raises(AssertionError, match="ring has no critical rank"):
        critical_path_s(ring, 4, 4, MACHINE)


def test_the_fit_finds_the_machine_that_the_times_are_of() -> None:
    measured = [
        Measurement(schedule, ranks, nbytes, predicted_s(schedule, ranks, nbytes, MACHINE))
        for schedule in (RING, CENTRAL, DOUBLING)
        for ranks in (2, 4, 8)
        for nbytes in (1 << 10, 1 << 16, 1 << 24)
    ]
    found = fitted(measured, GAMMA)
    assert found.link.alpha == pytest.approx(ALPHA, rel=1e-2)  # chunks of a vector are whole bytes
    assert found.link.beta == pytest.approx(BETA, rel=1e-2)
    assert found.gamma == GAMMA


def test_the_fit_knows_how_many_links_a_rank_has() -> None:
    torus = Machine(Link(ALPHA, BETA), GAMMA, multiport=True)
    measured = [
        Measurement(BIDIRECTIONAL_RING, ranks, nbytes, predicted_s(BIDIRECTIONAL_RING, ranks, nbytes, torus))
        for ranks in (4, 8)
        for nbytes in (1 << 10, 1 << 16, 1 << 24)
    ]
    found = fitted(measured, GAMMA, multiport=True)
    assert found.multiport
    assert found.link.beta == pytest.approx(BETA, rel=1e-2)
    assert fitted(measured, GAMMA).link.beta < 0.6 * BETA, "one link would have to be twice as fast"


def test_the_fit_has_no_message_that_takes_less_than_no_time() -> None:
    instant = [Measurement(RING, 4, nbytes, 1e-9 * nbytes) for nbytes in (1 << 10, 1 << 20)]
    assert fitted(instant, gamma=2e-9).link.beta == 0


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8, 64])
@pytest.mark.parametrize("nbytes", [0, 1680, N, 64 * N])
def test_the_fastest_is_no_slower_than_any_other(ranks: int, nbytes: int) -> None:
    name = fastest(MACHINE, ranks, nbytes)
    schedule, _ = SCHEDULES[name]
    assert COLLECTIVES[name].is_all_reduce
    others = [predicted_s(SCHEDULES[other][0], ranks, nbytes, MACHINE) for other in MODELLED]
    # The sum of the longest paths is no less than the whole time, and equal where all ranks do alike.
    assert predicted_s(schedule, ranks, nbytes, MACHINE) <= 1.1 * min(others) + 1e-12


def test_the_fastest_has_few_messages_for_short_vectors_and_few_bytes_for_long_ones() -> None:
    assert fastest(MACHINE, 8, 100) == "doubling"
    assert fastest(MACHINE, 7, 64 * N) in ("ring", "bidirectional-ring")
