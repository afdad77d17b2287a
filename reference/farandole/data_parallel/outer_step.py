"""When DiLoCo's outer steps are, and what one does: `data_parallel.diloco` takes them, `cost.outer_rounds` simulates.

    Δ = mean of what the ranks have moved;  v ← μv + Δ;  θ ← θ − η(Δ + μv)

No MPI and no torch: θ, v and Δ are numpy vectors. Source: Douillard et al., 2023 and 2025, as there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.errors import UsageError

MIXING = 0.5


@dataclass(frozen=True)
class Outer:
    """The outer optimizer, and when its steps are.

    Attributes:
        period: inner steps from one outer step to the next, H.
        lr, momentum: η and μ.
        fragments: into how many the parameters are cut, each with outer steps at other times, F.
        delay: inner steps while the moves of a fragment are added up, τ.
        mixing: after a delay, how much a rank keeps of its own parameters, m.

    Raises:
        UsageError: more fragments than steps of a period, a delay that is no shorter than the period, or mixing without
            a delay.
    """

    period: int
    lr: float
    momentum: float
    fragments: int = 1
    delay: int = 0
    mixing: float = MIXING

    def __post_init__(self) -> None:
        of_a_period = f"in a --period of {self.period} steps: give at most"
        if self.fragments > self.period:
            raise UsageError(f"--fragments {self.fragments} {of_a_period} {self.period}")
        if self.delay >= self.period:
            raise UsageError(f"--delay {self.delay} {of_a_period} {self.period - 1}")
        if self.mixing != MIXING and not self.delay:
            raise UsageError(f"--mixing {self.mixing:g} is for a --delay: without one a rank keeps nothing of its own")

    def sends(self, fragment: int, step: int) -> bool:
        """Return whether the ranks send their moves of a fragment after this step, the first of which is 1."""
        return (step + self.period * fragment // self.fragments) % self.period == 0

    def left(self, steps: int) -> list[int]:
        """Return the fragments that have moved since they were sent, after a training's last step."""
        return [fragment for fragment in range(self.fragments) if not self.sends(fragment, steps)]

    def move(self, common: NDArray[np.floating], velocity: NDArray[np.floating], moved: NDArray[np.floating]) -> None:
        """Take the outer step of a fragment, in place: of its part of θ and v, by the mean of what ranks have moved."""
        velocity *= self.momentum
        velocity += moved
        common -= self.lr * (moved + self.momentum * velocity)

    def continued(self, own: NDArray[np.floating], common: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return from where a rank continues, after the outer step has moved `common`."""
        return self.mixing * own + (1 - self.mixing) * common if self.delay else common
