"""The simulated grid with shard, expert and context ranks: times that are counted by hand, and ZeRO-3 as one of them.

What its workers send is compared with runs in `parallel/test_simulated_grid.py`.
"""

from __future__ import annotations

import pytest

from farandole.collectives.costs import Link
from farandole.cost.choice import GRID, Choice
from farandole.cost.comparison import compared
from farandole.cost.messages import IN_A_NODE
from farandole.cost.setting import Outcome, Setting
from farandole.cost.stragglers import Slow, parse
from farandole.models.shape import Shape

LINK, NEAR = Link(1e-3, 1e-8), Link(IN_A_NODE * 1e-3, IN_A_NODE * 1e-8)
LAYERS, M, COMPUTE_S, PARAMETERS, ACTIVATION = 6, 3, 0.3, 24e6, 1e5
SMALL = Shape(layers=4, hidden=64, heads=4, sequence=32, vocabulary=128)


def outcome(workers: int, straggler: str = "constant", steps: int = 1, **options: object) -> Outcome:
    setting = Setting(workers, steps, COMPUTE_S, parse(straggler), PARAMETERS, LINK, seed=3)
    return compared(GRID, setting, choice(**options)).outcome


def choice(**options: object) -> Choice:
    given = {"stages": 1, "micro_batches": M, "units": LAYERS, "activation": ACTIVATION}
    return Choice(**(given | options))  # type: ignore[arg-type]


@pytest.mark.parametrize("ranks", [2, 4])
def test_shard_ranks_gather_twice_and_reduce_once_for_each_unit_and_micro_batch(ranks: int) -> None:
    part_s = LINK.message_s(PARAMETERS / LAYERS / ranks)
    expected = COMPUTE_S + M * LAYERS * 3 * (ranks - 1) * part_s
    assert outcome(ranks, shard_ranks=ranks).wall_s == pytest.approx(expected)
    copies_s = LAYERS * 2 * LINK.message_s(PARAMETERS / LAYERS / ranks / 2)  # each unit's part, by two copies
    assert outcome(2 * ranks, shard_ranks=ranks).wall_s == pytest.approx(expected + copies_s)


def test_shard_ranks_with_one_micro_batch_are_zero_3() -> None:
    setting = Setting(8, 5, COMPUTE_S, parse("lognormal:0.5"), PARAMETERS, LINK, seed=3)
    zero = compared("zero-3", setting, Choice(units=LAYERS)).outcome
    grid = compared(GRID, setting, choice(shard_ranks=8, micro_batches=1)).outcome
    for figure in ("wall_s", "compute_s", "comm_s", "wait_s", "final_loss"):
        assert getattr(grid, figure) == pytest.approx(getattr(zero, figure)), figure


@pytest.mark.parametrize("ranks", [2, 4])
def test_expert_ranks_exchange_counts_and_tokens(ranks: int) -> None:
    experts, k = 8, 3
    counts_s = (ranks - 1) * LINK.message_s(8 * k * experts)
    tokens_s = 4 * (ranks - 1) * LINK.message_s(k * ACTIVATION / ranks)  # dispatch and combine, and both backward
    dense = PARAMETERS / LAYERS / (1 + 2 * experts)
    update_s = 2 * (ranks - 1) * LINK.message_s(dense / ranks)  # an expert's gradient is nowhere else
    expected = COMPUTE_S + LAYERS * (M * (counts_s + tokens_s) + update_s)
    options = {"experts": experts, "top_k": k}
    assert outcome(ranks, expert_ranks=ranks, **options).wall_s == pytest.approx(expected)


@pytest.mark.parametrize("ranks", [2, 4])
def test_context_ranks_pass_keys_and_values_and_their_gradients(ranks: int) -> None:
    """Without a model nothing is known of attention, so that all messages are waited for."""
    block_s = LINK.message_s(2 * ACTIVATION / ranks)
    update_s = 2 * (ranks - 1) * LINK.message_s(PARAMETERS / LAYERS / ranks)
    expected = COMPUTE_S + LAYERS * (M * (2 * (ranks - 1) + ranks) * block_s + update_s)
    found = outcome(ranks, context_ranks=ranks)
    assert found.wall_s == pytest.approx(expected)
    assert found.compute_s + found.comm_s + found.wait_s == pytest.approx(ranks * found.wall_s)


