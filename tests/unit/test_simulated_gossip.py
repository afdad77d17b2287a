"""Gossip for many workers: graphs, weights and copies of `decentralised`, and times of simple recursions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from farandole.collectives.costs import Link
from farandole.cost.comparison import Choice, compared
from farandole.cost.gossip import rounds, simulated
from farandole.cost.pairs import Pairs
from farandole.cost.predictions import gossip_pace
from farandole.cost.quadratic import CURVATURES
from farandole.cost.setting import Draws, Setting
from farandole.cost.stragglers import Slow, parse
from farandole.decentralised.mixing import consensus_error, mixing_matrix
from farandole.decentralised.topologies import TOPOLOGIES, topology
from farandole.errors import UsageError
from tests.unit.gossip_simulation import train

LINK, NBYTES = Link(1e-3, 1e-8), 1e6
MESSAGE_S = 1e-3 + 1e6 * 1e-8
SCATTERED = Setting(8, 60, 0.1, parse("lognormal:0.5"), NBYTES, LINK, seed=2)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 8, 12, 17])
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_what_is_mixed_are_the_weights_of_the_decentralised_methods(name: str, workers: int) -> None:
    graph = topology(name, workers)
    found = rounds(name, workers)
    assert len(found) == len(graph.rounds)
    for number, each in enumerate(found):
        np.testing.assert_allclose(each.mixed(np.eye(workers)), mixing_matrix(graph, number), atol=1e-15)
        assert each.sends.tolist() == [len(graph.destinations(worker, number)) for worker in range(workers)]


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize(
    ("name", "workers", "degree"),
    [("ring", 1, 0), ("ring", 2, 1), ("ring", 7, 2), ("torus", 16, 4), ("exponential", 8, 3), ("complete", 7, 6),
     ("one-peer-exponential", 8, 1)],
)  # fmt: skip
def test_without_stragglers_a_step_is_computing_and_a_message_for_each_neighbour(
    name: str, workers: int, degree: int, every: int
) -> None:
    outcome = simulated(Setting(workers, 40, 0.1, nbytes=NBYTES, link=LINK), name, every)
    assert outcome.wall_s == pytest.approx(40 * (0.1 + degree * MESSAGE_S / every))
    assert outcome.comm_s == pytest.approx(40 / every * degree * MESSAGE_S * workers)
    assert outcome.wait_s == pytest.approx(0, abs=1e-9)
    assert outcome.lead == {0: 40 * workers}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_worker_begins_when_its_own_and_its_neighbours_messages_are_there(name: str) -> None:
    graph, workers = topology(name, SCATTERED.workers), range(SCATTERED.workers)
    begins = [0.0 for _ in workers]
    for number, times in enumerate(Draws(SCATTERED).block() * 0.1):
        sent = [begins[each] + times[each] + len(graph.destinations(each, number)) * MESSAGE_S for each in workers]
        begins = [max(sent[other] for other in (each, *graph.sources(each, number))) for each in workers]
    assert simulated(SCATTERED, name).wall_s == pytest.approx(max(begins))


def test_on_a_ring_it_is_the_pace_that_sync_cost_predicts() -> None:
    pace = gossip_pace(Draws(SCATTERED).block() * 0.1)
    assert simulated(SCATTERED).wall_s / SCATTERED.steps == pytest.approx(pace + 2 * MESSAGE_S)
    free = replace(SCATTERED, link=Link(0, 0))
    assert simulated(free).wall_s < compared("ring", free, Choice()).outcome.wall_s, "only neighbours wait"
    assert simulated(free, "complete").wall_s == pytest.approx(compared("ring", free, Choice()).outcome.wall_s)


def test_who_waits_for_neighbours_is_ahead_of_the_slowest_by_less_than_its_distance() -> None:
    """Begin the next step that the slowest begins: its neighbours; and one step more with every edge."""
    slow = replace(SCATTERED, straggler=Slow(worker=0, factor=50))
    assert max(simulated(slow).lead) == 3, "on a ring of 8"
    assert max(simulated(slow, "complete").lead) == 0
    assert simulated(slow).wall_s == pytest.approx(60 * (5 + 2 * MESSAGE_S)), "in the end all go at its pace"


@pytest.mark.parametrize("after_update", [False, True])
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("name", ["ring", "one-peer-exponential"])
def test_the_copies_are_those_of_decentralised_training(name: str, every: int, after_update: bool) -> None:
    rng = np.random.default_rng([SCATTERED.seed, 1])
    noise = rng.normal(scale=SCATTERED.noise, size=(SCATTERED.steps, SCATTERED.workers, len(CURVATURES)))

    def gradient(x: np.ndarray, rank: int, step: int) -> np.ndarray:
        return CURVATURES * x + noise[step, rank]

    graph = topology(name, SCATTERED.workers)
    *_, copies = train(graph, np.ones(4), gradient, SCATTERED.lr, SCATTERED.steps, every, after_update)
    outcome = simulated(SCATTERED, name, every, after_update)
    assert outcome.final_loss == pytest.approx((copies**2 @ CURVATURES).mean() / 2)
    assert outcome.consensus_error == pytest.approx(consensus_error(copies))


def test_complete_after_the_update_is_synchronous_sgd() -> None:
    exact = replace(SCATTERED, noise=0.0)
    choice = Choice(topology="complete", mix_after_update=True)
    gossip, ring = (compared(method, exact, choice).outcome for method in ("gossip", "ring"))
    assert gossip.final_loss == pytest.approx(ring.final_loss)
    noisy = replace(SCATTERED, steps=4000)
    gossip, ring = (compared(method, noisy, choice).outcome for method in ("gossip", "ring"))
    assert gossip.consensus_error == pytest.approx(0, abs=1e-12)
    assert ring.consensus_error is None
    # Which noise is drawn differs. Far from the start, the mean loss is lr·σ²/(4n)·Σ 1/(1 − lr·h/2).
    rest = 0.2 * 0.3**2 / 4 / 8 * float((1 / (1 - 0.1 * CURVATURES)).sum())
    assert 0 < gossip.final_loss < 10 * rest


def test_copies_that_mix_slowly_are_further_apart_and_their_own_losses_are_greater() -> None:
    wide = replace(SCATTERED, workers=64, steps=100)
    ring, exponential = (simulated(wide, name, after_update=True) for name in ("ring", "exponential"))
    assert ring.consensus_error
    assert exponential.consensus_error
    assert ring.consensus_error > 1.5 * exponential.consensus_error
    assert ring.final_loss > 1.5 * exponential.final_loss


def test_same_seed_same_everything() -> None:
    for run in (simulated, lambda setting: Pairs(setting).run()):
        assert run(SCATTERED) == run(SCATTERED)
        assert run(SCATTERED) != run(replace(SCATTERED, seed=3))


@pytest.mark.parametrize("name", ["ring", "torus", "exponential", "one-peer-exponential"])
def test_ten_thousand_workers(name: str) -> None:
    outcome = simulated(replace(SCATTERED, workers=10_000, steps=20), name)
    assert outcome.gradients == sum(outcome.lead.values()) == 200_000
    assert outcome.final_loss < 0.2


def test_a_graph_of_too_many_edges_is_refused() -> None:
    for method in ("gossip", "ad-psgd"):
        with pytest.raises(UsageError, match="--topology complete has 99,990,000 edges with 10000 workers"):
            compared(method, replace(SCATTERED, workers=10_000), Choice(topology="complete"))


class Recounted(Pairs):
    """Also count staleness and lead by their definitions."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.begun = [0] * setting.workers
        self.finished_before: dict[int, int] = {}
        self.staleness: list[int] = []
        self.lead: list[int] = []

    def _begin(self, worker: int) -> None:
        if sum(self.begun) < self.setting.steps * self.setting.workers:
            self.lead.append(self.begun[worker] - min(self.begun))
            self.begun[worker] += 1
            self.finished_before[worker] = len(self.staleness)
        super()._begin(worker)

    def _update(self, worker: int) -> None:
        self.staleness.append(len(self.staleness) - self.finished_before[worker])
        super()._update(worker)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 20])
