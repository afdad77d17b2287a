"""A collective schedule drawn step by step: which rank sends which chunk to which, and the result.

One panel per step. Ranks stand side by side, each with its chunks below it; a chunk shows one
stripe for every rank whose contribution it holds, in that rank's colour. What is drawn is what
`checker.execute` ran, so a wrong schedule is drawn as wrong as it is.

    schedule_picture.draw(RING, 4, Path("ring.png"))
    schedule_picture.draw(RING, 4, Path("ring.gif"))     one panel after the other, a step a second
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.patheffects import withStroke

from farandole.collectives.checker import Contributions, execute
from farandole.collectives.steps import Exchange, Schedule
from farandole.errors import UsageError
from farandole.report.colours import SERIES, YELLOW

INK, PALE, FAINT = "#222222", "#E8E8E8", "#888888"
RANK_COLOURS = (*SERIES, "#555555")
MOST_RANKS = len(RANK_COLOURS)
PANEL_IN = 2.75  # width of a panel where four stand side by side
GAP = 0.62  # between two ranks, in widths of a chunk: room for an arrow
ROW_GAP = 0.2
MOVING_IN, STEPS_PER_S = 4.5, 1
HEADING = 0.85  # above the chunks: room for the rank's number

Round = list[tuple[int, Exchange]]
Held = list[list[Contributions]]
Scene = tuple[str, Round, Held]  # a panel's title, its messages, and what is held after them


def draw(schedule: Schedule, size: int, file: Path) -> Path:
    """Draw `schedule` on `size` ranks as a picture in `file`; a .gif moves.

    Raises:
        UsageError, ScheduleError: as `figure`.
    """
    if file.suffix == ".gif":
        animation(schedule, size).save(file, PillowWriter(fps=STEPS_PER_S), dpi=100)
    else:
        figure(schedule, size).savefig(file, dpi=100)
    return file


def figure(schedule: Schedule, size: int) -> Figure:
    """A key to read it, a panel for the start, and one for each step.

    Raises:
        UsageError: more ranks than there are colours to tell apart.
        ScheduleError: the schedule cannot be run: its ranks wait for each other.
    """
    scenes = _scenes(schedule, size)
    panels = len(scenes) + 1
    columns = panels if panels <= 4 else next((count for count in (4, 5, 3) if panels % count == 0), 4)
    rows = -(-panels // columns)
    width, height = _extent(size)
    panel_in = PANEL_IN * 4 / max(columns, 4)
    size_in = (columns * panel_in, rows * (panel_in * height / width + 0.35))
    drawing = Figure(figsize=size_in, layout="constrained")
    grid = drawing.subplots(rows, columns, squeeze=False).flatten()
    for axes in grid:
        _blank(axes, size)
    _key(grid[0], schedule, size)
    for axes, scene in zip(grid[1:], scenes, strict=False):
        _panel(axes, *scene, size)
    _number_chunks(grid[1], schedule.chunks(size), size)
    return drawing


def animation(schedule: Schedule, size: int) -> FuncAnimation:
    """The same panels, one after the other in one place.

    Raises:
        UsageError, ScheduleError: as `figure`.
    """
    scenes = _scenes(schedule, size)
    width, height = _extent(size)
    drawing = Figure(figsize=(MOVING_IN, MOVING_IN * height / width + 0.45), layout="constrained")
    axes = drawing.subplots()

    def show(number: int) -> list[Artist]:
        axes.clear()
        _blank(axes, size)
        _panel(axes, *scenes[number], size)
        _number_chunks(axes, schedule.chunks(size), size)
        return []

    frames = [0, *range(len(scenes)), len(scenes) - 1]  # the first and the last stay for longer
    return FuncAnimation(drawing, show, frames, init_func=list, cache_frame_data=False)


def _extent(size: int) -> tuple[float, float]:
    """Return a panel's width and height, in widths of a chunk."""
    return size * (1 + GAP) + GAP, size * (1 + ROW_GAP) + HEADING


