"""A pipeline's time line: which stage takes which micro-batch forward or backward, and when it has nothing to do.

One row per stage, a box per computation with the micro-batch's number in it, a black line for each
update; what is empty is the bubble. At the right stands the most that the stage holds at once, in
micro-batches' activations. The same picture comes from a schedule, where it is what the checker has
timed, and from a run, where it is what the ranks have recorded; both fit below each other:

    pipeline_picture.figure(scheduled(ONE_F_ONE_B, 4, 8), measured(run))
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import groupby
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from farandole.errors import UsageError
from farandole.model_parallel.checker import UNIT, Execution, Interval, check
from farandole.model_parallel.schedules import SCHEDULES, choose
from farandole.model_parallel.step_costs import most_held
from farandole.model_parallel.steps import (
    Computation,
    Schedule,
    Times,
    Update,
)
from farandole.report.pass_colours import INK, PASSES, Key, colour_of, ink_on
from farandole.runtime.record import Run

EVENT = re.compile(r"(forward|backward(?: \((?:inputs|weights)\))?) (\d+)(?:, chunk (\d+))?")
MOST_BOXES = 4000
COLOURS_OF_A_PNG = 128  # with shades at the edges of figures
WIDTH_IN, WIDEST_IN = 10.0, 40.0
USUAL_IN = 0.16  # a box in which two figures can be read
ROW_IN, EDGES_IN, KEY_IN = 0.36, 1.1, 0.17
SMALLEST_FONT = 3.5


@dataclass(frozen=True)
class TimeLine:
    """The time line that is drawn.

    Attributes:
        rows: a name for each stage.
        intervals: computations, some of which may begin before 0 or end after `end`.
        held: for each stage the most it holds at once, in micro-batches' activations.
        chunks: pieces of the model on each stage.
        unit: of time.
    """

    title: str
    rows: Sequence[str]
    intervals: Sequence[Interval]
    end: float
    held: Sequence[float]
    chunks: int
    unit: str

    @property
    def key(self) -> Key:
        """Return the legend of what occurs."""
        return Key({type(own.step) for own in self.intervals}, self.chunks)

    @property
    def idle_share(self) -> float:
        """Share of all rows' time in which nothing is computed, 0 to 1."""
        work = sum(min(own.end, self.end) - max(own.start, 0.0) for own in self.intervals)
        return 1 - work / (len(self.rows) * self.end)


def scheduled(
    schedule: Schedule,
    stages: int,
    micro_batches: int,
    times: Times = UNIT,
    unit: str = "time; a stage's forward pass takes 1",
) -> TimeLine:
    """Return the time line of `schedule`, as checked.

    Args:
        unit: of `times`.

    Raises:
        UsageError: the schedule does not go with these numbers, or there is more to draw than can be seen.
        ScheduleError: the schedule is wrong.
    """
    passes = schedule.placement.passes
    boxes = 2 * stages * micro_batches * passes
    if boxes > MOST_BOXES:
        raise UsageError(
            f"a picture of {boxes:,} passes: give fewer stages or micro-batches, {MOST_BOXES:,} passes can be seen"
        )
    execution = check(schedule, stages, micro_batches, times)
    batches = _count(micro_batches, "micro-batch" if schedule.flushes else "batch")
    pieces = f" of {schedule.chunks} chunks" if schedule.chunks > 1 else ""
    sizes = f"{_count(stages, 'stage')}{pieces}, {batches}"
    return TimeLine(
        title=f"{schedule.name}, {sizes}: bubble/total {execution.bubble_of_total:.1%}{_in_a_row(execution)}",
        rows=[f"stage {stage}" for stage in range(stages)],
        intervals=execution.intervals,
        end=execution.total,
        held=[most / passes for most in execution.stash],
        chunks=schedule.chunks,
        unit=unit,
    )


def has_passes(run: Run) -> bool:
    """Return whether the run's trace has passes of micro-batches, so that `measured` can draw it."""
    return any(EVENT.fullmatch(event["name"]) for event in run.trace if event["cat"] == "compute")


