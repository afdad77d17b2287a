"""The colours of a pipeline's passes, paler for each further chunk of a rank, and their legend."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from farandole.model_parallel.steps import (
    NAMES,
    Backward,
    BackwardInput,
    BackwardWeight,
    Computation,
    Forward,
    Pass,
    Update,
)
from farandole.report.colours import BLUE, GREEN, PURPLE, YELLOW

INK = "#222222"
PASSES = {name: kind for kind, name in NAMES.items()}
COLOURS: dict[type[Pass], str] = {Forward: BLUE, Backward: GREEN, BackwardInput: PURPLE, BackwardWeight: YELLOW}
PALEST = 0.55  # how much white is in the colour of a rank's last chunk
LONGEST_ROW = 5  # entries of a legend


def colour_of(kind: type[Pass], chunk: int, chunks: int) -> tuple[float, float, float]:
    """Return the colour of a pass, with the more white in it the later the chunk."""
    white = PALEST * chunk / max(1, chunks - 1)
    red, green, blue = (part + (1 - part) * white for part in to_rgb(COLOURS[kind]))
    return red, green, blue


def ink_on(colour: tuple[float, float, float]) -> str:
    """Return the colour in which text can be read on `colour`."""
    red, green, blue = colour
    return INK if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else "white"


@dataclass(frozen=True)
class Key:
    """A legend of passes, chunks and updates; if it is long, a kind's chunks are below each other.

    Attributes:
        kinds: of computations that occur.
        chunks: pieces of the model on each rank.
    """

    kinds: set[type[Computation]]
    chunks: int

    @property
    def rows(self) -> int:
        """Return in how many rows the legend stands."""
        entries = len(self.kinds - {Update}) * self.chunks + 1
        return self.chunks if entries > LONGEST_ROW else 1

    def draw(self, axes: Axes) -> None:
        """Put the legend above the left end of the axes."""
        patches = [
            Patch(color=colour_of(kind, chunk, self.chunks), label=name + f", chunk {chunk}" * (self.chunks > 1))
            for name, kind in PASSES.items()
            for chunk in range(self.chunks)
            if kind in self.kinds
        ]
        if Update in self.kinds:
            patches.append(Patch(color=INK, label="update"))
        patches += [Patch(color="none")] * (-len(patches) % self.rows)  # or matplotlib makes the columns equally long
        axes.legend(handles=patches, ncols=len(patches) // self.rows, loc="lower left", bbox_to_anchor=(0, 1),
                    frameon=False, fontsize=8, borderpad=0, borderaxespad=0.3, handlelength=1,
                    columnspacing=1.2)  # fmt: skip
