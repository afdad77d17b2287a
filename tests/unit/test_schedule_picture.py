"""A schedule's picture shows each message of each step, and every chunk's content after it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import FancyArrowPatch, Rectangle

from farandole.collectives import ring
from farandole.collectives.all_to_all import BRUCK, PAIRWISE
from farandole.collectives.bidirectional_ring import BIDIRECTIONAL_RING
from farandole.collectives.central import CENTRAL
from farandole.collectives.checker import ScheduleError, execute
from farandole.collectives.ring import REDUCE_SCATTER, RING
from farandole.collectives.steps import Exchange, Schedule
from farandole.errors import UsageError
from farandole.report import schedule_picture

SIZES = range(1, schedule_picture.MOST_RANKS + 1)


def titles(figure: Figure) -> list[str]:
    return [title for axes in figure.axes if (title := axes.get_title())]


def arrows(figure: Figure, title: str) -> int:
    panel = next(axes for axes in figure.axes if axes.get_title() == title)
    return sum(isinstance(patch, FancyArrowPatch) for patch in panel.patches)


@pytest.mark.parametrize(
    "schedule", [RING, CENTRAL, REDUCE_SCATTER, BIDIRECTIONAL_RING, PAIRWISE, BRUCK], ids=lambda schedule: schedule.name
)
@pytest.mark.parametrize("size", SIZES)
def test_replaying_the_rounds_ends_where_the_checker_ended(schedule: Schedule, size: int) -> None:
    execution = execute(schedule, size)
    states = schedule_picture.replay(execution.rounds, schedule.chunks(size), size)
    assert len(states) == len(execution.rounds) + 1
    assert states[0] == [[Counter({rank: 1})] * schedule.chunks(size) for rank in range(size)]
    assert states[-1] == execution.held


def test_replaying_shows_what_is_held_in_between() -> None:
    after_first = schedule_picture.replay(execute(RING, 3).rounds, 3, 3)[1]
    assert after_first[1] == [Counter({0: 1, 1: 1}), Counter({1: 1}), Counter({1: 1})]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_ring_has_a_panel_for_the_start_and_one_for_each_step(size: int) -> None:
    assert titles(schedule_picture.figure(RING, size)) == [
        "start: each has its own part",
        *(f"step {step}: send and add" for step in range(size - 1)),
        *(f"step {step}: send and copy" for step in range(size - 1, 2 * (size - 1))),
    ]


def test_each_message_has_its_arrow() -> None:
    around = schedule_picture.figure(RING, 4)
    # The one from the last rank to the first is drawn in two parts, at the two edges.
    assert [arrows(around, title) for title in titles(around)] == [0, 5, 5, 5, 5, 5, 5]
    both_ways = schedule_picture.figure(BIDIRECTIONAL_RING, 4)
    assert [arrows(both_ways, title) for title in titles(both_ways)] == [0, *[10] * 6], "and one at each edge each way"
    to_the_centre = schedule_picture.figure(CENTRAL, 4)
    assert [arrows(to_the_centre, title) for title in titles(to_the_centre)] == [0, 1, 1, 1, 1, 1, 1]


def test_what_is_counted_twice_is_hatched() -> None:
    def one_step_too_many(rank: int, size: int) -> Iterator[Exchange]:
        yield from ring.reduce_scatter(rank, size)
        right, left = (rank + 1) % size, (rank - 1) % size
        yield Exchange(send=(rank + 1) % size, to=right, recv=rank, source=left, reduce=True)

    def hatched(schedule: Schedule) -> bool:
        panels = schedule_picture.figure(schedule, 3).axes
        return any(isinstance(patch, Rectangle) and patch.get_hatch() for axes in panels for patch in axes.patches)

    assert hatched(Schedule("wrong", one_step_too_many, chunks=lambda size: size))
    assert not hatched(RING)


def test_a_deadlock_is_not_drawn_but_named() -> None:
    def everybody_waits(rank: int, size: int) -> Iterator[Exchange]:
        yield Exchange(recv=0, source=(rank + 1) % size)

    with pytest.raises(ScheduleError, match="deadlocks"):
        schedule_picture.figure(Schedule("stuck", everybody_waits, chunks=lambda size: 1), 3)


@pytest.mark.parametrize("size", [0, 9])
def test_too_many_ranks_to_tell_apart_are_refused(size: int) -> None:
    with pytest.raises(UsageError, match="give 1 to 8"):
        schedule_picture.figure(RING, size)


def test_the_picture_is_written(tmp_path: Path) -> None:
    file = schedule_picture.draw(RING, 3, tmp_path / "ring.png")
    height, width, _ = imread(file).shape
    assert 600 < width < 1300
    assert 300 < height < 1300
    assert file.stat().st_size < 150_000


def test_drawing_leaves_pyplot_alone() -> None:
    """Its global state would grow with every picture, and it would choose a window system."""
    code = (
        "import sys; from farandole.collectives.ring import RING; from farandole.report import schedule_picture;"
        "schedule_picture.figure(RING, 3); sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
