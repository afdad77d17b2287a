"""Collectives without MPI: right for every number of ranks, at the formula's cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.collectives import double_binary_tree as trees
from farandole.collectives import halving_doubling, pat, ring
from farandole.collectives.all_to_all import BRUCK, PAIRWISE
from farandole.collectives.bidirectional_ring import BIDIRECTIONAL_RING
from farandole.collectives.central import CENTRAL, ROOT
from farandole.collectives.checker import ScheduleError, check_all_reduce, check_all_to_all, execute
from farandole.collectives.costs import coefficients
from farandole.collectives.double_binary_tree import double_binary_tree
from farandole.collectives.doubling import DOUBLING
from farandole.collectives.folding import folded, power_of_two
from farandole.collectives.halving_doubling import HALVING_DOUBLING
from farandole.collectives.hierarchical import hierarchical
from farandole.collectives.pat import pat_all_gather, pat_reduce_scatter
from farandole.collectives.recursive import DOUBLING_ALL_GATHER, HALVING_REDUCE_SCATTER
from farandole.collectives.recursive import owned as owned_after_halving
from farandole.collectives.ring import ALL_GATHER, REDUCE_SCATTER, RING, segmented
from farandole.collectives.schedules import SCHEDULES
from farandole.collectives.steps import Exchange, Schedule, Step, Steps, Together, chunk_slices
from farandole.collectives.tree import BROADCAST, GATHER, REDUCE, SCATTER, TREE


@pytest.mark.parametrize("size", [*range(1, 26), 31, 32, 33, 64])
def test_ring_is_right_and_costs_2_p_minus_1_chunks(size: int) -> None:
    execution = check_all_reduce(RING, size)
    assert execution.steps == [2 * (size - 1)] * size
    assert execution.chunks_sent == [2 * (size - 1)] * size
    assert len(execution.rounds) == 2 * (size - 1), "all ranks work in every round"


@pytest.mark.parametrize("size", [*range(1, 18), 64])
def test_central_is_right_and_its_root_moves_everything(size: int) -> None:
    execution = check_all_reduce(CENTRAL, size)
    assert execution.chunks_sent[ROOT] == size - 1
    assert execution.chunks_sent[1:] == [1] * (size - 1)
    assert len(execution.rounds) == 2 * (size - 1), "the root talks to one rank at a time"


@pytest.mark.parametrize("size", [*range(1, 18), 31, 33, 64])
def test_doubling_is_right_in_lg_p_rounds(size: int) -> None:
    execution = check_all_reduce(DOUBLING, size)
    rounds = (power_of_two(size)).bit_length() - 1
    assert len(execution.rounds) == rounds + (0 if size == power_of_two(size) else 2), "before and after, the fold"


@pytest.mark.parametrize("size", [*range(1, 18), 31, 33, 64])
def test_halving_doubling_is_right_and_sends_the_rings_bytes(size: int) -> None:
    execution = check_all_reduce(HALVING_DOUBLING, size)
    core = power_of_two(size)
    rounds = 2 * (core.bit_length() - 1)
    assert len(execution.rounds) == rounds + (0 if size == core else 2)
    if size == core:
        assert execution.chunks_sent == [2 * (size - 1)] * size, "of so many chunks as there are ranks"
    else:
        assert max(execution.chunks_sent) == 2 * (core - 1) + core, "who plays two ranks hands the whole vector back"


@pytest.mark.parametrize("size", [*range(1, 18), 31, 33, 64])
def test_tree_is_right_and_nobody_has_more_than_lg_p_partners(size: int) -> None:
    execution = check_all_reduce(TREE, size)
    depth = (size - 1).bit_length()
    assert len(execution.rounds) == 2 * depth
    assert max(execution.chunks_sent, default=0) <= depth
    for rank in range(size):
        assert len({each.to for step in TREE.steps(rank, size) for each in step.exchanges} - {None}) <= depth


@pytest.mark.parametrize("size", [*range(1, 18), 33])
def test_what_one_has_all_get_and_the_other_way(size: int) -> None:
    chunks = range(size)
    assert execute(BROADCAST, size).held == [[Counter({0: 1})]] * size
    assert execute(REDUCE, size).held[0] == [Counter(range(size))]
    scattered, gathered = execute(SCATTER, size), execute(GATHER, size)
    assert [scattered.held[rank][rank] for rank in range(size)] == [Counter({0: 1})] * size
    assert gathered.held[0] == [Counter({chunk: 1}) for chunk in chunks]
    for execution in (scattered, gathered):
        assert len(execution.rounds) == (size - 1).bit_length()
    assert scattered.chunks_sent[0] == size - 1


@pytest.mark.parametrize(("per_node", "nodes"), [(1, 1), (1, 5), (2, 1), (2, 2), (2, 3), (3, 2), (4, 4), (7, 3)])
def test_hierarchical_is_right_and_little_of_it_leaves_the_node(per_node: int, nodes: int) -> None:
    schedule, size = hierarchical(per_node), per_node * nodes
    check_all_reduce(schedule, size)
    for rank in range(size):
        exchanges = [each for step in schedule.steps(rank, size) for each in step.exchanges]
        across = [each for each in exchanges if each.to is not None and each.to // per_node != rank // per_node]
        assert sum(len(each.sent) for each in across) == 2 * (nodes - 1), "of so many chunks as there are ranks"


def test_hierarchical_ranks_must_fill_their_nodes() -> None:
    with pytest.raises(ValueError, match="5 ranks do not fill nodes of 2"):
        check_all_reduce(hierarchical(2), 5)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("segments", [1, 2, 5])
def test_a_segmented_ring_is_the_ring_in_smaller_messages(size: int, segments: int) -> None:
    execution = check_all_reduce(segmented(segments), size)
    assert execution.chunks_sent == [2 * (size - 1) * segments] * size


@pytest.mark.parametrize("size", [*range(1, 18), 33])
def test_a_bidirectional_ring_sends_half_of_a_chunk_to_both_neighbours_in_every_step(size: int) -> None:
    execution = check_all_reduce(BIDIRECTIONAL_RING, size)
    steps = 2 * (size - 1)
    assert execution.steps == [steps] * size
    assert len(execution.rounds) == steps, "both ways at the same time, not one after the other"
    over: Counter[tuple[int, int | None]] = Counter()
    for messages in execution.rounds:
        for rank, each in messages:
            over[rank, each.to] += len(each.sent)
    if size > 2:
        links = {(rank, (rank + way) % size) for rank in range(size) for way in (1, -1)}
        assert over == dict.fromkeys(links, steps), "of 2P chunks, over each link, each way"
    assert execution.chunks_sent == [2 * steps] * size, "of half the length: the bytes of the ring"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 16])
def test_reduce_scatter_leaves_rank_r_the_sum_of_chunk_r_plus_1(size: int) -> None:
    held = execute(REDUCE_SCATTER, size).held
    for rank in range(size):
        assert held[rank][(rank + 1) % size] == Counter(range(size))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 16])
def test_all_gather_spreads_what_reduce_scatter_left(size: int) -> None:
    execution = execute(ALL_GATHER, size, start=execute(REDUCE_SCATTER, size).held)
    assert all(chunk == Counter(range(size)) for chunks in execution.held for chunk in chunks)


@pytest.mark.parametrize("size", [*range(1, 18), 31, 33, 64])
def test_recursive_halving_and_doubling_give_each_rank_one_chunk_and_all_chunks(size: int) -> None:
    scattered = execute(HALVING_REDUCE_SCATTER, size)
    owned = [owned_after_halving(rank, size) for rank in range(size)]
    assert sorted(owned) == list(range(size))
    assert [scattered.held[rank][chunk] for rank, chunk in enumerate(owned)] == [Counter(range(size))] * size
    gathered = execute(DOUBLING_ALL_GATHER, size, start=scattered.held)
    assert all(chunk == Counter(range(size)) for chunks in gathered.held for chunk in chunks)
    core = power_of_two(size)
    rounds = core.bit_length() - 1 + (0 if size == core else 2)
    assert len(scattered.rounds) == len(gathered.rounds) == rounds
    if size == core:
        assert scattered.chunks_sent == gathered.chunks_sent == [size - 1] * size, "the bytes of the ring"
    for schedule in (HALVING_REDUCE_SCATTER, DOUBLING_ALL_GATHER):
        assert coefficients(schedule, size) == pytest.approx(coefficients(replace(schedule, critical=None), size))


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("size", [*range(1, 18), 31, 33, 64])
def test_a_double_binary_tree_is_right_in_two_depths_and_a_round_for_each_further_segment(
    size: int, segments: int
) -> None:
    execution = check_all_reduce(double_binary_tree(segments), size)
    depth = (size - 1).bit_length()
    assert len(execution.rounds) == (2 * depth + segments - 1 if size > 1 else 0)
    assert max(execution.chunks_sent) <= 4 * segments, "of half of the vector: the bytes of a long ring at most"
    for messages in execution.rounds:
        sent = Counter(rank for rank, each in messages if each.to is not None)
        received = Counter(rank for rank, each in messages if each.source is not None)
        assert max((sent | received).values()) <= 4


@pytest.mark.parametrize("size", [*range(2, 18), 64])
def test_who_is_an_inner_node_of_one_tree_is_a_leaf_of_the_other(size: int) -> None:
    inner = [
        {rank for rank in range(size) if trees.children(trees.place_in(tree, rank, size), size)} for tree in range(2)
    ]
    assert inner[0] & inner[1] == ({0} if size % 2 else set())
    for tree in range(2):
        assert [trees.rank_at(tree, trees.place_in(tree, rank, size), size) for rank in range(size)] == [*range(size)]
        for rank in range(size):
            place = trees.place_in(tree, rank, size)
            assert len(trees.children(place, size)) <= 2
            assert all(trees.parent(child, size) == place for child in trees.children(place, size))


@pytest.mark.parametrize("ranks", [8, 64])
def test_with_many_segments_a_double_binary_tree_has_a_trees_rounds_and_nearly_a_rings_bandwidth(ranks: int) -> None:
    alphas, lengths, adds = coefficients(double_binary_tree(100), ranks)
    assert alphas == 2 * (ranks.bit_length() - 1) + 99
    assert 2 * (ranks - 1) / ranks < lengths < 2.1
    assert adds < 1.1
    shortest = coefficients(double_binary_tree(1), ranks)
    assert shortest[0] == coefficients(TREE, ranks)[0]
    assert shortest[1] < coefficients(TREE, ranks)[1]


@pytest.mark.parametrize("aggregated", [1, 2, 4, 64])
@pytest.mark.parametrize("size", [*range(1, 18), 31, 33, 64])
def test_pat_gives_each_rank_its_chunk_and_all_chunks(size: int, aggregated: int) -> None:
    scattered = execute(pat_reduce_scatter(aggregated), size)
    assert [scattered.held[rank][rank] for rank in range(size)] == [Counter(range(size))] * size
    gathered = execute(pat_all_gather(aggregated), size, start=scattered.held)
    assert all(chunk == Counter(range(size)) for chunks in gathered.held for chunk in chunks)
    assert scattered.chunks_sent == gathered.chunks_sent == [size - 1] * size, "the fewest possible, for every P"
    messages = [aways for _, aways in pat.transfers(size, aggregated)]
    assert max(map(len, messages), default=0) <= aggregated
    if aggregated >= size:
        assert len(messages) == (size - 1).bit_length()
    elif aggregated == 1:
        assert len(messages) == size - 1
    elif size == power_of_two(size):
        assert len(messages) == aggregated.bit_length() - 1 + size // aggregated - 1


@pytest.mark.parametrize(("size", "aggregated"), [(64, 1), (64, 4), (33, 2), (64, 64)])
def test_pat_has_the_farthest_first_and_keeps_lg_p_messages_to_send_on(size: int, aggregated: int) -> None:
    """Chunks from far ranks that must be sent on to nearer ones are in a buffer."""
    transfers = list(pat.transfers(size, aggregated))
    assert transfers[0] == (power_of_two(size - 1), [0])
    arrives = {away + distance: at for at, (distance, aways) in enumerate(transfers) for away in aways}
    leaves = {away: at for at, (_, aways) in enumerate(transfers) for away in aways}  # for the last time
    buffered = [sum(arrives[away] <= now < leaves.get(away, 0) for away in arrives) for now in range(len(transfers))]
    assert 0 < max(buffered) <= aggregated * (size - 1).bit_length()


@pytest.mark.parametrize("size", [*range(1, 18), 31, 33, 64])
def test_an_all_to_all_takes_every_block_to_its_rank_at_the_cost_of_the_formula(size: int) -> None:
    execution = check_all_to_all(PAIRWISE, size)
    assert execution.steps == [size - 1] * size
    assert execution.chunks_sent == [size - 1] * size
    assert len(execution.rounds) == size - 1, "all ranks work in every round"
    assert coefficients(PAIRWISE, size) == pytest.approx((size - 1, (size - 1) / size, 0))

    execution = check_all_to_all(BRUCK, size)
    rounds = (size - 1).bit_length()
    assert execution.steps == [rounds] * size
    assert len(execution.rounds) == rounds
    assert execution.chunks_sent == [sum(distance.bit_count() for distance in range(size))] * size
    if size == power_of_two(size):
        assert coefficients(BRUCK, size) == pytest.approx((rounds, rounds / 2, 0))


def to_the_next(rank: int, size: int) -> Iterator[Exchange]:
    """Every step sends to the next rank, and not to the block's destination."""
    for step in PAIRWISE.steps(rank, size):
        yield replace(step, to=(rank + 1) % size, source=(rank - 1) % size)  # type: ignore[call-overload]