def measured(run: Run, step: int | None = None, steps: int = 1) -> TimeLine:
    """Return a stretch of a run, from its trace.

    It goes from the first computation after update `step` − 1, on whichever rank that is, to the end
    of update `step` + `steps` − 1 on the last one. In a pipeline without a flush (PipeDream), where a
    step is a batch, others are under way meanwhile; they are drawn too.

    Args:
        step: the first one, from 0, or from where the run went on after its last recovery. [default: what puts the
            stretch into the middle]

    Raises:
        UsageError: the run has no such steps, or was no pipeline.
    """
    rows = _by_rank(run)
    updates = [[place for place, own in enumerate(row) if isinstance(own.step, Update)] for row in rows]
    passes = [own.step for row in rows for own in row if not isinstance(own.step, Update)]
    if not passes or not all(places for row, places in zip(rows, updates, strict=True) if row):
        raise UsageError(f"{run.folder} is no run of a pipeline: its trace has no passes of micro-batches")
    known = min(len(places) for places in updates if places)
    first = max(0, known - steps) // 2 if step is None else step
    last = first + steps - 1
    if not 0 <= first <= last < known:
        raise UsageError(f"steps {first} to {last}: the run in {run.folder} has steps 0 to {known - 1}")
    busy = [(row, places) for row, places in zip(rows, updates, strict=True) if row]
    begin = min(row[places[first - 1] + 1 if first else 0].start for row, places in busy)
    end = max(row[places[last]].end for row, places in busy) - begin
    moved = [Interval(own.stage, own.step, own.start - begin, own.end - begin) for row in rows for own in row]
    seen = [own for own in moved if own.end > 0 and own.start < end]
    name = run.config.get("schedule", run.summary.scenario)
    which = f"step {first}" if steps == 1 else f"steps {first} to {last}"
    chunks = 1 + max(own.chunk for own in passes)
    shared = choose(name, chunks).placement.passes if name in SCHEDULES else 1
    one_each = dict.fromkeys(range(chunks), 1)
    line = TimeLine(
        title=f"{name}, measured, {which} of {known}",
        rows=run.rank_names,
        intervals=seen,
        end=end,
        held=[most_held((step for step, _ in groupby(own.step for own in row)), one_each) / shared for row in rows],
        chunks=chunks,
        unit="milliseconds",
    )
    return replace(line, title=f"{line.title}: idle {line.idle_share:.1%}")


def draw(file: Path, *lines: TimeLine) -> Path:
    """Draw the time lines below each other as a picture in `file`.

    They are plain areas of few colours: as a palette's numbers a .png has a third of the bytes.
    """
    drawing = figure(*lines)
    if file.suffix.lower() != ".png":
        drawing.savefig(file)
        return file
    pixels = BytesIO()
    drawing.savefig(pixels, format="png", dpi=100)
    Image.open(pixels).convert("RGB").quantize(COLOURS_OF_A_PNG, dither=Image.Dither.NONE).save(file, optimize=True)
    return file


def figure(*lines: TimeLine) -> Figure:
    """The same, not written; lines of the same unit share its axis."""
    usual = min(median(own.end - own.start for own in line.intervals if _is_pass(own)) / line.end for line in lines)
    width = min(max(WIDTH_IN, USUAL_IN / usual), WIDEST_IN)
    heights = [EDGES_IN + KEY_IN * (line.key.rows - 1) + ROW_IN * len(line.rows) for line in lines]
    drawing = Figure(figsize=(width, sum(heights)), layout="constrained")
    together = len({line.unit for line in lines}) == 1
    for axes, line in zip(drawing.subplots(len(lines), squeeze=False, height_ratios=heights)[:, 0], lines, strict=True):
        plot(line, axes, max(line.end for line in lines) if together else None)
    return drawing


