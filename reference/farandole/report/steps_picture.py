"""Pictures of a training's steps: the units of ZeRO within one, DiLoCo's outer steps over many.

steps_picture.sharded([*timeline(list(steps(3, 4)), seconds, prefetch=True)])    what a rank computes and communicates
steps_picture.outer(Outer(8, 0.7, 0.9, fragments=4, delay=2), 24)                when which fragment is averaged
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from farandole.cost.sharding import PARTS, Span
from farandole.data_parallel.outer_step import Outer
from farandole.report.colours import BLUE, GREEN, ORANGE, PURPLE
from farandole.report.layout_picture import bare, limit

MOST_STEPS = 120
COLOURS = {"gather": ORANGE, "forward": BLUE, "backward": GREEN, "reduce": PURPLE}
OUTER_COLOURS = {"inner step": BLUE, "average on its way": ORANGE, "outer step": GREEN}
LANE, GAP = 0.9, 0.04  # a box's height, and what it leaves free before the next


def sharded(spans: Sequence[Span], title: str = "") -> Figure:
    """Draw a rank's step in time: what it computes above, what it communicates below, with the number of the unit.

    Raises:
        UsageError: more spans than could be told apart.
    """
    limit(len(spans), MOST_STEPS, "computations and collectives")
    end = max(span.end for span in spans)
    drawing = Figure(figsize=(max(5.0, 0.3 * end + 1.6), 1.9), layout="constrained")
    ax = drawing.subplots()
    for span in spans:
        lane = -(span.step.kind not in PARTS)
        _box(ax, span.begin, span.end, lane, COLOURS[span.step.kind], str(span.step.unit))
    ax.set(xlim=(-0.1, end), ylim=(-1.1, 1.1), title=title)
    ax.set_yticks([0.45, -0.55], ["computes", "communicates"])
    bare(ax, "time, in forward passes of a unit")
    _legend(drawing, {kind: COLOURS[kind] for kind in COLOURS if any(span.step.kind == kind for span in spans)})
    return drawing


def outer(settings: Outer, steps: int) -> Figure:
    """Draw a row for each fragment: when its average is on its way, and when it has its outer step.

    Raises:
        UsageError: more steps or fragments than could be told apart.
    """
    limit(steps, MOST_STEPS, "steps")
    limit(settings.fragments, MOST_STEPS, "fragments")
    rows = settings.fragments
    drawing = Figure(figsize=(max(5.0, 0.3 * steps + 1.8), 0.42 * rows + 1.6), layout="constrained")
    ax = drawing.subplots()
    for step in range(1, steps + 1):
        _box(ax, step - 1, step, 0, OUTER_COLOURS["inner step"], str(step))
        for fragment in range(rows):
            if settings.sends(fragment, step):
                due = min(step + settings.delay, steps)
                if settings.delay:
                    _box(ax, step, due, -1 - fragment, OUTER_COLOURS["average on its way"], "")
                _box(ax, due, due + 0.3, -1 - fragment, OUTER_COLOURS["outer step"], "")
    ax.set(xlim=(-0.1, steps + 0.4), ylim=(-rows - 0.1, 1.1), xticks=[])
    ax.set_yticks(
        [0.45 - row for row in range(rows + 1)], ["every rank", *(f"fragment {each}" for each in range(rows))]
    )
    bare(ax, "inner steps")
    shown = {name: colour for name, colour in OUTER_COLOURS.items() if settings.delay or "way" not in name}
    _legend(drawing, shown)
    return drawing


def _box(axes: Axes, begin: float, end: float, lane: float, colour: str, text: str) -> None:
    axes.add_patch(Rectangle((begin, lane), end - begin - GAP, LANE, facecolor=colour))
    axes.text((begin + end - GAP) / 2, lane + 0.43, text, ha="center", va="center", color="white", fontsize=8)


def _legend(drawing: Figure, shown: dict[str, str]) -> None:
    handles = [Patch(color=colour, label=name) for name, colour in shown.items()]
    drawing.legend(handles=handles, loc="outside lower center", ncols=len(shown), frameon=False)
