"""The expert split without MPI: who has which expert, what an expert accepts, and how evenly tokens choose."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from farandole.model_parallel.expert.plan import Plan, capacity_of, divided
from farandole.model_parallel.expert.routing import accepted, balance_loss, choose, count
from farandole.model_parallel.expert.traffic import even_bytes, layer_bytes

Routes = list[list[list[int]]]  # of each rank, of each token, its choices


def routes(seed: int, ranks: int, k: int, experts: int) -> Routes:
    """Each rank's tokens, 0 to 6 of them, with k different experts each."""
    noise = np.random.default_rng(seed)
    return [
        [noise.permutation(experts)[:k].tolist() for _ in range(noise.integers(7) + (rank == 0))]
        for rank in range(ranks)
    ]


def counts_of(chosen: Routes, k: int, experts: int) -> np.ndarray:
    counts = np.zeros((len(chosen), k, experts), np.int64)
    for rank, tokens in enumerate(chosen):
        for token in tokens:
            for choice, expert in enumerate(token):
                counts[rank, choice, expert] += 1
    return counts


@pytest.mark.parametrize(("experts", "ranks"), [*product((1, 4, 5, 8, 64), (1, 2, 3, 4, 7, 9))])
def test_every_expert_is_on_one_rank(experts: int, ranks: int) -> None:
    placement = divided(experts, ranks)
    assert [expert for own in placement for expert in own] == list(range(experts))
    assert {len(own) for own in placement} <= {experts // ranks, experts // ranks + 1}


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 3), st.integers(3, 6), st.none() | st.integers(1, 6))
def test_an_expert_accepts_first_choices_in_order_of_the_tokens_then_second_ones(
    seed: int, ranks: int, k: int, experts: int, capacity: int | None
) -> None:
    chosen = routes(seed, ranks, k, experts)
    plan = Plan.of(divided(experts, ranks), counts_of(chosen, k, experts), capacity)
    kept, taken = np.zeros_like(plan.chosen), [0] * experts
    places: list[list[tuple[int, int, int]]] = [[] for _ in range(ranks)]
    for choice, rank in product(range(k), range(ranks)):
        for number, token in enumerate(chosen[rank]):
            if capacity is None or taken[token[choice]] < capacity:
                taken[token[choice]] += 1
                kept[rank, choice, token[choice]] += 1
                places[rank].append((token[choice], choice, number))
    assert np.array_equal(plan.kept, kept)
    assert plan.dropped == sum(len(tokens) * k for tokens in chosen) - sum(taken)
    for rank, tokens in enumerate(chosen):
        choices = torch.tensor(tokens, dtype=torch.int64).reshape(len(tokens), k).T.contiguous()
        assert count(choices, experts).tolist() == plan.chosen[rank].tolist()
        found = accepted(choices, torch.from_numpy(plan.kept[rank])).tolist()
        assert found == [choice * len(tokens) + number for _, choice, number in sorted(places[rank])]


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3), st.integers(3, 6))
def test_blocks_fit_each_other_and_each_experts_rows_lie_together(seed: int, ranks: int, k: int, experts: int) -> None:
    plan = Plan.of(divided(experts, ranks), counts_of(routes(seed, ranks, k, experts), k, experts), 3)
    assert plan.rows.sum() == plan.kept.sum()
    sent = 0
    for rank, own in enumerate(plan.placement):
        arriving = [(source, expert) for source in range(ranks) for expert in own
                    for _ in range(plan.by_expert[source, expert])]  # fmt: skip
        assert [sum(source == each for source, _ in arriving) for each in range(ranks)] == plan.rows[:, rank].tolist()
        grouped = [arriving[place] for place in plan.grouped(rank)]
        assert grouped == sorted(arriving, key=lambda row: (row[1], row[0]))
        sent += layer_bytes(plan, rank, 1)["forward"]
    assert sent == 2 * (plan.rows.sum() - plan.rows.trace()), "each row that moves goes there and back"


def test_an_even_load_sends_what_the_formula_says() -> None:
    ranks, k, experts, each = 4, 2, 8, 3
    plan = Plan.of(divided(experts, ranks), np.full((ranks, k, experts), each), None)
    tokens = experts * each
    assert layer_bytes(plan, 1, 100) == {
        "counts": (ranks - 1) * k * experts * 8,
        "forward": even_bytes(tokens, k, ranks, 100),
        "backward": even_bytes(tokens, k, ranks, 100),
    }


@pytest.mark.parametrize(
    ("factor", "tokens", "k", "experts", "capacity"),
    [(1.0, 64, 1, 8, 8), (1.25, 64, 2, 8, 20), (1.0, 10, 1, 4, 3), (1.1, 10, 1, 1, 11), (0.001, 10, 1, 4, 1),
     (0.0, 64, 2, 8, None)],
)  # fmt: skip
def test_a_capacity_is_in_even_shares_rounded_up(
    factor: float, tokens: int, k: int, experts: int, capacity: int | None
) -> None:
    assert capacity_of(factor, tokens, k, experts) == capacity


def test_the_lower_number_is_chosen_among_equal_ones_and_weights_sum_to_one() -> None:
    odds = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.1, 0.4, 0.1, 0.4], [0.0, 0.2, 0.5, 0.3]])
    choices, weights = choose(odds, 2)
    assert choices.tolist() == [[0, 1, 2], [1, 3, 3]]
    assert weights.tolist() == [pytest.approx([0.5, 0.5, 0.625]), pytest.approx([0.5, 0.5, 0.375])]
    choices, weights = choose(odds, 1)
    assert (choices.tolist(), weights.tolist()) == ([[0, 1, 2]], [pytest.approx([0.25, 0.4, 0.5])])


def test_parts_of_the_balancing_loss_add_up_and_means_of_losses_do_not() -> None:
    torch.manual_seed(0)
    odds = torch.randn(12, 4, dtype=torch.float64).mul(2).softmax(1)
    shares = odds.argmax(1).bincount(minlength=4).double() / 12
    whole = balance_loss(odds, shares, 12)
    parts = [odds[:5], odds[5:]]
    torch.testing.assert_close(sum(balance_loss(part, shares, 12) for part in parts), whole)
    apart = [balance_loss(part, part.argmax(1).bincount(minlength=4).double() / len(part), len(part)) for part in parts]
    assert abs(sum(len(part) * loss for part, loss in zip(parts, apart, strict=True)) / 12 - whole) > 0.01
    even, one = torch.full((8, 4), 0.25), torch.eye(4)[torch.zeros(8, dtype=torch.int64)]
    assert balance_loss(even, torch.full((4,), 0.25), 8).item() == pytest.approx(1)
    assert balance_loss(one, torch.eye(4)[0], 8).item() == pytest.approx(4), "everything on one expert"
