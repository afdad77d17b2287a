"""The timeline of the ranks (a Gantt chart): when each rank computed, communicated or waited.

It shows some steps from the middle of a run, since the first ones are not typical. If a rank died and the others
continued, it shows the steps around the first failure and marks the failure. The dead rank has a row too, although its
own recording is lost.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from farandole.errors import UsageError
from farandole.report.colours import ACTIVITY, RED
from farandole.runtime.record import AGAIN, Run, Summary

STEPS_SHOWN = 6
STEP_ENDS = "update"  # the last span of every step
CHANGE = "catch up"  # what all that are left do after a death
CLEANING = "clean up after rank {}"  # a parameter server's span after a worker's failure
Events = Sequence[dict[str, Any]]  # of the trace, which is read once: validating it takes longer than drawing


@dataclass(frozen=True)
class Window:
    """The part of a run that is shown.

    Attributes:
        begin, end: in ms of the trace.
        steps: the run's steps that are shown; None if no rank's updates are the run's steps.
    """

    begin: float
    end: float
    steps: range | None


@dataclass(frozen=True)
class Failure:
    """The first failure after which other ranks continued: its rank, its step, and its time `at` in ms of the trace."""

    rank: int
    step: int
    kind: str
    at: float


def draw(run: Run, file: Path, steps: int = STEPS_SHOWN, title: str = "", width: float = 10) -> Path:
    """Draw `steps` steps of the run, one bar per rank, as a picture in `file`.

    Args:
        title: what stands above it. [default: the scenario's name]
        width: of the picture, in inches.
    """
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    plot(run, axes, steps, title)
    figure.set_size_inches(width, 1.2 + 0.45 * len(axes.get_yticks()))
    figure.savefig(file, dpi=120)
    return file


def plot(run: Run, axes: Axes, steps: int = STEPS_SHOWN, title: str = "") -> None:
    """The same on axes of the caller's. Time in ms from the first step shown."""
    summary, events, rank_names = run.summary, run.trace, run.rank_names
    failure = first_failure(summary, events)
    shown = window(summary, events, steps, failure)
    names = dict(zip(summary.members, rank_names, strict=False))
    if failure:
        names.setdefault(failure.rank, f"rank {failure.rank}")
    if len(rank_names) != len(summary.members) or not names.keys() >= {event["pid"] for event in events}:
        raise UsageError(f"{run.folder / 'trace.json'} is of other ranks than summary.json: {AGAIN}")
    if shown.end <= shown.begin:
        raise UsageError(f"{run.folder / 'trace.json'} is damaged (its steps take no time): {AGAIN}")
    row = {rank: place for place, rank in enumerate(sorted(names))}
    two_threads = any(event["tid"] for event in events)
    bars: dict[tuple[float, float, str], list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        start, stop = event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3
        if event["args"].get("depth") or stop < shown.begin or start > shown.end:
            continue
        lower, height = 0.0, 0.7
        if two_threads:  # above what the rank itself does, below what is done beside it
            lower, height = (0.22, 0.26) if event["tid"] else (-0.14, 0.42)
        bottom = row[event["pid"]] + lower - height / 2
        bars[bottom, height, ACTIVITY[event["cat"]]].append((start - shown.begin, stop - start))
    for (bottom, height, colour), spans in bars.items():  # an artist takes a millisecond, be it one bar or many
        axes.broken_barh(spans, (bottom, height), facecolors=colour, linewidth=0)
    if failure and shown.begin <= failure.at <= shown.end:
        _mark(axes, failure, failure.at - shown.begin, row[failure.rank])
    axes.set_xlim(0, shown.end - shown.begin)
    axes.set_ylim(len(row) - 0.5, -0.5)  # rank 0 is the first
    axes.set_yticks(range(len(row)), [names[rank] for rank in sorted(names)])
    axes.set_xlabel("milliseconds", loc="left")
    axes.set_title(f"{title or summary.scenario}: {_named(shown, steps, summary.steps)}", loc="left")
    # The legend is below, beside the axis label, since a long title leaves no room above.
    axes.legend(handles=[Patch(color=colour, label=name) for name, colour in ACTIVITY.items()], ncols=3,
                loc="upper right", bbox_to_anchor=(1, 0), borderaxespad=1.6, frameon=False)  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)


def window(summary: Summary, events: Events, steps: int, failure: Failure | None) -> Window:
    """Return the window of `steps` steps around the failure, or in the middle of the run."""
    total = summary.steps
    if not (ends := _step_ends(summary, events)):
        wall_ms = summary.wall_s * 1e3
        length = wall_ms * min(1.0, steps / max(1, total))
        first = min((event["ts"] / 1e3 for event in events), default=0.0)
        begin = failure.at - length / 2 if failure else first + (wall_ms - length) / 2
        return Window(begin, begin + length, None)
    count = min(steps, total)
    centre = bisect(ends, failure.at) if failure else total // 2
    first_step = max(0, min(centre - count // 2, total - count))
    begin = ends[first_step - 1] if first_step else min(event["ts"] / 1e3 for event in events)
    return Window(begin, ends[first_step + count - 1], range(first_step, first_step + count))


def first_failure(summary: Summary, events: Events) -> Failure | None:
    """Find the first failure, dated back from the first later step or its detection; None if the trace has neither."""
    first = min(summary.members)  # this rank has measured the time to resume
    for fault in summary.faults:
        changes = [event["ts"] / 1e3 for event in events if event["name"].endswith(CHANGE)]
        if changes and fault["resumed_s"] is not None:
            ends = [end for event in events if event["name"] == STEP_ENDS and event["pid"] == first
                    if (end := (event["ts"] + event["dur"]) / 1e3) > min(changes)]  # fmt: skip
            if ends:
                return Failure(fault["rank"], fault["step"], fault["kind"], min(ends) - 1e3 * fault["resumed_s"])
        cleanings = [event["ts"] / 1e3 for event in events if event["name"] == CLEANING.format(fault["rank"])]
        if cleanings and fault["detected_s"] is not None:
            return Failure(fault["rank"], fault["step"], fault["kind"], min(cleanings) - 1e3 * fault["detected_s"])
    return None


def _step_ends(summary: Summary, events: Events) -> list[float]:
    """Return when each step ended, in ms, from the first rank with one update per step; [] if there is none."""
    for rank in summary.members:
        its = (event for event in events if event["pid"] == rank and not event["args"].get("depth"))
        ends = sorted((event["ts"] + event["dur"]) / 1e3 for event in its if event["name"] == STEP_ENDS)
        if len(ends) == summary.steps:
            return ends
    return []


def _named(shown: Window, steps: int, total: int) -> str:
    """Return the window's description, for instance "6 steps of 300, from step 147"."""
    if shown.steps is None:
        return f"the time of about {_steps(min(steps, total))} of {total}"
    return f"{_steps(len(shown.steps))} of {total}, from step {shown.steps.start}"


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count != 1)}"


def _mark(axes: Axes, failure: Failure, at: float, row: int) -> None:
    """Mark the time of the failure in the rank's row; its recording is lost, so only the outline is drawn before."""
    axes.barh(row, at, height=0.7, facecolor="none", edgecolor=ACTIVITY["wait"], linestyle=":")
    axes.axvline(at, color=RED, linestyle="--", linewidth=1.2)
    axes.text(at, row, f" ✕ {failure.kind} in step {failure.step}", color=RED, va="center", ha="left")
