"""Mixing: doubly stochastic, a constant mean, convergence at the rate of the spectral gap, at the stated cost."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2

import numpy as np
import pytest

from farandole.decentralised.graph_file import parse
from farandole.decentralised.mixing import (
    consensus_error,
    doubly_stochastic,
    gap_of_all,
    mixing_matrix,
    pushing,
    spectral_gap,
)
from farandole.decentralised.steps import Mixing, StepError, check_pairs, matrix, messages, run
from farandole.decentralised.topologies import TOPOLOGIES, Topology, topology
from farandole.errors import UsageError

SIZES = range(1, 18)
STAR = parse("0 1\n0 2\n0 3", 4, "a star")
ONE_WAY = parse("0 > 1\n1 > 2\n2 > 3\n3 > 0\n0 > 2", 4, "one way, irregular")


def steps(graph: Topology, number: int = 0) -> list[Mixing]:
    return [doubly_stochastic(graph, rank, number) for rank in range(graph.ranks)]


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("ranks", SIZES)
def test_every_round_is_doubly_stochastic_and_sends_along_its_edges(name: str, ranks: int) -> None:
    graph = topology(name, ranks)
    for number in range(len(graph.rounds)):
        weights = mixing_matrix(graph, number)
        np.testing.assert_allclose(weights.sum(axis=0), 1, atol=1e-15)
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-15)
        assert weights.min() >= 0
        assert weights.diagonal().min() > 0, "everybody keeps some of its own"
        off = weights - np.diag(weights.diagonal())
        assert {(int(source), int(to)) for to, source in zip(*off.nonzero(), strict=True)} == graph.edges(number)
        assert messages(steps(graph, number)) == [len(graph.destinations(rank, number)) for rank in range(ranks)]


def test_metropolis_weights_of_an_irregular_graph() -> None:
    expected = np.array([[1, 1, 1, 1], [1, 3, 0, 0], [1, 0, 3, 0], [1, 0, 0, 3]]) / 4
    np.testing.assert_allclose(mixing_matrix(STAR), expected)
    # A wrong version: each rank takes the plain mean of its neighbours and itself. It changes the mean.
    plain = [
        replace(step, keep=1 / (1 + len(step.sources)), weights=(1 / (1 + len(step.sources)),) * len(step.sources))
        for step in steps(STAR)
    ]
    vectors = np.array([[4.0], [0], [0], [0]])
    assert run(steps(STAR), vectors).mean() == 1
    assert run(plain, vectors).mean() == 1.75


@pytest.mark.parametrize("graph", [*(topology(name, 7) for name in TOPOLOGIES), STAR], ids=lambda graph: graph.name)
def test_mixing_keeps_the_mean_and_brings_together_as_the_gap_says(graph: Topology) -> None:
    vectors = np.random.default_rng(1).standard_normal((graph.ranks, 30))
    mean = vectors.mean(axis=0)
    for number in range(40):
        gap, before = spectral_gap(mixing_matrix(graph, number)), consensus_error(vectors)
        vectors = run(steps(graph, number), vectors)
        assert consensus_error(vectors) <= (1 - gap) * before + 1e-15
        np.testing.assert_allclose(vectors.mean(axis=0), mean, atol=1e-14)
    assert consensus_error(vectors) < 1e-2


def test_the_bound_is_met_by_the_slowest_vector() -> None:
    weights = mixing_matrix(topology("ring", 8))
    slowest = np.cos(2 * np.pi * np.arange(8) / 8)[:, None]
    assert consensus_error(weights @ slowest) == pytest.approx((1 - spectral_gap(weights)) * consensus_error(slowest))


@pytest.mark.parametrize(
    ("name", "gaps"), [("ring", [0.667, 0.195, 0.051, 0.013]), ("exponential", [0.667, 0.5, 0.4, 0.333])]
)
def test_spectral_gaps(name: str, gaps: list[float]) -> None:
    found = [spectral_gap(mixing_matrix(topology(name, ranks))) for ranks in (4, 8, 16, 32)]
    assert found == pytest.approx(gaps, abs=5e-4)
    formula = {"ring": lambda p: 1 - (1 + 2 * np.cos(2 * np.pi / p)) / 3, "exponential": lambda p: 2 / (1 + log2(p))}
    assert found == pytest.approx([formula[name](ranks) for ranks in (4, 8, 16, 32)])


def test_the_gaps_of_the_others() -> None:
    assert spectral_gap(mixing_matrix(topology("complete", 9))) == pytest.approx(1)
    assert spectral_gap(mixing_matrix(topology("torus", 16))) == pytest.approx(0.4), "2 axes of (1 − cos 90°) · 2/5"
    assert spectral_gap(mixing_matrix(topology("one-peer-exponential", 8))) == pytest.approx(1 - np.cos(np.pi / 8))
    assert spectral_gap(np.ones((1, 1))) == 1


def test_the_gap_of_several_rounds() -> None:
    """A symmetric matrix twice brings its slowest vector down twice; rounds without a gap may have one together."""
    weights = mixing_matrix(topology("ring", 8))
    assert gap_of_all([weights]) == pytest.approx(spectral_gap(weights))
    assert gap_of_all([weights, weights]) == pytest.approx(1 - (1 - spectral_gap(weights)) ** 2)
    graph = topology("one-peer-exponential", 8)
    rounds = [mixing_matrix(graph, number) for number in range(3)]
    assert spectral_gap(rounds[2]) == pytest.approx(0)
    assert gap_of_all(rounds) == pytest.approx(1)


@pytest.mark.parametrize("ranks", SIZES)
def test_one_peer_rounds_are_an_exact_average_for_powers_of_two(ranks: int) -> None:
    graph = topology("one-peer-exponential", ranks)
    assert len(graph.rounds) == max(1, ceil(log2(ranks)))
    vectors = np.random.default_rng(2).standard_normal((ranks, 3))
    mixed = vectors
    for number in range(len(graph.rounds)):
        mixed = run(steps(graph, number), mixed)
    exact = np.allclose(mixed, vectors.mean(axis=0), atol=1e-14)
    assert exact == (ranks & (ranks - 1) == 0)


def test_the_consensus_error_by_hand() -> None:
    assert consensus_error(np.array([[0.0, 0], [6, 8]])) == 5
    assert consensus_error(np.ones((3, 4))) == 0


@pytest.mark.parametrize("graph", [ONE_WAY, STAR, topology("one-peer-exponential", 7)], ids=lambda graph: graph.name)
def test_push_sum_conserves_both_sums_and_only_their_quotient_is_the_mean(graph: Topology) -> None:
    vectors = np.random.default_rng(3).standard_normal((graph.ranks, 5))
    mean = vectors.mean(axis=0)
    pushed = np.hstack([vectors, np.ones((graph.ranks, 1))])  # the weight w goes with x
    for number in range(60):
        pushed = run([pushing(graph, rank, number) for rank in range(graph.ranks)], pushed)
        np.testing.assert_allclose(pushed.sum(axis=0), [*(graph.ranks * mean), graph.ranks], atol=1e-13)
    x, w = pushed[:, :-1], pushed[:, -1:]
    np.testing.assert_allclose(x / w, np.tile(mean, (graph.ranks, 1)), atol=1e-6)
    if graph in (ONE_WAY, STAR):  # the wrong version, which uses x as the mean
        assert abs(x - mean).max() > 0.05
        assert np.ptp(w) > 0.2


def test_push_sum_weighs_as_the_sender_knows() -> None:
    weights = mixing_matrix(ONE_WAY, rule=pushing)
    np.testing.assert_allclose(weights.sum(axis=0), 1)
    np.testing.assert_allclose(weights[:, 0], np.array([1, 1, 1, 0]) / 3, err_msg="rank 0 sends to two")
    assert weights.sum(axis=1).max() > 1.2, "and is not doubly stochastic"


@pytest.mark.parametrize("edges", [{(0, 1), (1, 0), (2, 0)}, {(0, 1), (0, 2), (1, 0)}, {(0, 1), (1, 2)}])
def test_one_way_edges_that_would_move_the_mean_are_refused(edges: set[tuple[int, int]]) -> None:
    """The ranks' out-degrees are equal, their in-degrees are, and neither: each rank detects which."""
    graph = Topology("uneven", 3, (frozenset(edges),))
    for rank in range(3):
        with pytest.raises(UsageError, match="uneven has edges that lead one way"):
            doubly_stochastic(graph, rank, 0)


def test_a_graph_that_would_move_the_mean_is_refused() -> None:
    with pytest.raises(UsageError, match="push-sum"):
        mixing_matrix(ONE_WAY)
    circle = parse("0 > 1\n1 > 2\n2 > 0", 3, "a circle")
    np.testing.assert_allclose(mixing_matrix(circle).sum(axis=0), 1)


def test_steps_that_do_not_fit_are_found() -> None:
    alone = Mixing((), (), 1, 1, ())
    with pytest.raises(StepError, match="rank 0 sends to rank 1, which receives nothing from it"):
        check_pairs([replace(alone, to=(1,)), alone])
    with pytest.raises(StepError, match="rank 1 sends nothing to rank 0, which waits for it"):
        matrix([replace(alone, sources=(1,), weights=(1.0,)), alone])


def test_a_step_in_words() -> None:
    assert str(doubly_stochastic(topology("ring", 3), 0, 0)) == (
        "send it to 1, 2; keep 0.333, add 0.333 of rank 1's + 0.333 of rank 2's"
    )
    assert str(doubly_stochastic(topology("ring", 1), 0, 0)) == "keep 1"
