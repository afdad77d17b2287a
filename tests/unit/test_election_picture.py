"""The picture of an election: every message an arrow, every lost one a cross, every leader a star."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from farandole.errors import UsageError
from farandole.recovery.election import ELECTIONS, about, choose
from farandole.recovery.election.network import Network
from farandole.report import election_picture


def markers(drawing: Figure, marker: str) -> int:
    return sum(line.get_marker() == marker for line in drawing.axes[0].get_lines())


def elected(name: str, members: int, *dead: int) -> Network:
    network = Network(choose(name, range(members), dead))
    for number in dead:
        network.kill(number)
    network.start(0)
    network.run(until=20)
    return network


@pytest.mark.parametrize("name", ELECTIONS)
@pytest.mark.parametrize("dead", [(), (4,), (1, 4)])
def test_what_is_drawn_is_what_happened(name: str, dead: tuple[int, ...]) -> None:
    network = elected(name, 5, *dead)
    drawing = election_picture.figure(network)
    arrows = [text for text in drawing.axes[0].texts if getattr(text, "arrow_patch", None)]
    assert len(arrows) == len(network.messages) == network.sent.total()
    lost = sum(arrived is None for _, arrived, _ in network.messages)
    assert markers(drawing, "x") == lost
    assert (lost > 0) == (bool(dead) and name != "ring-election")
    assert markers(drawing, "*") == len(network.elected) == 1
    assert [text.get_text() for text in drawing.axes[0].texts if "dead" in text.get_text()] == [
        f"{number}\ndead" for number in dead
    ]
    legend = [text.get_text() for text in drawing.legends or drawing.axes[0].get_legend().get_texts()]
    assert legend == [f"{kind}: {number}" for kind, number in network.sent.items()]


def test_an_election_of_one_is_a_picture_too(tmp_path: Path) -> None:
    assert election_picture.draw(elected("bully-election", 1), tmp_path / "one.png").stat().st_size > 1000


def test_more_messages_than_can_be_told_apart_are_refused() -> None:
    with pytest.raises(UsageError, match=r"a picture of \d+ messages: take fewer members or a shorter time"):
        election_picture.figure(elected("bully-election", 20))


def test_each_says_what_it_is() -> None:
    assert {name: about(name).split(":")[0] for name in ELECTIONS} == {
        "bully-election": "The bully election",
        "ring-election": "The election on a ring",
        "raft-election": "Raft's election",
    }
