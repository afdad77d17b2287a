"""The key space: ranges, their servers, and the keys that move when a server joins or leaves."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from itertools import pairwise
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.errors import UsageError
from farandole.parameter_server.keys import (
    ASSIGNMENTS,
    HashRing,
    KeyRange,
    assign_by_hashing,
    assign_equally,
    cut,
    imbalance,
    joined,
    moved,
    moves,
)

KEYS = range(10_000)
server_numbers = st.lists(st.integers(0, 1000), min_size=1, max_size=12, unique=True)


def share_moved(before: Callable[[int], int], after: Callable[[int], int]) -> float:
    """Return the part of KEYS that changes its server."""
    return sum(before(key) != after(key) for key in KEYS) / len(KEYS)


@given(st.integers(1, 5000), st.integers(1, 300))
def test_ranges_are_contiguous_and_covering_and_of_equal_length(keys: int, ranges: int) -> None:
    parts = cut(keys, ranges)
    assert len(parts) == min(keys, ranges)
    assert (parts[0].start, parts[-1].stop) == (0, keys)
    assert all(left.stop == right.start for left, right in pairwise(parts))
    lengths = [len(part) for part in parts]
    assert 1 <= max(lengths) <= min(lengths) + 1


@pytest.mark.parametrize(("keys", "ranges"), [(10, 0), (10, -1), (0, 1), (-1, 1)])
def test_impossible_ranges_are_refused(keys: int, ranges: int) -> None:
    with pytest.raises(UsageError, match="there must be at least 1"):
        cut(keys, ranges)


@pytest.mark.parametrize("name", ASSIGNMENTS)
@given(st.integers(1, 2000), st.integers(1, 100), server_numbers)
def test_every_key_has_one_server(name: str, keys: int, ranges: int, servers: list[int]) -> None:
    assignment = ASSIGNMENTS[name](cut(keys, ranges), servers)
    assert set(assignment) == set(servers)
    assert all(parts == sorted(parts) for parts in assignment.values())
    held = [key for parts in assignment.values() for part in parts for key in range(part.start, part.stop)]
    assert sorted(held) == list(range(keys))


@given(st.integers(1, 2000), st.integers(1, 100), server_numbers)
def test_equal_assignment_is_balanced_and_one_run_per_server(keys: int, ranges: int, servers: list[int]) -> None:
    assignment = assign_equally(cut(keys, ranges), servers)
    counts = [len(assignment[server]) for server in servers]
    assert max(counts) <= min(counts) + 1
    in_order = [part for server in servers for part in assignment[server]]
    assert in_order == sorted(in_order), "each server's ranges lie together, in the servers' order"


def test_equal_assignment_of_as_many_ranges_each_is_perfectly_balanced() -> None:
    assert imbalance(assign_equally(cut(6400, 64), range(4))) == 1.0


@pytest.mark.parametrize("name", ASSIGNMENTS)
@pytest.mark.parametrize("servers", [[], [1, 2, 1]])
def test_impossible_servers_are_refused(name: str, servers: list[int]) -> None:
    with pytest.raises(UsageError, match="at least 1, each only once"):
        ASSIGNMENTS[name](cut(10, 2), servers)


def test_a_key_belongs_to_the_next_point_clockwise() -> None:
    """Against the definition, written out: the smallest distance clockwise on a circle of 2⁶⁴ points."""

    def point(text: str) -> int:
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")

    servers, virtual_nodes = (3, 5, 8), 4
    ring = HashRing(servers, virtual_nodes)
    nodes = [(point(f"server {server}, node {i}"), server) for server in servers for i in range(virtual_nodes)]
    for key in range(1000):
        _, nearest = min(((place - point(f"key {key}")) % 2**64, server) for place, server in nodes)
        assert ring.server_of(key) == nearest


def test_the_mapping_is_the_same_in_every_process_and_version() -> None:
    """Every rank computes it separately, and a checkpoint may be read much later."""
    ring = HashRing(range(4))
    assert [ring.server_of(key) for key in range(16)] == [3, 0, 3, 3, 1, 2, 1, 0, 0, 1, 2, 0, 1, 2, 2, 1]


def test_the_order_of_the_servers_does_not_matter() -> None:
    assert share_moved(HashRing([4, 1, 7]).server_of, HashRing([7, 4, 1]).server_of) == 0


@pytest.mark.parametrize("servers", [1, 2, 4, 8, 16])
def test_a_new_server_takes_its_share_of_the_keys_and_no_others_move(servers: int) -> None:
    before = HashRing(range(servers))
    after = before.with_server(servers)
    gone = [key for key in KEYS if before.server_of(key) != after.server_of(key)]
    assert {after.server_of(key) for key in gone} == {servers}
    share = 1 / (servers + 1)
    assert 0.6 * share < len(gone) / len(KEYS) < 1.4 * share
    assert servers in after.servers
    assert servers not in before.servers, "the ring before is as it was"


@pytest.mark.parametrize("servers", [2, 4, 8, 16])
def test_when_a_server_leaves_only_its_keys_move_and_to_all_the_others(servers: int) -> None:
    before = HashRing(range(servers))
    after = HashRing(range(1, servers))
    gone = [key for key in KEYS if before.server_of(key) != after.server_of(key)]
    assert {before.server_of(key) for key in gone} == {0}
    assert {after.server_of(key) for key in gone} == set(range(1, servers)), "not one neighbour bears it all"
    assert 0.6 / servers < len(gone) / len(KEYS) < 1.4 / servers


@pytest.mark.parametrize("servers", [2, 4, 8, 16])
def test_plain_hashing_would_move_nearly_everything(servers: int) -> None:
    """The purpose of consistent hashing; the bounds above would not hold for this assignment."""

    def hashed(key: int) -> int:
        return int.from_bytes(blake2b(str(key).encode(), digest_size=8).digest(), "big")

    plain = share_moved(lambda key: hashed(key) % servers, lambda key: hashed(key) % (servers + 1))
    assert plain == pytest.approx(servers / (servers + 1), abs=0.03)
    assert plain > 1.4 / (servers + 1)


@given(server_numbers, st.integers(1001, 2000))
def test_a_server_that_joins_and_leaves_changes_nothing(servers: list[int], guest: int) -> None:
    ring = HashRing(servers, virtual_nodes=8)
    again = HashRing((each for each in ring.with_server(guest).servers if each != guest), virtual_nodes=8)
    assert all(ring.server_of(key) == again.server_of(key) for key in range(100))


def test_more_virtual_nodes_balance_better() -> None:
    ranges = cut(20_000, 20_000)
    few, some, many = (
        mean(imbalance(assign_by_hashing(ranges, range(servers), nodes)) for servers in (2, 4, 8))
        for nodes in (1, 16, 256)
    )
    assert few > 2 > some > many
    assert many < 1.15


@pytest.mark.parametrize("join", [2, 4, 8])
def test_hashed_ranges_move_less_than_equal_ones(join: int) -> None:
    ranges = cut(50_000, 5_000)
    shares = {
        name: moved(assign(ranges, range(join)), assign(ranges, range(join + 1))) / 50_000
        for name, assign in ASSIGNMENTS.items()
    }
    assert shares["equal"] == pytest.approx(0.5, abs=0.01)
    assert 0.6 / (join + 1) < shares["hashing"] < 1.4 / (join + 1)


@pytest.mark.parametrize("servers", [*range(1, 12), 40])
def test_a_server_that_comes_or_goes_moves_its_own_share_and_nothing_else(servers: int) -> None:
    ranges = cut(40_000, 4_000)
    few, many = (assign_by_hashing(ranges, range(count)) for count in (servers, servers + 1))
    coming, going = moves(few, many), moves(many, few)
    assert {to for _, to in coming} == {servers} == {source for source, _ in going}
    assert {(to, source): parts for (source, to), parts in coming.items()} == going, "and back again"
    keys = sum(len(part) for parts in coming.values() for part in parts)
    assert keys == moved(few, many) == sum(map(len, many[servers]))
    assert 0.6 / (servers + 1) < keys / 40_000 < 1.4 / (servers + 1)


def test_moved_counts_keys_whatever_the_ranges() -> None:
    before = {0: [KeyRange(0, 4), KeyRange(4, 6)], 1: [KeyRange(6, 10)]}
    assert moved(before, before) == 0
    assert moved(before, {0: [KeyRange(0, 6)], 1: [KeyRange(6, 10)]}) == 0, "another cut is no move"
    assert moved(before, {0: [KeyRange(0, 5)], 1: [KeyRange(5, 10)]}) == 1
    assert (
        moved(before, {0: [KeyRange(1, 2), KeyRange(5, 7)], 1: [KeyRange(0, 1), KeyRange(2, 5), KeyRange(7, 10)]}) == 5
    )
    assert moved(before, {1: [KeyRange(0, 10)]}) == 6, "server 0 is gone"


def test_imbalance_is_the_largest_share_over_the_mean() -> None:
    assert imbalance({0: [KeyRange(0, 3)], 1: [KeyRange(3, 4)]}) == 1.5
    assert imbalance({0: [KeyRange(0, 4)], 1: []}) == 2.0


def test_impossible_rings_are_refused() -> None:
    ring = HashRing([0])
    for make, message in (
        (lambda: HashRing([]), "at least 1 server"),
        (lambda: HashRing([1, 1]), "only once"),
        (lambda: HashRing([0], virtual_nodes=0), "0 virtual nodes"),
        (lambda: ring.with_server(0), "only once"),
    ):
        with pytest.raises(UsageError, match=message):
            make()


def test_joined_ranges_are_the_same_keys_in_fewer_pieces() -> None:
    ranges = [KeyRange(0, 3), KeyRange(3, 5), KeyRange(7, 8), KeyRange(8, 9), KeyRange(12, 13)]
    assert joined(ranges) == [KeyRange(0, 5), KeyRange(7, 9), KeyRange(12, 13)]
    assert joined(cut(1000, 7)) == [KeyRange(0, 1000)]
    assert joined([]) == []