def _blank(axes: Axes, size: int) -> None:
    width, height = _extent(size)
    axes.set_axis_off()
    axes.set(aspect="equal", xlim=(-GAP, width - GAP), ylim=(height - HEADING, -HEADING))


def _scenes(schedule: Schedule, size: int) -> list[Scene]:
    """Return the start, and each round with what is held after it."""
    if not 1 <= size <= MOST_RANKS:
        raise UsageError(f"a picture of {size} ranks: give 1 to {MOST_RANKS}, more cannot be told apart")
    rounds = execute(schedule, size).rounds
    states = replay(rounds, schedule.chunks(size), size)
    scenes: list[Scene] = [("start: each has its own part", [], states[0])]
    for number, (messages, state) in enumerate(zip(rounds, states[1:], strict=True)):
        verb = "add" if any(step.reduce for _, step in messages) else "copy"
        scenes.append((f"step {number}: send and {verb}", messages, state))
    return scenes


def replay(rounds: list[Round], chunks: int, size: int) -> list[Held]:
    """Return what every chunk holds at the start and after each round: held[rank][chunk], like the checker's."""
    held: Held = [[Counter({rank: 1}) for _ in range(chunks)] for rank in range(size)]
    states = [held]
    for messages in rounds:
        after = [list(row) for row in held]
        for rank, step in messages:
            if step.source is not None:
                for chunk in step.received:
                    arriving = held[step.source][chunk]
                    after[rank][chunk] = held[rank][chunk] + arriving if step.reduce else arriving
        states.append(held := after)
    return states


def _panel(axes: Axes, title: str, messages: Round, held: Held, size: int) -> None:
    chunks = len(held[0])
    axes.set_title(title, fontsize=9.5, color=INK, pad=3)
    for rank in range(size):
        _number(axes, rank)
        for chunk in range(chunks):
            left, top, height = _place(rank, chunk, chunks, size)
            _chunk(axes, (left, top, 1, height), held[rank][chunk], size)
    in_a_ring = all(step.to in ((rank + 1) % size, (rank - 1) % size) for rank, step in messages)
    in_a_ring = in_a_ring and {rank for rank, _ in messages} == set(range(size))
    alike: dict[
        Sequence[int], list[tuple[int, int]]
    ] = {}  # messages that carry the same chunks must not hide each other
    for rank, step in messages:
        if step.to is not None:
            alike.setdefault(step.sent, []).append((rank, step.to))
    for sent, pairs in alike.items():
        (_, top, _), (_, bottom, height) = (_place(0, chunk, chunks, size) for chunk in (sent[0], sent[-1]))
        for number, (rank, to) in enumerate(sorted(pairs, key=lambda pair: (min(pair), pair)), start=1):
            y = top + (bottom + height - top) * number / (len(pairs) + 1)
            _message(axes, rank, to, y, size, in_a_ring)


def _place(rank: int, chunk: int, chunks: int, size: int) -> tuple[float, float, float]:
    """Left, top and height of a chunk: the vector is as tall whatever number of chunks it is cut into."""
    height = (size * (1 + ROW_GAP) - chunks * ROW_GAP) / chunks
    return rank * (1 + GAP), chunk * (height + ROW_GAP), height


def _middle(chunk: int, chunks: int, size: int) -> float:
    _, top, height = _place(0, chunk, chunks, size)
    return top + height / 2


def _number_chunks(axes: Axes, chunks: int, size: int) -> None:
    for chunk in range(chunks):
        y = _middle(chunk, chunks, size) - 0.06  # above an arrow that comes from the last rank of a ring
        axes.text(-0.2, y, str(chunk), ha="right", va="bottom", fontsize=8, color=FAINT)