@pytest.mark.parametrize("compute_s", [1e-3, 0.5, 1e3])
def test_keys_and_values_pass_beside_attention(compute_s: float) -> None:
    ranks, link = 4, Link(1e-3, 0.0)  # so that only messages count
    setting = Setting(ranks, 1, compute_s, link=link)
    found = compared(GRID, setting, choice(context_ranks=ranks, model=SMALL)).outcome
    of_attention = compute_s * SMALL.attention_operations / SMALL.operations
    beside_s = of_attention * (ranks - 1) / ranks
    blocks_s = SMALL.layers * M * (ranks - 1) * link.alpha  # of each of the two passes; forward takes a third
    uncovered_s = max(0.0, blocks_s - beside_s / 3) + max(0.0, blocks_s - 2 * beside_s / 3)
    gradients_s = SMALL.layers * M * ranks * link.alpha
    update_s = (SMALL.layers + 2) * 2 * (ranks - 1) * link.alpha  # blocks, the embedding and the last norm
    assert found.wall_s == pytest.approx(compute_s + uncovered_s + gradients_s + update_s)
    assert found.compute_s + found.comm_s + found.wait_s == pytest.approx(ranks * found.wall_s)


def test_shard_expert_context_and_tensor_ranks_together() -> None:
    experts, k, b = 4, 2, ACTIVATION / 2  # half of the positions
    dense = PARAMETERS / LAYERS / 2 / (1 + 2 * experts)  # of a block, on each of two tensor ranks
    units = [dense, *[2 * dense] * 2]  # two experts on each expert rank
    shard_s = sum(3 * LINK.message_s(unit / 2) for unit in units)
    context_s = 4 * LINK.message_s(2 * b / 2)
    tokens_s = 4 * LINK.message_s(k * b / 2) + 7 * LINK.message_s(
        8 * k * experts
    )  # counts of 8 ranks with other tokens
    tensor_s = 2 * 2 * NEAR.message_s(b / 2) + 2 * 2 * 2 * NEAR.message_s(k * b / 2 / 2)
    update_s = 6 * LINK.message_s(dense / 2 / 4) + 2 * 2 * LINK.message_s(2 * dense / 2 / 2)
    expected = COMPUTE_S + LAYERS * (M * (shard_s + context_s + tokens_s + tensor_s) + update_s)
    four = {"shard_ranks": 2, "expert_ranks": 2, "context_ranks": 2, "tensor": 2, "experts": experts, "top_k": k}
    assert outcome(16, **four).wall_s == pytest.approx(expected)


def test_a_pipelines_messages_have_the_positions_of_one_context_rank() -> None:
    beta = 1e-6
    setting = Setting(4, 1, COMPUTE_S, link=Link(0.0, beta))
    found = compared(GRID, setting, choice(stages=2, schedule="naive", context_ranks=2)).outcome
    of_attention = LAYERS * 4 * ACTIVATION  # of both stages, which work one after the other
    of_border = 2 * ACTIVATION / 2
    assert found.wall_s == pytest.approx(2 * COMPUTE_S + M * (of_attention + of_border) * beta)


@pytest.mark.parametrize("axis", ["shard_ranks", "expert_ranks", "context_ranks"])
def test_the_slowest_of_a_stages_ranks_sets_its_pace(axis: str) -> None:
    """GPipe is a flow shop: Σ(F_s + B_s) + (m − 1)·(F + B) of the slowest stage."""
    experts = {"experts": 2} if axis == "expert_ranks" else {}
    setting = Setting(4, 1, COMPUTE_S, Slow(1, 5.0))
    found = compared(GRID, setting, choice(stages=2, schedule="gpipe", **{axis: 2}, **experts)).outcome
    assert found.wall_s == pytest.approx((1 + 5) * COMPUTE_S / M + (M - 1) * 5 * COMPUTE_S / M)
    assert found.compute_s == pytest.approx((3 + 5) * COMPUTE_S)


def test_with_experts_all_copies_go_at_one_pace_since_they_exchange_counts() -> None:
    """Otherwise a copy waits for the others in the update alone, and what is slow at one time is fast at another."""
    free = Setting(8, 20, COMPUTE_S, parse("lognormal:0.5"), seed=3)
    alone = compared(GRID, free, choice(stages=2)).outcome.wall_s
    assert alone < compared(GRID, free, choice(stages=2, experts=4)).outcome.wall_s