def one_bit_less(rank: int, size: int) -> Iterator[Step]:
    yield from list(BRUCK.steps(rank, size))[:-1]


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        (to_the_next, "wrong on 4 ranks: chunk 2 on rank 0 is the block of 3 for 1, not the block of 2 for 0"),
        (one_bit_less, "wrong on 4 ranks: chunk 2 on rank 0 is the block of 0 for 2, not the block of 2 for 0"),
    ],
)
def test_the_checker_finds_a_block_that_is_lost(steps: Steps, complaint: str) -> None:
    with pytest.raises(ScheduleError) as found:
        check_all_to_all(Schedule("wrong", steps, chunks=lambda size: size), 4)
    assert str(found.value) == complaint


@pytest.mark.parametrize("size", [2, 5])
def test_ring_talks_to_neighbours_only(size: int) -> None:
    for rank in range(size):
        for step in ring.all_reduce(rank, size):
            assert step.to == (rank + 1) % size
            assert step.source == (rank - 1) % size


def off_by_one(rank: int, size: int) -> Iterator[Exchange]:
    for step in ring.all_reduce(rank, size):
        wrong = (step.recv + 1) % size if step.recv is not None else None
        yield Exchange(step.send, step.to, wrong, step.source, step.reduce)


def one_step_short(rank: int, size: int) -> Iterator[Step]:
    yield from list(RING.steps(rank, size))[:-1]


