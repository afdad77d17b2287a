"""Graphs over the ranks: their edges, their connectedness, and errors in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.decentralised.graph_file import parse, read
from farandole.decentralised.topologies import TOPOLOGIES, Topology, check_connected, distances, topology
from farandole.errors import UsageError

SIZES = range(1, 18)


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("ranks", SIZES)
def test_every_graph_is_connected_and_as_many_are_heard_as_sent_to(name: str, ranks: int) -> None:
    graph = topology(name, ranks)
    assert (graph.name, graph.ranks) == (name, ranks)
    check_connected(graph)
    for number, edges in enumerate(graph.rounds):
        assert all(0 <= source < ranks and 0 <= to < ranks and source != to for source, to in edges)
        sent = [len(graph.destinations(rank, number)) for rank in range(ranks)]
        heard = [len(graph.sources(rank, number)) for rank in range(ranks)]
        assert sent == heard == [sent[0]] * ranks, "all these graphs are regular"
        assert sum(sent) == len(edges)


@pytest.mark.parametrize(
    ("name", "degrees"),  # on 1, 2, 3, 4, 7, 8, 9, 16 ranks
    [
        ("ring", [0, 1, 2, 2, 2, 2, 2, 2]),
        ("torus", [0, 1, 2, 2, 2, 3, 4, 4]),  # 2 × 2 has no second way round; 2 × 4 has one; 7 is a ring
        ("exponential", [0, 1, 2, 2, 3, 3, 4, 4]),
        ("one-peer-exponential", [0, 1, 1, 1, 1, 1, 1, 1]),
        ("complete", [0, 1, 2, 3, 6, 7, 8, 15]),
    ],
)
def test_degrees(name: str, degrees: list[int]) -> None:
    sizes = [1, 2, 3, 4, 7, 8, 9, 16]
    assert [len(topology(name, ranks).destinations(0, 0)) for ranks in sizes] == degrees


@pytest.mark.parametrize(("ranks", "rows"), [(6, 2), (10, 2), (12, 3), (15, 3), (20, 4)])
def test_a_torus_is_as_nearly_square_as_the_number_of_ranks_allows(ranks: int, rows: int) -> None:
    """So the farthest rank is half the rows and half the columns away."""
    farthest = max(distances(topology("torus", ranks).edges(0)).values())
    assert farthest == rows // 2 + ranks // rows // 2


def test_who_talks_to_whom() -> None:
    assert topology("ring", 5).destinations(0, 3) == topology("ring", 5).sources(0, 3) == (1, 4)
    assert topology("torus", 9).destinations(4, 0) == (1, 3, 5, 7), "up, left, right, down of the middle"
    assert topology("exponential", 8).destinations(6, 0) == (0, 2, 7)
    assert topology("exponential", 8).sources(6, 0) == (2, 4, 5)
    one_peer = topology("one-peer-exponential", 8)
    assert [one_peer.destinations(6, number) for number in range(4)] == [(7,), (0,), (2,), (7,)]


def test_distances_and_pairs() -> None:
    graph = topology("ring", 6)
    assert distances(graph.edges(0)) == {0: 0, 1: 1, 5: 1, 2: 2, 4: 2, 3: 3}
    assert topology("one-peer-exponential", 3).both_ways == topology("complete", 3).both_ways


def test_a_graph_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "graph"
    file.write_text("# a star\n0 1\n\n0 2   # and one way:\n1>2\n")
    graph = read(file, 3)
    assert graph.rounds == (frozenset({(0, 1), (1, 0), (0, 2), (2, 0), (1, 2)}),)
    assert parse("", 1, "nothing").rounds == (frozenset(),)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0 1 2", "line 1: '0 1 2' is no edge: write 0 1 (both ways) or 0 > 1 (one way)"),
        ("0 1\n2 - 3", "line 2: '2 - 3' is no edge"),
        ("0 1\n0 4", "line 2: there is no rank 4; ranks are 0 to 3"),
        ("1 1", "line 1: rank 1 needs no edge to itself"),
        ("0 1\n2 3", "has no way from rank 0 to rank 2: add an edge"),
        ("0 > 1\n1 > 2\n2 > 3", "has no way from rank 1 to rank 0: add an edge"),
        ("", "has no way from rank 0 to rank 1"),
    ],
)
def test_what_is_no_connected_graph_is_refused_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text, 4, "--graph file")
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be read \(No such file or directory\): give a text file"):
        read(tmp_path / "none", 2)
    (tmp_path / "picture").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is no text"):
        read(tmp_path / "picture", 2)


def test_rounds_that_connect_only_together_do() -> None:
    apart = Topology("two rounds", 3, (frozenset({(0, 1), (1, 0)}), frozenset({(1, 2), (2, 1)})))
    check_connected(apart)
    with pytest.raises(UsageError):
        check_connected(Topology("the first alone", 3, apart.rounds[:1]))