def _number(axes: Axes, rank: int) -> None:
    colour = RANK_COLOURS[rank]
    axes.text(rank * (1 + GAP) + 0.5, -0.45, str(rank), ha="center", va="center", fontsize=8, weight="bold",
              color=INK if colour == YELLOW else "white",
              bbox={"boxstyle": "round,pad=0.2", "facecolor": colour, "linewidth": 0})  # fmt: skip


def _chunk(axes: Axes, place: tuple[float, float, float, float], contributions: Contributions, size: int) -> None:
    """Stripes for what a chunk holds; hatched what it holds twice; framed once every rank is in it."""
    left, top, width, height = place
    axes.add_patch(Rectangle((left, top), width, height, facecolor=PALE, linewidth=0))
    for rank, times in contributions.items():
        axes.add_patch(Rectangle((left + width * rank / size, top), width / size, height, linewidth=0,
                                 facecolor=RANK_COLOURS[rank], edgecolor="white",
                                 hatch="/////" if times > 1 else None))  # fmt: skip
    if contributions == Counter(range(size)):
        axes.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=INK,
                                 linewidth=1.8 * _pen(size)))  # fmt: skip


def _message(axes: Axes, source: int, to: int, y: float, size: int, in_a_ring: bool) -> None:
    """Draw an arrow between two ranks; in a ring, an arrow between the last and the first rank leaves at one edge and
    enters at the other."""
    pen = _pen(size)
    leaves, arrives = source * (1 + GAP) + 1.06, to * (1 + GAP) - 0.06
    if to == source + 1:
        _arrow(axes, (leaves, y), (arrives, y), pen)
    elif to == source - 1:
        _arrow(axes, (leaves - 1.12, y), (arrives + 1.12, y), pen)
    elif in_a_ring and to < source:  # to the right, over the edge
        _arrow(axes, (leaves, y), (leaves + GAP - 0.1, y), pen, style="-")
        _arrow(axes, (arrives - GAP + 0.1, y), (arrives, y), pen)
    elif in_a_ring:
        _arrow(axes, (leaves - 1.12, y), (leaves - 1.12 - GAP + 0.1, y), pen, style="-")
        _arrow(axes, (arrives + 1.12 + GAP - 0.1, y), (arrives + 1.12, y), pen)
    else:
        _arrow(axes, (leaves - 0.56, y), (arrives + 0.56, y), pen, bend=0.25 if to < source else -0.25)


def _pen(size: int) -> float:
    """Return the width of lines: thinner where many ranks make the chunks small."""
    return 1.0 if size <= 5 else 0.65


def _arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    pen: float = 1.0,
    style: str = "-|>",
    bend: float = 0.0,
) -> None:
    over_chunks = [withStroke(linewidth=3.5, foreground="white")] if bend else None
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle=style, mutation_scale=9 * pen, color=INK, shrinkA=0,
                                   shrinkB=0, linewidth=1.4 * pen, connectionstyle=f"arc3,rad={bend}",
                                   path_effects=over_chunks))  # fmt: skip


def _key(axes: Axes, schedule: Schedule, size: int) -> None:
    axes.set(aspect="auto", xlim=(0, 10), ylim=(10, 0))
    ranks = "1 rank" if size == 1 else f"{size} ranks"
    axes.text(0, 0.6, f"{schedule.name}, {ranks}", fontsize=12, weight="bold", color=INK, va="center")
    axes.text(0, 2.6, "a column: a rank; in it, its chunks", fontsize=8.5, color=INK, va="center")
    some = sorted({0, size - 1})
    _chunk(axes, (0, 3.9, 1.1, 1), Counter(some), size)
    _chunk(axes, (0, 5.7, 1.1, 1), Counter(range(size)), size)
    _arrow(axes, (0, 8.0), (1.1, 8.0))
    meanings = {4.4: f"the sum of {' and '.join(map(str, some))}", 6.2: "finished: the sum of all",
                8.0: "a message of this step"}  # fmt: skip
    for y, meaning in meanings.items():
        axes.text(1.6, y, meaning, fontsize=8.5, color=INK, va="center")
