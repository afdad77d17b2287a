"""Pipelines and grids, simulated: the schedules' bubbles, the calculators' volumes, and the ring with one stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.collectives.costs import Link
from farandole.cost.choice import GRID, Choice
from farandole.cost.comparison import compared
from farandole.cost.cost_function import all_reduce_s
from farandole.cost.division import divided
from farandole.cost.messages import IN_A_NODE
from farandole.cost.setting import Outcome, Setting
from farandole.cost.stage_clock import program
from farandole.cost.stage_messages import messages
from farandole.cost.stragglers import Slow, parse
from farandole.cost.training_plan import TrainingPlan
from farandole.cost.volumes import volumes
from farandole.model_parallel.checker import execute
from farandole.model_parallel.schedules import ONE_WAY, choose
from farandole.models.shape import Shape

SMALL = Shape(layers=12, hidden=64, heads=4, sequence=32, vocabulary=128)
SCATTERED = Setting(8, 12, 0.1, parse("lognormal:0.5"), 4e6, Link(1e-4, 1e-8), seed=3)
EQUAL = Setting(1, 1, 0.3)  # a third of a second for each kind of pass, and messages are free


def outcome(method: str, setting: Setting, **options: object) -> Outcome:
    return compared(method, setting, Choice(**options)).outcome  # type: ignore[arg-type]


def step_s(method: str, setting: Setting, **options: object) -> float:
    """Return the time of a step that others follow."""
    one, ten = (outcome(method, replace(setting, steps=steps), **options).wall_s for steps in (1, 10))
    return (ten - one) / 9


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 4), (2, 4), (4, 4), (4, 12), (8, 16)])
@pytest.mark.parametrize("name", ONE_WAY)
def test_with_equal_workers_and_free_messages_the_bubble_is_the_schedules(
    name: str, stages: int, micro_batches: int
) -> None:
    setting = replace(EQUAL, workers=stages)
    options = {"stages": stages, "micro_batches": micro_batches}
    run = execute(choose(name), stages, micro_batches)
    unit = 0.1 / micro_batches
    assert outcome(name, setting, **options).wall_s == pytest.approx(run.total * unit)
    assert outcome(name, setting, **options).efficiency(stages) == pytest.approx(1 - run.bubble_of_total)
    assert step_s(name, setting, **options) == pytest.approx(run.period * unit)


@pytest.mark.parametrize(("p", "m"), [(2, 2), (4, 4), (4, 16), (8, 16)])
def test_the_closed_forms(p: int, m: int) -> None:
    setting, options = replace(EQUAL, workers=2 * p), {"stages": p, "micro_batches": m}
    found = {name: outcome(name, setting, **options).efficiency(2 * p) for name in ONE_WAY}
    assert found["naive"] == pytest.approx(1 / p)
    assert [found["gpipe"], found["1f1b"]] == pytest.approx([1 - (p - 1) / (m + p - 1)] * 2)
    assert found["interleaved"] == pytest.approx(1 - (p - 1) / (2 * m + p - 1))
    assert found["zero-bubble"] == pytest.approx(1 - (p - 1) / (3 * m + p - 1)), "a third of 1F1B's bubble"
    thrice = outcome("interleaved", setting, **options, chunks=3)
    assert thrice.efficiency(2 * p) == pytest.approx(1 - (p - 1) / (3 * m + p - 1))
    if m >= 2 * p - 1:
        assert step_s("zb-h2", setting, **options) == pytest.approx(0.3), "nothing is idle where batches follow"
        assert step_s("zb-v", setting, **options) == pytest.approx(0.3)


@pytest.mark.parametrize("name", [*ONE_WAY, GRID])
def test_with_one_stage_it_is_the_ring(name: str) -> None:
    ring, found = outcome("ring", SCATTERED), outcome(name, SCATTERED, stages=1)
    for figure in ("wall_s", "compute_s", "comm_s", "wait_s", "final_loss"):
        assert getattr(found, figure) == pytest.approx(getattr(ring, figure)), figure


def test_a_grid_without_tensor_ranks_is_its_schedule() -> None:
    for name in ONE_WAY:
        assert outcome(GRID, SCATTERED, stages=4, schedule=name) == outcome(name, SCATTERED, stages=4)


def test_each_border_of_a_micro_batch_costs_a_message_each_way() -> None:
    """Naive: all messages one after another. GPipe: the first micro-batch's forward, and the last one's backward."""
    p, m, link, nbytes = 4, 8, Link(1e-3, 1e-9), 2e6
    setting = replace(EQUAL, workers=p, link=link)
    options = {"stages": p, "micro_batches": m, "activation": nbytes}
    borders_s = 2 * (p - 1) * link.message_s(nbytes)
    assert step_s("naive", setting, **options) == pytest.approx(p * 0.3 + m * borders_s)
    assert step_s("gpipe", setting, **options) == pytest.approx((m + p - 1) * 0.3 / m + borders_s)


def test_a_link_that_is_slower_than_the_stages_decides() -> None:
    """Two stages: m messages queue forward, and m back."""
    m, alpha, message_s = 4, 0.01, 0.5
    setting = replace(EQUAL, workers=2, link=Link(alpha, message_s))
    found = step_s("gpipe", setting, stages=2, micro_batches=m, activation=1.0)
    assert found == pytest.approx(2 * (m * message_s + alpha) + 2 * 0.3 / m)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("slow", range(4))
def test_a_slow_stage_slows_all(slow: int, copies: int) -> None:
    """GPipe is a flow shop: Σ(F_s + B_s) + (m − 1)·(F + B) of the slowest stage; the copies wait for the slow one."""
    p, m, factor = 4, 8, 3.0
    setting = replace(EQUAL, workers=p * copies, straggler=Slow(slow, factor))
    passes = [0.3 / m * (factor if stage == slow else 1) for stage in range(p)]
    expected = sum(passes) + (m - 1) * max(passes)
    assert outcome("gpipe", setting, stages=p, micro_batches=m).wall_s == pytest.approx(expected)
    times = outcome("gpipe", setting, stages=p, micro_batches=m)
    assert times.compute_s == pytest.approx(0.3 * (p * copies - 1 + factor))
    assert times.compute_s + times.wait_s + times.comm_s == pytest.approx(p * copies * times.wall_s)


def test_scattered_copies_are_slower_than_equal_ones_but_faster_than_one_at_the_pace_of_the_slowest() -> None:
    free = replace(SCATTERED, link=Link(0.0, 0.0))
    for name in ("1f1b", "zb-v"):
        equal = outcome(name, replace(free, straggler=parse("constant")), stages=4).wall_s
        scattered, ring = outcome(name, free, stages=4).wall_s, outcome("ring", free).wall_s
        assert equal < scattered < ring * equal / (free.steps * free.compute_s)


def test_the_copies_add_up_the_gradients_of_one_worker() -> None:
    p, m, copies = 2, 8, 3
    setting = replace(EQUAL, workers=p * copies, nbytes=6e6, link=Link(1e-3, 1e-8))
    found = step_s("gpipe", setting, stages=p, micro_batches=m, activation=0.0)
    ring_s = all_reduce_s("ring", copies, 6e6 / p, setting.link)
    assert found == pytest.approx((m + p - 1) * 0.3 / m + 2 * 1e-3 + ring_s)


def test_tensor_ranks_exchange_each_layer_and_the_slowest_sets_the_pace() -> None:
    link, nbytes, layers, m = Link(1e-3, 1e-8), 1e5, 6, 4
    setting = replace(EQUAL, workers=4, link=link)
    options = {"stages": 1, "tensor": 4, "micro_batches": m, "activation": nbytes, "units": layers}
    within = Link(IN_A_NODE * link.alpha, IN_A_NODE * link.beta)
    exchanges_s = m * layers * 4 * all_reduce_s("ring", 4, nbytes, within)
    for name in ("1f1b", "zero-bubble"):  # also where a backward pass is taken in halves
        assert step_s(GRID, setting, **options, schedule=name) == pytest.approx(0.3 + exchanges_s)
    slow = replace(setting, straggler=Slow(2, 5.0))
    found = outcome(GRID, slow, **options)
    assert found.wall_s == pytest.approx(5 * 0.3 + exchanges_s)
    assert found.comm_s == pytest.approx(4 * exchanges_s)
    assert found.wait_s == pytest.approx(3 * 4 * 0.3)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb-v"])
def test_the_volumes_are_the_calculators(schedule: str) -> None:
    workers, stages, tensor, data, m = 24, 3, 4, 2, 6
    plan = TrainingPlan(workers, tensor, stages, micro_batch=2, batch=data * m * 2, schedule=schedule)
    expected = volumes(SMALL, plan, itemsize=4)
    choice = Choice(
        model=SMALL, stages=stages, tensor=tensor, micro_batches=m, micro_batch=2, schedule=schedule, units=SMALL.layers
    )
    division = divided(GRID, workers, choice)
    in_bytes = messages(GRID, Setting(workers, 1, nbytes=4 * SMALL.parameters, link=Link(0.0, 1.0)), choice)
    steps = list(program(division, in_bytes.exchange_s / IN_A_NODE))
    exchanged = max(sum(each[2] for each in steps if each[0] == stage) for stage in range(stages))
    sent = max(sum(each[0] == stage and each[3] is not None for each in steps) for stage in range(stages))
    assert exchanged == pytest.approx(expected["tensor"].nbytes)
    assert sent == expected["pipeline"].messages
    assert sent * division.activation == expected["pipeline"].nbytes
    assert in_bytes.update_s == pytest.approx([expected["data"].nbytes] * stages)
    assert division.data == data


def test_a_models_pieces_take_time_by_their_operations() -> None:
    division = divided("1f1b", 8, Choice(model=SMALL, stages=4))
    assert division.layers == [[3.0]] * 4
    assert sum(map(sum, division.share)) == pytest.approx(4)
    first, *inner, last = (own[0] for own in division.share)
    assert inner == [first] * 2
    head = SMALL.operations - SMALL.block_operations
    assert last / first == pytest.approx(1 + head / (SMALL.block_operations / 4)), "the head is in the last piece"
    both_ends = divided("zb-v", 8, Choice(model=SMALL, stages=2)).share
    assert both_ends[0][1] > both_ends[0][0] == both_ends[1][0] == both_ends[1][1], "the first stage has the head"
    assert divided("1f1b", 7, Choice()).stages == 7
    assert divided("interleaved", 32, Choice(model=SMALL)).stages == 4, "8 stages would be 16 pieces of 12 layers"
