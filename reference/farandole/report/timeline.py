"""The timeline of the ranks (a Gantt chart): who computed, communicated or waited, and when."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from farandole.report.colours import ACTIVITY
from farandole.runtime.record import Run

STEPS_SHOWN = 6
CHANGE = "catch up"  # what all that are left do after a death


def draw(run: Run, file: Path, steps: int = STEPS_SHOWN, title: str = "") -> Path:
    """Draw `steps` steps from the middle of the run, one bar per rank, as a picture in `file`.

    Where ranks have died and the others have gone on, it is the steps around the first time.

    Args:
        title: what stands above it. [default: the scenario's name]
    """
    figure = Figure(figsize=(10, 1.2 + 0.45 * run.summary.ranks), layout="constrained")
    plot(run, figure.subplots(), steps, title)
    figure.savefig(file, dpi=120)
    return file


def plot(run: Run, axes: Axes, steps: int = STEPS_SHOWN, title: str = "") -> None:
    """The same on axes of the caller's. Time in ms from the first step shown."""
    summary = run.summary
    row = {rank: place for place, rank in enumerate(summary.members)}
    begin, end = _window(run, steps)
    two_threads = any(event["tid"] for event in run.trace)
    for event in run.trace:
        start, stop = event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3
        if event["args"]["depth"] or stop < begin or start > end:
            continue
        lower, height = 0.0, 0.7
        if two_threads:  # above what the rank itself does, below what is done beside it
            lower, height = (0.22, 0.26) if event["tid"] else (-0.14, 0.42)
        y = row[event["pid"]] + lower
        axes.barh(y, stop - start, left=start - begin, height=height, color=ACTIVITY[event["cat"]], linewidth=0)
    axes.set_xlim(0, end - begin)
    axes.set_yticks(range(summary.ranks), run.rank_names)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.set_title(f"{title or summary.scenario}: {min(steps, summary.steps)} steps of {summary.steps}", loc="left")
    axes.legend(handles=[Patch(color=colour, label=name) for name, colour in ACTIVITY.items()], ncols=3,
                loc="lower right", bbox_to_anchor=(1, 1), frameon=False)  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)


def _window(run: Run, steps: int) -> tuple[float, float]:
    """Begin and end, in ms, of `steps` steps from the middle, since the first are not typical, or around a change."""
    wall_ms = run.summary.wall_s * 1e3
    length = wall_ms * min(1.0, steps / run.summary.steps)
    first = min((event["ts"] / 1e3 for event in run.trace), default=0.0)
    changes = [event["ts"] / 1e3 for event in run.trace if event["name"].endswith(CHANGE)]
    begin = min(changes) - length / 2 if changes else first + (wall_ms - length) / 2
    return begin, begin + length