def test_pairs_count_staleness_and_lead(workers: int) -> None:
    pairs = Recounted(replace(SCATTERED, workers=workers))
    outcome = pairs.run()
    assert outcome.gradients == 60 * workers
    assert outcome.staleness == Counter(pairs.staleness)
    assert outcome.lead == Counter(pairs.lead)


def test_one_who_asks_pays_for_two_messages_and_one_who_answers_for_none() -> None:
    outcome = Pairs(Setting(2, 500, 0.1, nbytes=NBYTES, link=LINK)).run()
    rate = 1 / (0.1 + 2 * MESSAGE_S) + 1 / 0.1
    assert outcome.gradients / outcome.wall_s == pytest.approx(rate, rel=0.01)
    assert outcome.wait_s == 0
    seldom = Pairs(Setting(2, 500, 0.1, nbytes=NBYTES, link=LINK), every=5).run()
    assert seldom.gradients / seldom.wall_s == pytest.approx(1 / (0.1 + 0.4 * MESSAGE_S) + 1 / 0.1, rel=0.01)


def test_who_is_asked_by_two_answers_one_after_the_other() -> None:
    """Of three on a ring, 0 and 2 ask 1, at the same moment at first, and ever after one has to wait or follows."""
    pairs = Pairs(Setting(3, 1, 0.1, nbytes=NBYTES, link=LINK))
    outcome = pairs.run()
    assert outcome.wait_s == pytest.approx(MESSAGE_S)
    assert outcome.wall_s == pytest.approx(0.1 + 3 * MESSAGE_S)


@pytest.mark.parametrize("worker", [0, 1])
def test_nobody_waits_for_a_slow_worker(worker: int) -> None:
    outcome = Pairs(Setting(4, 400, 0.1, Slow(worker, factor=4))).run()
    assert outcome.gradients / outcome.wall_s == pytest.approx(3 / 0.1 + 1 / 0.4, rel=0.01)
    assert outcome.final_loss < 0.05


def test_an_average_changes_no_sum() -> None:
    """Without gradients the copies converge to their initial mean."""
    pairs = Pairs(Setting(8, 50, 0.1, parse("lognormal:0.5"), lr=1e-9, noise=0.0), "torus")
    pairs.copies.x[:] = np.arange(8)[:, None]
    outcome = pairs.run()
    np.testing.assert_allclose(pairs.copies.x.mean(axis=0), 3.5, rtol=1e-6)
    assert outcome.consensus_error is not None
    assert outcome.consensus_error < 1e-3


def test_ten_thousand_pairs() -> None:
    outcome = Pairs(replace(SCATTERED, workers=10_000, steps=2)).run()
    assert outcome.gradients == sum(outcome.staleness.values()) == 20_000
