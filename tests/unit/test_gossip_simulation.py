"""All ranks in one process: the limit cases are plain gradient descent, and far graphs leave copies further apart."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.decentralised.mixing import consensus_error
from farandole.decentralised.topologies import topology
from tests.unit.gossip_simulation import train, train_by_pushing

RANKS, LENGTH, STEPS, LR = 8, 5, 60, 0.1
TARGETS = np.random.default_rng(6).standard_normal((RANKS, LENGTH))


def gradient(parameters: np.ndarray, rank: int, step: int) -> np.ndarray:
    """Gradients of ½‖x − c_r‖²: every rank has a different minimum, and their mean is the common one."""
    return parameters - TARGETS[rank]


def test_the_complete_graph_after_the_update_is_gradient_descent() -> None:
    one = np.zeros(LENGTH)
    for copies in train(topology("complete", RANKS), np.zeros(LENGTH), gradient, LR, STEPS, after_update=True):
        one -= LR * (one - TARGETS.mean(axis=0))
        np.testing.assert_allclose(copies, np.tile(one, (RANKS, 1)), atol=1e-14)


@pytest.mark.parametrize("after_update", [False, True])
def test_the_mean_goes_the_same_way_on_every_graph_and_the_copies_stay_as_far_apart_as_its_gap(
    after_update: bool,
) -> None:
    means, apart = [], {}
    for name in ("ring", "exponential", "complete"):
        *_, copies = train(topology(name, RANKS), np.zeros(LENGTH), gradient, LR, STEPS, after_update=after_update)
        means.append(copies.mean(axis=0))
        apart[name] = consensus_error(copies)
    np.testing.assert_allclose(means, [means[0]] * 3, atol=1e-13)  # the gradients are linear here
    assert apart["ring"] > apart["exponential"] > apart["complete"]
    assert (apart["complete"] < 1e-14) == after_update


def test_mixing_less_often_leaves_them_further_apart() -> None:
    start, graph = np.zeros(LENGTH), topology("ring", RANKS)
    often, seldom = (list(train(graph, start, gradient, LR, STEPS, every=every))[-1] for every in (1, 4))
    assert consensus_error(seldom) > 1.5 * consensus_error(often)


def test_push_sum_on_a_regular_graph_is_mixing_after_the_update() -> None:
    graph, start = topology("one-peer-exponential", RANKS), np.ones(LENGTH)
    mixed = list(train(graph, start, gradient, LR, STEPS, after_update=True))
    np.testing.assert_allclose(list(train_by_pushing(graph, start, gradient, LR, STEPS)), mixed, atol=1e-13)
