"""Pairs without circular waiting; iterations assigned once; directions that never lead uphill; matching options."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from farandole.data_parallel.learning_rate import LearningRate
from farandole.data_parallel.loss_log import LOSS_WINDOW, LossLog
from farandole.decentralised.asynchronous import UnevenLossLog
from farandole.decentralised.central_directions import directions
from farandole.decentralised.exchange import consensus
from farandole.decentralised.iterations import NONE_LEFT, Iterations
from farandole.decentralised.mixing import consensus_error
from farandole.decentralised.pairing import Pairing, average_pair, partners
from farandole.decentralised.topologies import TOPOLOGIES, Topology, distances, symmetric, topology
from farandole.errors import UsageError
from farandole.scenarios import ad_psgd, push_sum

STAR = Topology("star", 5, (symmetric((0, rank) for rank in range(1, 5)),))


@pytest.mark.parametrize("ranks", range(1, 18))
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_questions_are_answered_by_those_who_ask_nobody_and_reach_all(name: str, ranks: int) -> None:
    graph = topology(name, ranks)
    asked = partners(graph)
    assert not {passive for those in asked.values() for passive in those} & set(asked), "nobody both asks and answers"
    edges = {(active, passive) for active, those in asked.items() for passive in those}
    assert edges <= graph.both_ways
    assert set(distances(symmetric(edges))) == set(range(ranks)), "all are connected"


def test_who_asks_whom() -> None:
    assert partners(topology("ring", 4)) == {0: (1, 3), 2: (1, 3)}
    assert partners(topology("ring", 3)) == {0: (1,), 2: (1,)}
    assert partners(topology("torus", 4)) == {0: (1, 2), 3: (1, 2)}, "even and odd would not be connected"
    assert partners(topology("complete", 4)) == {0: (1, 3), 2: (1, 3)}
    assert partners(STAR) == {0: (1, 2, 3, 4)}


def test_an_active_rank_asks_every_so_many_iterations_and_a_passive_one_never() -> None:
    pairing = Pairing(partners(topology("ring", 4)), every=3)
    drawn = iter([0.0, 0.49, 0.5, 0.99])
    assert [pairing.partner(2, iteration, lambda: next(drawn)) for iteration in (1, 2, 3, 6, 9, 12)] == [
        *(None, None),
        *(1, 1, 3, 3),
    ]
    assert [pairing.partner(1, iteration, lambda: next(drawn)) for iteration in range(1, 7)] == [None] * 6


def test_both_of_a_pair_have_the_mean() -> None:
    one, other = np.array([1.0, 2.0]), np.array([3.0, 6.0])
    average_pair(one, other)
    assert one.tolist() == other.tolist() == [2.0, 4.0]


def test_iterations_are_handed_out_once_and_counted() -> None:
    work = Iterations(ranks=3, count=7)
    taken = [work.next(rank) for rank in (0, 1, 0, 0, 2, 1, 0)]
    assert taken == list(range(7))
    # Rank 0 has begun 4, rank 1 two, rank 2 one. Before each its own count, minus the lowest: 0 0 1 2 0 0 2.
    assert work.lead == {0: 4, 1: 1, 2: 2}
    assert [work.next(rank) for rank in (0, 1, 2, 0)] == [NONE_LEFT] * 4
    # Finished by others meanwhile: rank 0's 0, 0, 1 and 0; rank 1's 2 and 2; rank 2's 4.
    assert work.staleness == {0: 3, 1: 1, 2: 2, 4: 1}
    assert work.begun == 7


def test_a_stop_ends_the_handing_out() -> None:
    work = Iterations(ranks=2, count=100)
    assert [work.next(0), work.next(1), work.next(1, stop=True), work.next(0)] == [0, 1, NONE_LEFT, NONE_LEFT]
    assert (work.begun, sum(work.staleness.values())) == (2, 2)


def test_directions_of_a_centre() -> None:
    noise = np.random.default_rng(4)
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    for _ in range(20):
        own = noise.standard_normal((4, 5)) + noise.standard_normal(5)
        common = shares @ own
        found = own.copy()
        directions(found, shares, own_weight=0.9)
        cosines = own @ common / np.linalg.norm(own, axis=1) / np.linalg.norm(common)
        weight = 0.9 * np.clip(cosines, 0, None)
        np.testing.assert_allclose(found, weight[:, None] * own + (1 - weight)[:, None] * common)
        assert np.all(found @ common >= (1 - weight) * (common @ common) - 1e-12), "none leads uphill"
        np.testing.assert_allclose(found[cosines <= 0], np.tile(common, ((cosines <= 0).sum(), 1)))


def test_the_limits_of_the_centres_rule() -> None:
    own, shares = np.array([[3.0, 0.0], [0.0, 1.0]]), np.array([0.5, 0.5])
    none = own.copy()
    directions(none, shares, own_weight=0.0)
    np.testing.assert_allclose(none, [[1.5, 0.5]] * 2, err_msg="the mean for all: synchronous SGD")
    equal = np.array([[1.0, 2.0]] * 2)
    directions(equal, shares, own_weight=1.0)
    np.testing.assert_allclose(equal, [[1.0, 2.0]] * 2, err_msg="equal gradients are the mean")
    empty = np.array([[1.0, 2.0], [0.0, 0.0]])
    directions(empty, np.array([1.0, 0.0]), own_weight=1.0)
    np.testing.assert_allclose(empty, [[1.0, 2.0]] * 2, err_msg="who had no samples goes the common way")


def test_the_consensus_error_of_all_ranks_is_that_of_one_matrix() -> None:
    vectors = np.random.default_rng(5).standard_normal((3, 8)).astype(np.float32)
    observations = [consensus(vector, 3) for vector in vectors]
    vectors_then = vectors.copy()
    vectors += 1000 * vectors  # the training's own work does not matter
    sums: list[np.ndarray] = []

    def adding(own: np.ndarray, result: np.ndarray, operation: Any) -> None:
        sums.append(own)
        np.copyto(result, own)

    for observation in observations:  # each rank alone, to learn its first message
        observation(adding)
    whole = np.sum(sums[::2], axis=0)
    given: list[float] = []

    def first_all_then_own(own: np.ndarray, result: np.ndarray, operation: Any) -> None:
        np.copyto(result, whole if len(own) > 1 else own)
        given.extend(own if len(own) == 1 else [])

    for observation in observations:
        observation(first_all_then_own)
    assert np.sqrt(sum(given) / 3) == pytest.approx(consensus_error(vectors_then.astype(np.float64)))


def loss_log(kind: type[LossLog], *arguments: Any) -> tuple[Any, list[dict[str, float]]]:
    """Return a log of one rank, and the lines that it writes."""
    lines: list[dict[str, float]] = []

    def copy(own: np.ndarray, result: np.ndarray, operation: Any) -> Any:
        np.copyto(result, own)
        return SimpleNamespace(Test=lambda: True)

    control = SimpleNamespace(Allreduce=copy, Iallreduce=copy, Free=lambda: None)
    control.Dup = lambda: control
    comm = SimpleNamespace(waiting=lambda call, peer: nullcontext(), mpi=control)
    recorder = SimpleNamespace(elapsed_s=1.0, log=lambda **values: lines.append(values), watch=lambda step, loss: None)
    world = cast(Any, SimpleNamespace(comm=comm, control=control))
    return kind(world, cast(Any, recorder), *arguments), lines


def test_an_observation_stands_in_the_line_of_its_exchanges_last_step() -> None:
    moment = iter(range(100))

    def observe() -> Any:
        now = next(moment)

        def found(all_reduce: Any) -> Mapping[str, float]:
            return {"seen": now}

        return found

    log, lines = loss_log(LossLog, LOSS_WINDOW + 3, 0, observe)
    for step in range(LOSS_WINDOW + 3):
        log.add(step, 1.0, 1.0, 8)
    assert [line["step"] for line in lines] == list(range(LOSS_WINDOW + 3))
    assert {line["step"]: line["seen"] for line in lines if "seen" in line} == {LOSS_WINDOW - 1: 0, LOSS_WINDOW + 2: 1}


def test_a_log_of_uneven_steps() -> None:
    steps = 2 * LOSS_WINDOW
    log, lines = loss_log(UnevenLossLog, steps, lambda: None, LearningRate(0.5, steps))
    log.add(3, loss=2.0, share=0.25, samples=8)
    log.add(3, loss=1.0, share=0.75, samples=8)
    log.reach(LOSS_WINDOW - 1)
    assert log.following == 0, "its window is not over"
    log.reach(2 * LOSS_WINDOW)
    assert log.following == 2 * LOSS_WINDOW
    log.finish()
    assert [(line["step"], line["loss"], line["lr"]) for line in lines] == [(3, 1.25, 0.5)], "other ranks have the rest"


def test_options_that_do_not_go_together_are_refused() -> None:
    both = {"graph": Path("file"), "topology": "torus"}
    for module, options, complaint in (
        (ad_psgd, both, "--graph takes the place of --topology"),
        (push_sum, both, "--graph takes the place of --topology"),
        (
            push_sum,
            {"graph": Path("file"), "optimizer": "lars"},
            "--optimizer lars goes by how long the parameters are",
        ),
        (ad_psgd, {"lr_schedule": "plateau"}, "ad_psgd has no common steps"),
    ):
        with pytest.raises(UsageError, match=complaint) as refused:
            module.check(module.Config(**options))  # type: ignore[arg-type]
        assert "\n" not in str(refused.value)
    push_sum.check(push_sum.Config(graph=Path("file"), mixing_every=3))
    ad_psgd.check(ad_psgd.Config(topology="torus", lr_schedule="cosine"))
