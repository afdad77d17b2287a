"""A claim of a paper: what is measured for it, and the rule from which its verdict follows.

A rule is a sequence of bounds, each on one measured figure, written down with the row:

    holds             all bounds are met
    partly holds      all core bounds are met, and another one is not
    does not hold     a core bound is not met

A bound that may fail says why, and the reason is printed only where it fails. A rule is to be written before its row is
run. What was changed after a first run stands with the row and is printed with its verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isnan
from typing import Literal

Kind = Literal["computed", "simulated", "real ranks", "paced ranks"]
Verdict = Literal["holds", "partly holds", "does not hold"]
Figures = Mapping[str, float | None]
Points = Sequence[tuple[float, float]]

# What each kind of run is, for the reader of a result.
KINDS: dict[Kind, str] = {
    "computed": "counted or computed from the objects that run here, without a clock",
    "simulated": "simulated event by event or round by round, in simulated time",
    "real ranks": "trained by processes on this machine",
    "paced ranks": "trained by processes on this machine, over links slowed down to a given speed",
}


@dataclass(frozen=True)
class Source:
    """Where a paper says it.

    Attributes:
        where: table, figure or section.
    """

    authors: str
    year: int
    title: str
    where: str

    def __str__(self) -> str:
        return f"{self.authors}, “{self.title}”, {self.year}, {self.where}"


@dataclass(frozen=True)
class Bound:
    """One condition of a rule: a figure lies between `least` and `most`, both included.

    Attributes:
        figure: its name among the measured ones.
        says: the condition in words.
        core: without it the claim does not hold.
        otherwise: why it may not be met here.
    """

    figure: str
    says: str
    least: float = -inf
    most: float = inf
    core: bool = False
    otherwise: str = ""

    def is_met(self, figures: Figures) -> bool:
        """Return whether the figure was measured and lies within the bound."""
        value = figures.get(self.figure)
        return value is not None and not isnan(value) and self.least <= value <= self.most


@dataclass(frozen=True)
class Picture:
    """Curves over one axis.

    Attributes:
        lines: what was measured, by name.
        published: points that the paper prints, by name.
        log: the axes that are logarithmic: "", "x", "y" or "xy".
    """

    x: str
    y: str
    lines: Mapping[str, Points]
    published: Mapping[str, Points] = field(default_factory=dict)
    log: str = ""


@dataclass(frozen=True)
class Measured:
    """The results of a row: figures by name, and curves where there are any."""

    figures: Figures
    picture: Picture | None = None


@dataclass(frozen=True)
class Claim:
    """One row.

    Attributes:
        says: the claim, in words and numbers.
        setting: what is run here, and how it differs from the paper's setting.
        seconds: how long it takes on two cores, about.
        measure: runs it.
        rule: the bounds from which the verdict follows, core ones first.
        module: a file of the method, below reference/farandole/.
        revised: what was changed after a first run, of the setting or the rule; "": nothing.
    """

    name: str
    source: Source
    says: str
    kind: Kind
    setting: str
    seconds: float
    measure: Callable[[], Measured]
    rule: tuple[Bound, ...]
    module: str
    revised: str = ""


def verdict(rule: Sequence[Bound], figures: Figures) -> Verdict:
    """Return what follows from the figures by the rule."""
    unmet = not_met(rule, figures)
    if any(bound.core for bound in unmet):
        return "does not hold"
    return "partly holds" if unmet else "holds"


def not_met(rule: Sequence[Bound], figures: Figures) -> list[Bound]:
    """Return the bounds that the figures break."""
    return [bound for bound in rule if not bound.is_met(figures)]
