"""Random kills (chaos engineering, 混沌工程): ranks die by SIGKILL at random times.

    --chaos mtbf=20s,seed=7    among all ranks of the launch a death every 20 seconds on average

``--fail`` strikes as a step begins, where the author of a method expects it. A real failure may strike in the middle of
a message, of a checkpoint, or of the recovery from another failure. So here the times between two failures are
exponentially distributed, with the mean μ of the whole job (MTBF, mean time between failures, 平均故障间隔时间), and
each strikes a rank drawn uniformly; a rank that is dead already cannot die again. That is as if each of n ranks lived
exponentially long by itself, nμ on average: the fewer are left, the fewer failures there are.

The draw depends only on the seed, μ, n and the number of the start: each rank computes its own time without a message.
Cost: a thread per rank, asleep until then.

Source: Basiri et al., "Chaos Engineering", 2016.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from farandole.errors import UsageError
from farandole.runtime.faults import named_values
from farandole.runtime.numbers import LARGEST_SEED, parse_integer, parse_real


@dataclass(frozen=True)
class Chaos:
    """A rank of the launch is killed every `mtbf_s` seconds on average; `seed` decides which, and when."""

    mtbf_s: float
    seed: int = 0

    @classmethod
    def parse(cls, text: str) -> Chaos:
        form = "--chaos mtbf=20s,seed=7 (seconds, above 0; a whole number)"
        values = named_values(text, form, {"mtbf", "seed"})
        try:
            chaos = cls(parse_real(values["mtbf"].removesuffix("s")), parse_integer(values.get("seed", "0")))
        except (KeyError, ValueError) as error:
            raise UsageError(f"{text!r} does not fit: write it as {form}") from error
        if chaos.mtbf_s <= 0 or not 0 <= chaos.seed <= LARGEST_SEED:
            raise UsageError(f"{text!r} does not fit: write it as {form}")
        return chaos

    def __str__(self) -> str:
        return f"mtbf={self.mtbf_s:g}s,seed={self.seed}"

    def deaths(self, ranks: int, start: int = 0) -> Iterator[tuple[float, int]]:
        """Yield without end the times of the failures, in seconds of the run's clock, and the ranks that they strike.

        Args:
            ranks: of the launch; ranks that have died are drawn, too.
            start: how many starts of the same training came before this one.
        """
        draw = random.Random(f"{self.seed} {start}")
        when = 0.0
        while True:
            when += draw.expovariate(1 / self.mtbf_s)
            yield when, draw.randrange(ranks)

    def death_s(self, rank: int, ranks: int, start: int = 0) -> float:
        """Return when `rank` is struck first, in seconds of the run's clock."""
        return next(when for when, struck in self.deaths(ranks, start) if struck == rank)