def plot(line: TimeLine, axes: Axes, end: float | None = None) -> None:
    """One time line on axes of the caller's.

    Args:
        end: where the axis ends. [default: where the line does]
    """
    end = end or line.end
    inches = axes.get_window_extent().width / axes.figure.dpi
    for own in line.intervals:
        _box(axes, own, line, 72 * inches / end)
    axes.set(xlim=(0, 1.003 * end), ylim=(len(line.rows) - 0.5, -0.5), xlabel=line.unit)
    axes.set_yticks(range(len(line.rows)), line.rows)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(line.title, loc="left", fontsize=10, pad=18 + 72 * KEY_IN * (line.key.rows - 1))
    for stage, held in enumerate(line.held):
        axes.annotate(f"holds {held:.3g}", (1, stage), (6, 0), xycoords=("axes fraction", "data"),
                      textcoords="offset points", va="center", fontsize=8.5)  # fmt: skip
    line.key.draw(axes)


def _box(axes: Axes, own: Interval, line: TimeLine, points: float) -> None:
    """A computation's rectangle; `points` is the length of one unit of time on paper."""
    if isinstance(own.step, Update):
        axes.add_patch(Rectangle((own.start, own.stage - 0.45), own.end - own.start, 0.9, facecolor=INK,
                                 edgecolor=INK, linewidth=1.6, zorder=3))  # fmt: skip
        return
    colour = colour_of(type(own.step), own.step.chunk, line.chunks)
    axes.add_patch(Rectangle((own.start, own.stage - 0.4), own.end - own.start, 0.8, facecolor=colour,
                             edgecolor="white", linewidth=0.6))  # fmt: skip
    number, middle = str(own.step.micro_batch), (own.start + own.end) / 2
    size = min(9.0, 0.9 * points * (own.end - own.start) / (0.62 * len(number)))
    if 0 < middle < line.end and size > SMALLEST_FONT:
        axes.text(middle, own.stage, number, ha="center", va="center_baseline", fontsize=size, color=ink_on(colour))


def _by_rank(run: Run) -> list[list[Interval]]:
    """Return what each rank has computed, in order of time, in milliseconds; after a recovery, since the last one.

    Where a layer communicates, its pass is in several pieces. Updates before the first pass are left out: another mode
    came before (`model_parallel.small_network`). A rank that is in no stage has an empty row.
    """
    places = {rank: place for place, rank in enumerate(run.summary.members)}
    rows: list[list[Interval]] = [[] for _ in places]
    events = sorted(run.trace, key=lambda event: float(event["ts"]))
    recovered = max((event["ts"] + event["dur"] for event in events if event["name"] == "catch up"), default=0.0)
    for event in (event for event in events if event["ts"] >= recovered):
        step = _computation(event["name"]) if event["cat"] == "compute" and not event["args"].get("depth") else None
        if step:
            place, start = places[event["pid"]], event["ts"] / 1e3
            rows[place].append(Interval(place, step, start, start + event["dur"] / 1e3))
    first_pass = min((own.start for row in rows for own in row if _is_pass(own)), default=0.0)
    return [[own for own in row if own.start >= first_pass] for row in rows]


def _computation(name: str) -> Computation | None:
    """Return the computation with this name in the trace; None if it is in no schedule."""
    if name == "update":
        return Update()
    if found := EVENT.fullmatch(name):
        kind, micro_batch, chunk = found.groups()
        return PASSES[kind](int(micro_batch), int(chunk or 0))
    return None


def _in_a_row(execution: Execution) -> str:
    """Return the bubble where batches follow each other, if they overlap then."""
    return f", /period {execution.bubble_of_period:.1%}" if execution.overlaps else ""


def _is_pass(own: Interval) -> bool:
    return not isinstance(own.step, Update)


def _count(number: int, what: str) -> str:
    """Return "1 stage", "8 batches" and the like."""
    plural = what + ("es" if what.endswith("ch") else "s")
    return f"{number} {what if number == 1 else plural}"
