"""The simulator's time of an all-reduce, against its schedule step by step, with late ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from farandole.collectives.checker import rounds
from farandole.collectives.costs import Link, Machine
from farandole.collectives.doubling import DOUBLING
from farandole.collectives.halving_doubling import HALVING_DOUBLING
from farandole.collectives.hierarchical import hierarchical
from farandole.collectives.ring import RING
from farandole.collectives.steps import Schedule, chunk_slices
from farandole.collectives.tree import TREE
from farandole.cost.cost_function import all_reduce_s, hierarchical_s
from farandole.cost.stragglers import parse

WITHIN, ACROSS = Link(5e-4, 1e-9), Link(5e-3, 1e-8)
NBYTES = 3 * 7 * 16 * 5000  # whole chunks for all the numbers of ranks here
SCHEDULES = {"ring": RING, "tree": TREE, "doubling": DOUBLING, "halving-doubling": HALVING_DOUBLING}
RANKS = (2, 3, 4, 7, 8, 16)


def walked(schedule: Schedule, arrivals: Sequence[float], per_node: int | None = None) -> list[float]:
    """When each rank is done that begins at its arrival: a step begins when the rank and its partners have come to it,
    and takes α + bβ for the longer of its messages."""
    machine = Machine(WITHIN if per_node else ACROSS, 0.0, ACROSS, per_node)
    lengths = [part.stop - part.start for part in chunk_slices(NBYTES, schedule.chunks(len(arrivals)))]
    done = list(arrivals)
    for steps in rounds(schedule, len(arrivals)):
        before = list(done)
        for rank, step in steps:
            messages = [
                (other, chunks) for other, chunks in ((step.to, step.sent), (step.source, step.received)) if chunks
            ]
            begins = max(before[each] for each, _ in [(rank, None), *messages])
            nbytes = {other: sum(lengths[chunk] for chunk in chunks) for other, chunks in messages}
            done[rank] = begins + max(machine.between(rank, other).message_s(nbytes[other]) for other in nbytes)
    return done


def late(ranks: int) -> list[list[float]]:
    """Return arrivals: each rank late alone, and some draws."""
    alone = [[10.0 * (rank == each) for rank in range(ranks)] for each in range(ranks)]
    return alone + parse("lognormal:1").sample(np.random.default_rng(ranks), 20, ranks).tolist()


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("method", SCHEDULES)
def test_it_is_the_schedules_time_where_all_come_together(method: str, ranks: int) -> None:
    together = all_reduce_s(method, ranks, NBYTES, ACROSS)
    assert max(walked(SCHEDULES[method], [0.0] * ranks)) == pytest.approx(together)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("method", SCHEDULES)
def test_from_the_last_arrival_it_is_exact_for_rings_and_powers_of_two_and_else_a_bound(
    method: str, ranks: int
) -> None:
    together = all_reduce_s(method, ranks, NBYTES, ACROSS)
    exact = method == "ring" or ranks & (ranks - 1) == 0
    saved = [max(arrivals) + together - max(walked(SCHEDULES[method], arrivals)) for arrivals in late(ranks)]
    assert min(saved) > -1e-9
    if exact:
        assert max(saved) < 1e-9
    else:
        assert 0.1 * together < max(saved) < together / 3 + 1e-9, "a rank with less to do was the last"


@pytest.mark.parametrize(("ranks", "per_node"), [(4, 2), (8, 4), (12, 3)])
def test_hierarchical_waits_for_its_slowest_too(ranks: int, per_node: int) -> None:
    together = hierarchical_s(ranks, per_node, NBYTES, WITHIN, ACROSS)
    for arrivals in [[0.0] * ranks, *late(ranks)]:
        assert max(walked(hierarchical(per_node), arrivals, per_node)) == pytest.approx(max(arrivals) + together)


@pytest.mark.parametrize(("method", "ranks", "most"), [("ring", 7, 1e-9), ("tree", 8, 1e-9), ("tree", 7, 0.03),
                                                       ("halving-doubling", 7, 0.03)])  # fmt: skip
def test_over_many_steps_ranks_that_are_done_early_gain_hardly_anything(method: str, ranks: int, most: float) -> None:
    """With as much communication as computing: the next step's arrivals are this one's ends."""
    together = all_reduce_s(method, ranks, NBYTES, ACROSS)
    done, in_turn = [0.0] * ranks, 0.0
    for times in parse("lognormal:0.5").sample(np.random.default_rng(0), 100, ranks) * together:
        done = walked(SCHEDULES[method], (done + times).tolist())
        in_turn += float(times.max()) + together
    assert -1e-9 <= in_turn / max(done) - 1 < most
