"""The ranks that mix, and their weights: for each round the graph above, its matrix W below.

    topology_picture.draw(topology("exponential", 8), Path("exponential.png"))

A line is an edge that leads both ways, an arrow one that leads one way; row i of the matrix says what rank i has
afterwards, column j where rank j's vector goes.
"""

from __future__ import annotations

from math import cos, pi, sin
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from farandole.decentralised.mixing import Rule, doubly_stochastic, mixing_matrix
from farandole.decentralised.steps import Matrix
from farandole.decentralised.topologies import Topology
from farandole.errors import UsageError
from farandole.report.colours import BLUE, ORANGE

INK = "#222222"
MOST_RANKS = 16
WRITTEN = 8  # largest number of ranks for which every weight is written


def draw(graph: Topology, file: Path, rule: Rule = doubly_stochastic) -> Path:
    """Draw all rounds of `graph` as a picture in `file`."""
    figure(graph, rule).savefig(file, dpi=120)
    return file


def figure(graph: Topology, rule: Rule = doubly_stochastic) -> Figure:
    """The picture.

    Raises:
        UsageError: more ranks than could be told apart; as `rule`.
    """
    if graph.ranks > MOST_RANKS:
        raise UsageError(f"a picture of {graph.ranks} ranks: give 1 to {MOST_RANKS}, more cannot be told apart")
    rounds = len(graph.rounds)
    drawing = Figure(figsize=(max(4.0, 3.2 * rounds), 6.4), layout="constrained")
    above, below = drawing.subplots(2, rounds, squeeze=False)
    for number, (upper, lower) in enumerate(zip(above, below, strict=True)):
        _graph(upper, graph, number, f"{graph.name}, round {number}" if rounds > 1 else graph.name)
        _matrix(lower, mixing_matrix(graph, number, rule))
    return drawing


def _graph(axes: Axes, graph: Topology, number: int, title: str) -> None:
    angles = [pi / 2 - 2 * pi * rank / graph.ranks for rank in range(graph.ranks)]
    places = [(cos(angle), sin(angle)) for angle in angles]
    edges = graph.edges(number)
    for source, to in sorted(edges):
        back = (to, source) in edges
        if back and source > to:
            continue
        style = {"arrowstyle": "-" if back else "->", "color": BLUE if back else ORANGE, "shrinkA": 9, "shrinkB": 9}
        axes.annotate("", places[to], places[source], arrowprops=style)
    for rank, (x, y) in enumerate(places):
        axes.text(x, y, str(rank), ha="center", va="center", color=INK, bbox={"boxstyle": "circle", "fc": "white"})
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal", title=title)
    axes.axis("off")


def _matrix(axes: Axes, weights: Matrix) -> None:
    ranks = len(weights)
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    if ranks <= WRITTEN:
        for (row, column), weight in ((place, weights[place]) for place in zip(*weights.nonzero(), strict=True)):
            colour = "white" if weight > 0.6 else INK
            axes.text(column, row, f"{weight:.2g}", ha="center", va="center", color=colour, fontsize=7)
    axes.set(xticks=range(ranks), yticks=range(ranks), xlabel="of rank j", ylabel="rank i has afterwards")
    axes.tick_params(length=0, labelsize=7)
