"""Dynamic synchronisation (动态调度): how often ranks synchronise, and how many steps each takes, by measured times.

After every round each rank knows of all ranks how long a step took, and how long the all-reduce took. From that follows
the next round:

    steps    rank r, whose step takes the time c_r, takes the part (1/c_r) / Σ 1/c of the round's steps, so that all
             finish at the same time; but never less than a quarter of the mean, since each rank's direction is
             stretched to the mean length when they are combined (`agnostic`), and its noise with it
    period   with m for the all-reduce and c for a step, a rank takes κ·√(m/c) steps on average, and the slowest at
             least one. Among the whole numbers within a quarter of that, or beside it, the one with the least waiting
             is chosen: with 5 the slowest rank may have a step too many, and with 4 not

In a long period the copies drift apart: the error of their mean grows linearly with the period, while communication's
share of a step falls as its inverse, so the best period grows as √m. The bound whose minimum this is has constants that
are not known beforehand: κ stands for them. The rank that arrives last has the shortest m, since it waits for no other;
that one is used. All measurements are smoothed, half the old and half the new, so that one slow step changes little.

Pure: no clock, no messages. Sources: Wang & Joshi, "Adaptive communication strategies to achieve the best error-runtime
trade-off in local-update SGD", 2019 (AdaComm), which also shortens the period as the loss falls; for capability
measured while training, Chen et al., "Fast distributed deep learning via worker-adaptive batch sizing", 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from farandole.data.shares import proportional_shares

MEMORY = 0.5  # the old measurement's part of a smoothed one
STRETCH = 4  # a rank's direction becomes at most 4 times as long


@dataclass(frozen=True)
class Plan:
    """One round.

    Attributes:
        period: steps of a rank, on average.
        steps: of each rank; together `period` times the number of ranks.
    """

    period: int
    steps: list[int]


class Controller:
    """Plans the next round.

    Args:
        ranks: number of ranks.
        period: the same in every round; None: from the measured times.
        balanced: whether a fast rank takes more steps.
        kappa: κ above.
        longest: no period is longer.

    Attributes:
        plan: the next round; the first one has a step each, or `period`.
    """

    def __init__(
        self, ranks: int, period: int | None = None, balanced: bool = True, kappa: float = 4.0, longest: int = 64
    ) -> None:
        self.ranks, self.period, self.balanced = ranks, period, balanced
        self.kappa, self.longest = kappa, longest
        self._step_s: list[float] = []
        self._exchange_s = 0.0
        self.plan = Plan(period or 1, [period or 1] * ranks)

    def observe(self, step_s: Sequence[float], exchange_s: Sequence[float]) -> None:
        """Take in a round's times, and plan the next round.

        Args:
            step_s: seconds of a step, for each rank.
            exchange_s: seconds in the all-reduce, for each rank.
        """
        if not self._step_s:
            self._step_s, self._exchange_s = list(step_s), min(exchange_s)
        self._step_s = [_smoothed(old, new) for old, new in zip(self._step_s, step_s, strict=True)]
        self._exchange_s = _smoothed(self._exchange_s, min(exchange_s))
        period = self.period or self._with_least_waiting(self._worth_its_cost())
        self.plan = Plan(period, self._divided(period * self.ranks))

    @property
    def nominal_step_s(self) -> float:
        """Return c above: seconds of a step each, averaged over the ranks as the steps are divided."""
        if self.balanced:
            return self.ranks / sum(1 / each for each in self._step_s)
        return max(self._step_s)

    def _worth_its_cost(self) -> int:
        wanted = round(self.kappa * sqrt(self._exchange_s / self.nominal_step_s))
        return min(max(self._fewest(), wanted), self.longest)

    def _fewest(self) -> int:
        return max(1, round(max(self._step_s) / self.nominal_step_s)) if self.balanced else 1

    def _with_least_waiting(self, period: int) -> int:
        """Return the period near this one with the least waiting, to a tenth; among equal ones the nearest."""
        if not self.balanced:
            return period
        fewest, nearby = self._fewest(), max(1, round(period / 4))
        near = range(max(fewest, period - nearby), min(period + nearby, self.longest) + 1)
        return min(near or [period], key=lambda each: (round(self._waiting(each), 1), abs(each - period)))

    def _waiting(self, period: int) -> float:
        """Return how much longer a round is than if all ranks finished at the same time, relative to that."""
        steps = self._divided(period * self.ranks)
        slowest_s = max(count * step_s for count, step_s in zip(steps, self._step_s, strict=True))
        return slowest_s / (period * self.nominal_step_s) - 1

    def _divided(self, steps: int) -> list[int]:
        if not self.balanced:
            return [steps // self.ranks] * self.ranks
        divided = proportional_shares(steps, [1 / each for each in self._step_s])
        while min(divided) < steps / self.ranks / STRETCH:
            divided[divided.index(min(divided))] += 1
            divided[divided.index(max(divided))] -= 1
        return divided


def _smoothed(old: float, new: float) -> float:
    return MEMORY * old + (1 - MEMORY) * new
