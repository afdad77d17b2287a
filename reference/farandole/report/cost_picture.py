"""Pictures of the simulator's results: how methods scale with the number of workers, and which wins where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from farandole.cost.comparison import Row
from farandole.report.colours import SERIES

LINES = ("o-", "s--", "^:")  # with seven colours each
NOTHING = "#dddddd"  # no method reaches the loss


def draw(rows: Sequence[Row], file: Path) -> Path:
    """A line per method over the number of workers: time of a step, efficiency, time to the loss."""
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    step, efficiency, loss = figure.subplots(1, 3)
    methods = list(dict.fromkeys(row.method for row in rows))
    for number, method in enumerate(methods):
        line, colour = LINES[number // len(SERIES) % len(LINES)], SERIES[number % len(SERIES)]
        own = [row for row in rows if row.method == method]
        workers = [row.setting.workers for row in own]
        step.plot(workers, [row.step_s for row in own], line, color=colour, label=method)
        efficiency.plot(workers, [row.efficiency for row in own], line, color=colour)
        reached = [(row.setting.workers, row.outcome.to_loss_s) for row in own if row.outcome.to_loss_s is not None]
        loss.plot([at for at, _ in reached], [seconds for _, seconds in reached], line, color=colour)
    step.set(ylabel="seconds a step", yscale="log")
    efficiency.set(ylabel="part of the ideal speed", ylim=(0, None))
    anywhere = any(row.outcome.to_loss_s is not None for row in rows)
    loss.set(ylabel="seconds to the loss", yscale="log" if anywhere else "linear")
    for axes in (step, efficiency, loss):
        axes.set(xlabel="workers", xscale="log")
        _plain(axes)
    figure.legend(loc="outside upper center", ncols=min(6, len(methods)), frameon=False)
    figure.savefig(file, dpi=120)
    return file


def draw_map(
    winners: Mapping[tuple[float, float], str], methods: Sequence[str], file: Path, title: str, goal: str
) -> Path:
    """Return which method is the first, over (bandwidth in Gbit/s, sigma of the lognormal); an empty name: none."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    across, up = (sorted({place[axis] for place in winners}) for axis in (0, 1))
    seen = [name for name in ("", *methods) if name in winners.values()]
    series = iter(SERIES * len(seen))
    colours = [next(series) if name else NOTHING for name in seen]
    numbers = [[seen.index(winners[x, y]) for x in across] for y in up]
    axes.imshow(numbers, cmap=ListedColormap(colours), vmin=0, vmax=len(colours) - 1, origin="lower", aspect="auto")
    axes.set_xticks(range(len(across)), [f"{x:g}" for x in across])
    axes.set_yticks(range(len(up)), [f"{y:g}" for y in up])
    axes.set(xlabel="link, Gbit/s", ylabel="scatter of the steps, lognormal sigma")
    axes.set_title(f"{goal}: {title}", loc="left", fontsize=10)
    axes.legend(handles=[Patch(color=colour, label=name or "none") for name, colour in zip(seen, colours, strict=True)],
                loc="upper left", bbox_to_anchor=(1, 1), frameon=False)  # fmt: skip
    figure.savefig(file, dpi=120)
    return file


def _plain(axes: Axes) -> None:
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
