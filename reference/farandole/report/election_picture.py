"""An election drawn as who tells whom what: a line down for every member, time runs downwards.

What is drawn is what happened in the `Network`: a message that did not arrive ends in a cross, a
member that leads has a star where it began to.

    network = Network({number: Bully(number, range(5)) for number in range(5)})
    network.start(0)
    network.run()
    election_picture.draw(network, Path("bully.png"))
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from farandole.errors import UsageError
from farandole.recovery.election.network import Network
from farandole.report.colours import SERIES

INK, FAINT = "#222222", "#BBBBBB"
MOST_MESSAGES = 300
LOST_AFTER = 0.45  # of the way, a message that does not arrive ends


def draw(network: Network, file: Path, title: str = "") -> Path:
    """Draw what has happened in `network` as a picture in `file`."""
    figure(network, title).savefig(file, dpi=120)
    return file


def figure(network: Network, title: str = "") -> Figure:
    """The picture.

    Raises:
        UsageError: more messages than could be told apart.
    """
    if len(network.messages) > MOST_MESSAGES:
        raise UsageError(f"a picture of {len(network.messages)} messages: take fewer members or a shorter time")
    times = [arrived or sent for sent, arrived, _ in network.messages]
    end = max([0.0, *times, *(elected.when for elected in network.elected)]) + 1
    drawing = Figure(figsize=(1.5 + 1.1 * len(network.nodes), 1.6 + min(0.42 * end, 9.0)), layout="constrained")
    axes = drawing.add_subplot()
    places = {number: place for place, number in enumerate(network.nodes)}
    for number, place in places.items():
        dead = number in network.dead
        axes.plot([place, place], [0, end], color=FAINT if dead else INK, linestyle=":" if dead else "-", linewidth=1)
        axes.text(place, -0.25, f"{number}\ndead" if dead else f"{number}", ha="center", va="bottom", color=INK)
    _messages(axes, network, places)
    for elected in network.elected:
        axes.plot(places[elected.number], elected.when, marker="*", markersize=15, color="#F0E442", markeredgecolor=INK)
        term = f", term {elected.term}" if elected.term else ""
        axes.annotate(f"leads{term}", (places[elected.number], elected.when), (7, 5), textcoords="offset points",
                      fontsize=8, color=INK)  # fmt: skip
    axes.set(xlim=(-0.6, len(places) - 0.2), ylim=(end, -1.0), ylabel="seconds")
    axes.set_xticks([])
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= end])
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    if title:
        axes.set_title(title, fontsize=10)
    return drawing


def _messages(axes: Axes, network: Network, places: dict[int, int]) -> None:
    colours = dict(zip(network.sent, SERIES, strict=False))
    for sent, arrived, message in network.messages:
        start = places[message.sender], sent
        whole = places[message.to], sent + network.delay_s[1] if arrived is None else arrived
        share = LOST_AFTER if arrived is None else 1.0
        end = start[0] + share * (whole[0] - start[0]), start[1] + share * (whole[1] - start[1])
        style = {"arrowstyle": "-" if arrived is None else "-|>", "color": colours[message.kind], "shrinkA": 0}
        axes.annotate("", end, start, arrowprops=style | {"shrinkB": 0, "linewidth": 1.2})
        if arrived is None:
            axes.plot(*end, marker="x", color=colours[message.kind], markersize=6)
    lines = [Line2D([], [], color=colour, label=f"{kind}: {network.sent[kind]}") for kind, colour in colours.items()]
    if lines:
        axes.legend(handles=lines, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