def adds_twice(rank: int, size: int) -> Iterator[Exchange]:
    for step in ring.all_reduce(rank, size):
        yield Exchange(step.send, step.to, step.recv, step.source, reduce=True)


def send_first(rank: int, size: int) -> Iterator[Exchange]:
    for step in ring.all_reduce(rank, size):
        yield Exchange(send=step.send, to=step.to)
        yield Exchange(recv=step.recv, source=step.source, reduce=step.reduce)


def one_way_after_the_other(rank: int, size: int) -> Iterator[Exchange]:
    """Rank 0 does so; the others do both at once."""
    for step in BIDIRECTIONAL_RING.steps(rank, size):
        if rank == 0:
            yield from step.exchanges
        else:
            yield step  # type: ignore[misc]


def ways_swapped(rank: int, size: int) -> Iterator[Together]:
    """On two ranks both messages go to the same partner, and rank 1 lists them in the other order."""
    for step in BIDIRECTIONAL_RING.steps(rank, size):
        yield Together(step.exchanges[:: -1 if rank == 1 else 1])


def replaces_what_it_sends(rank: int, size: int) -> Iterator[Together]:
    """A chunk that arrives may be sent on before the rank's own chunk has left."""
    right, left = (rank + 1) % size, (rank - 1) % size
    yield Together((Exchange(send=0, to=right), Exchange(recv=0, source=left)))


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        (off_by_one, "wants chunk"),
        (one_step_short, "lacks the contributions"),
        (adds_twice, "too often"),
        (send_first, "deadlocks"),
        (one_way_after_the_other, "deadlocks"),
        (replaces_what_it_sends, "rank 0 replaces chunk 0 and uses it twice"),
    ],
)
def test_checker_finds_what_is_wrong(steps: object, complaint: str) -> None:
    schedule = Schedule("wrong", steps, chunks=lambda size: 2 * size)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match=complaint):
        check_all_reduce(schedule, 4)


