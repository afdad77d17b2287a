"""The context split without MPI: each rank's positions, the block it attends to in each step, attention in blocks."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from farandole.errors import UsageError
from farandole.model_parallel.context import steps
from farandole.model_parallel.context.blockwise import BlockwiseAttention, BlockwiseGradient
from farandole.model_parallel.context.placement import PLACEMENTS, contiguous, length, looks_at, work, zigzag
from farandole.model_parallel.context.steps import Attend, PassBlock, PassGradient
from farandole.model_parallel.context.traffic import attention_bytes
from farandole.model_parallel.context.ulysses import check_heads


@pytest.mark.parametrize("name", PLACEMENTS)
@pytest.mark.parametrize(("context", "ranks"), [*product((16, 64, 65), (1, 2, 3, 4, 7, 8))])
def test_every_position_is_on_one_rank(name: str, context: int, ranks: int) -> None:
    placement = PLACEMENTS[name](context, ranks)
    assert sorted(position for parts in placement for part in parts for position in part) == list(range(context))
    lengths = list(map(length, placement))
    assert max(lengths) - min(lengths) <= (2 if name == "zigzag" else 1)
    assert sum(map(sum, work(placement))) == context * (context + 1) // 2, "each query with each key up to it, once"


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_zigzag_balances_every_step_of_the_ring(ranks: int) -> None:
    part = 64 // (2 * ranks)
    balanced = work(zigzag(64, ranks))
    for step in range(ranks):
        assert len({of_rank[step] for of_rank in balanced}) == 1, step
    assert balanced[0][1:] == [2 * part * part] * (ranks - 1), "half of the scores of a block"
    unbalanced = work(contiguous(64, ranks))
    slowest = [max(of_rank[step] for of_rank in unbalanced) for step in range(ranks)]
    assert slowest[1:] == [(2 * part) ** 2] * (ranks - 1), "some rank computes all scores of a block in every step"
    assert unbalanced[0][1:] == [0] * (ranks - 1), "the first rank has nothing to do after its own block"


@given(*(st.integers(0, 12) for _ in range(4)))
def test_the_pairs_are_those_of_a_key_not_after_its_query(
    start: int, count: int, key_start: int, key_count: int
) -> None:
    queries, keys = range(start, start + count), range(key_start, key_start + key_count)
    assert looks_at(queries, keys) == sum(key <= query for query, key in product(queries, keys))


@pytest.mark.parametrize(("name", "ranks", "most"), [("zigzag", 33, 32), ("contiguous", 65, 64)])
def test_a_sequence_that_is_too_short_is_refused(name: str, ranks: int, most: int) -> None:
    with pytest.raises(UsageError, match=f"64 positions cannot be divided over {ranks} ranks: use at most {most}"):
        PLACEMENTS[name](64, ranks)


def test_heads_that_do_not_divide_are_refused() -> None:
    check_heads(8, 4)
    with pytest.raises(UsageError, match="8 heads cannot be divided equally over 3 ranks: use 1 or 2 or 4 or 8 ranks"):
        check_heads(8, 3)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 16])
def test_every_rank_attends_to_every_block_once_while_it_is_there(size: int) -> None:
    for plan in (steps.forward, steps.backward):
        plans = [list(plan(rank, size)) for rank in range(size)]
        assert len({tuple(map(type, each)) for each in plans}) == 1, "all ranks do the same at the same time"
        here = gradient_at = list(range(size))  # whose block, and whose gradient, each rank has
        added: list[list[int]] = [[] for _ in range(size)]  # for each gradient, by which ranks
        following: list[int] | None = None
        for together in zip(*plans, strict=True):
            for rank, step in enumerate(together):
                if isinstance(step, Attend):
                    assert step.block == here[rank]
                    added[gradient_at[rank]].append(rank)
                    assert plan is steps.forward or gradient_at[rank] == here[rank]
                else:
                    sender = together[step.source]
                    assert not isinstance(sender, Attend)
                    assert (sender.to, sender.block) == (rank, step.following)
                    assert step.block == (here if isinstance(step, PassBlock) else gradient_at)[rank]
            if isinstance(together[0], PassBlock):
                following = [step.following for step in together if isinstance(step, PassBlock)]
            elif isinstance(together[0], PassGradient):
                gradient_at = [step.following for step in together if isinstance(step, PassGradient)]
            elif following:
                here, following = following, None
        assert all(sorted(ranks) == list(range(size)) for ranks in added) or plan is steps.forward
        assert gradient_at == list(range(size)), "each gradient ends where its block came from"
        attended = [[step.block for step in own if isinstance(step, Attend)] for own in plans]
        assert all(sorted(blocks) == list(range(size)) for blocks in attended)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_attention_from_blocks_is_attention(order: list[int]) -> None:
    """On one rank, with the blocks in any order, that is also with later keys first; scores of up to 300."""
    torch.manual_seed(1)
    numbers = torch.randn(4, 2, 3, 13, 4, dtype=torch.float64)
    numbers[0] *= 100
    query, key, value = (each.requires_grad_() for each in numbers[:3].clone())
    expected = scaled_dot_product_attention(query, key, value, is_causal=True)
    expected.backward(numbers[3])
    assert query.grad is not None
    assert key.grad is not None
    assert value.grad is not None
    placement = zigzag(13, 3)
    rows = [[position for part in parts for position in part] for parts in placement]
    gradients = torch.zeros(2, *key.shape, dtype=key.dtype)
    for own, its in zip(placement, rows, strict=True):
        attention = BlockwiseAttention(numbers[0][:, :, its], own)
        for block in order:
            attention.add(*numbers[1:3, :, :, rows[block]], placement[block])
        found, log_sum = attention.result
        torch.testing.assert_close(found, expected[:, :, its], atol=1e-10, rtol=0)
        backward = BlockwiseGradient(numbers[0][:, :, its], own, found, log_sum, numbers[3][:, :, its])
        for block in order:
            part = torch.zeros_like(gradients[:, :, :, rows[block]])
            backward.add(numbers[1:3, :, :, rows[block]], placement[block], part)
            gradients[:, :, :, rows[block]] += part
        torch.testing.assert_close(backward.query_gradient, query.grad[:, :, its], atol=1e-10, rtol=0)
    torch.testing.assert_close(gradients, torch.stack((key.grad, value.grad)), atol=1e-10, rtol=0)


def test_with_more_ranks_ulysses_sends_less_and_the_ring_does_not() -> None:
    row, sent = 1024, {}
    for name, ranks in product(("ring", "ulysses"), (2, 4, 8, 16)):
        sent[name, ranks] = sum(attention_bytes(name, zigzag(64, ranks), 0, row).values())
    assert [sent["ring", ranks] / (64 * row) for ranks in (2, 4, 8, 16)] == [4, 5, 5.5, 5.75]
    assert [sent["ulysses", ranks] / (64 * row) for ranks in (2, 4, 8, 16)] == [2, 1.5, 0.875, 0.46875]