def test_messages_between_the_same_two_ranks_pair_up_in_order() -> None:
    with pytest.raises(ScheduleError, match="rank 0 wants chunk 1 of 1, which sends chunk 2"):
        check_all_reduce(Schedule("wrong", ways_swapped, chunks=lambda size: 2 * size), 2)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [0, 2, 1]])
def test_as_many_messages_as_a_step_has_pair_up_in_order(order: list[int]) -> None:
    """Rank 0 sends rank 1 three chunks, and rank 1 lists them in this order."""

    def steps(rank: int, size: int) -> Iterator[Together]:
        if rank == 0:
            yield Together(tuple(Exchange(send=chunk, to=1) for chunk in range(3)))
        else:
            yield Together(tuple(Exchange(recv=chunk, source=0) for chunk in order))

    schedule = Schedule("three at once", steps, chunks=lambda size: 3)
    if order == [0, 1, 2]:
        assert execute(schedule, 2).held[1] == [Counter({0: 1})] * 3
    else:
        with pytest.raises(ScheduleError, match="rank 1 wants chunk"):
            execute(schedule, 2)


def all_with_all(rank: int, size: int) -> Iterator[Together]:
    """All ranks exchange everything in one step."""
    others = [other for other in range(size) if other != rank]
    yield Together(tuple(Exchange(0, other, 0, other, reduce=True) for other in others))


def test_two_sums_may_arrive_in_one_chunk_while_it_is_sent() -> None:
    execution = check_all_reduce(Schedule("all at once", all_with_all, chunks=lambda size: 1), 3)
    assert len(execution.rounds) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 12])
def test_an_algorithm_with_several_messages_in_a_step_is_folded_too(size: int) -> None:
    execution = check_all_reduce(folded(Schedule("all at once", all_with_all, chunks=lambda size: 1)), size)
    assert len(execution.rounds) == (1 if size == power_of_two(size) else 3)


@pytest.mark.parametrize("size", [*range(1, 14), 17])
def test_a_folded_algorithm_has_its_name_its_chunks_and_a_rank_that_takes_as_long_as_all(size: int) -> None:
    schedule = folded(Schedule("halves", halving_doubling.all_reduce, chunks=lambda size: size))
    execution = check_all_reduce(schedule, size)
    assert execution.chunks_sent == execute(HALVING_DOUBLING, size).chunks_sent
    assert (schedule.name, schedule.chunks(size)) == ("halves", power_of_two(size))
    assert coefficients(schedule, size) == pytest.approx(coefficients(replace(schedule, critical=None), size))


def received_twice(rank: int, size: int) -> Iterator[Exchange]:
    """Rank 0 adds rank 1's vector twice, and never that of rank 2."""
    for _ in range(2):
        if rank == 0:
            yield Exchange(recv=0, source=1, reduce=True)
        elif rank == 1:
            yield Exchange(send=0, to=0)


def both_receive_first(rank: int, size: int) -> Iterator[Exchange]:
    yield Exchange(recv=0, source=1 - rank)
    yield Exchange(send=0, to=1 - rank)


@pytest.mark.parametrize(
    ("steps", "size", "complaint"),
    [
        (received_twice, 3, "wrong on 3 ranks: chunk 0 on rank 0 lacks the contributions of ranks [2] "
                            "and counts those of ranks [1] too often"),
        (both_receive_first, 2, "wrong on 2 ranks deadlocks: rank 0: take chunk 0 from 1; rank 1: take chunk 0 from 0"),
    ],
)  # fmt: skip
def test_the_checker_says_where_and_whose(steps: Steps, size: int, complaint: str) -> None:
    with pytest.raises(ScheduleError) as found:
        check_all_reduce(Schedule("wrong", steps, chunks=lambda size: 1), size)
    assert str(found.value) == complaint


def test_a_step_in_words() -> None:
    both = Exchange(send=0, to=4, recv=2, source=3, reduce=True, count=2)
    assert str(both) == "send chunks 0 to 1 to 4, add chunks 2 to 3 from 3"
    assert str(Exchange(recv=5, source=1, count=3)) == "take chunks 5 to 7 from 1"
    swapped = Exchange(send=1, to=4, recv=1, source=3, offsets=(0, 2, 4))
    assert str(swapped) == "send chunks 1, 3 and 5 to 4, take chunks 1, 3 and 5 from 3"
    one_way = (Exchange(send=1, to=2), Exchange(recv=0, source=2))
    assert str(Together(one_way)) == "(send chunk 1 to 2) and (take chunk 0 from 2)"


@given(length=st.integers(0, 10_000), chunks=st.integers(1, 64))
def test_chunks_cover_the_vector_and_differ_by_at_most_one(length: int, chunks: int) -> None:
    slices = chunk_slices(length, chunks)
    assert [row for part in slices for row in range(part.start, part.stop)] == list(range(length))
    sizes = [part.stop - part.start for part in slices]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_every_schedule_with_a_name_can_be_run(name: str, size: int) -> None:
    schedule, _ = SCHEDULES[name]
    execution = execute(schedule, size)
    assert sum(execution.chunks_sent) >= size - 1, "nobody is left out"
