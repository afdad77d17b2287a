"""Slow ranks and failures as inputs.

    --slow rank=3,factor=3             rank 3 takes three times as long to compute
    --slow rank=3,factor=4,share=0.25  … four times as long, in a quarter of its computations
    --slow rank=3,factor=4,from=100    … from step 100 on; with until=200 up to there
    --fail rank=2,step=30,how=kill     rank 2 sends itself SIGKILL when step 30 begins
                          how=raise    … raises an exception
                          how=hang     … stops answering, but lives
                          how=drop, delay, duplicate, corrupt     some of its messages are struck (`lossy`)
                          how=partition,heals=2                   … is cut off from the others for 2 seconds

Slowness is made by sleeping after each computation, so a slow rank does not burn the cores that
the others need: on a laptop the effect is the one a slow machine would have. Which computations a
transient straggler is slow in is chosen at random, by a generator that the seed decides.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from farandole.errors import UsageError
from farandole.runtime.numbers import parse_integer, parse_real

How = Literal["kill", "raise", "hang", "drop", "delay", "duplicate", "corrupt", "partition"]
RANK_FAULTS = ("kill", "raise", "hang")
MESSAGE_FAULTS = ("drop", "delay", "duplicate", "corrupt")
PARTITION = "partition"
LARGEST_FACTOR = 1e6  # sleeping longer than this times a computation may exceed what the system supports
FOR_EVER_S = 1e9
WITH_DEATHS = "ranks may die here, and messages to a dead rank would be resent in vain"


class InjectedFault(RuntimeError):
    """The exception that ``--fail …,how=raise`` raises."""


def named_values(text: str, form: str, allowed: set[str]) -> dict[str, str]:
    """Return the value of each name in ``name=value,name=value``.

    Raises:
        UsageError: it is not of this kind, with `form`, which is.
    """
    pairs: dict[str, str] = {}
    for part in text.split(","):
        name, sign, value = part.partition("=")
        if not sign or name not in allowed or name in pairs:
            raise UsageError(f"{text!r} does not fit: write it as {form}")
        pairs[name] = value
    return pairs


@dataclass(frozen=True)
class Slow:
    """Rank `rank` computes `factor` times slower than it could (1 ≤ factor ≤ 10⁶).

    Attributes:
        share: in which part of its computations, above 0 and up to 1; below 1 it is a transient straggler.
        first, end: from step `first` on, and before step `end`; None: for ever.
    """

    rank: int
    factor: float
    share: float = 1.0
    first: int = 0
    end: int | None = None

    @classmethod
    def parse(cls, text: str) -> Slow:
        form = (
            "--slow rank=3,factor=3 (factor 1 or more, up to a million), or with share=0.25 (above 0, up to 1), "
            "or with from=100 or until=200 (steps)"
        )
        pairs = named_values(text, form, {"rank", "factor", "share", "from", "until"})
        try:
            slow = cls(
                parse_integer(pairs["rank"]),
                parse_real(pairs["factor"]),
                parse_real(pairs.get("share", "1")),
                parse_integer(pairs.get("from", "0")),
                parse_integer(pairs["until"]) if "until" in pairs else None,
            )
        except (KeyError, ValueError) as error:
            raise UsageError(f"{text!r} does not fit: write it as {form}") from error
        fits = slow.rank >= 0 and 1 <= slow.factor <= LARGEST_FACTOR and 0 < slow.share <= 1 and slow.first >= 0
        if not fits or (slow.end is not None and slow.end <= slow.first):
            raise UsageError(f"{text!r} does not fit: write it as {form}")
        return slow

    def lasts(self, step: int) -> bool:
        """Return whether it is so at this step."""
        return self.first <= step and (self.end is None or step < self.end)

    def __str__(self) -> str:
        share = "" if self.share == 1 else f",share={self.share:g}"
        first = f",from={self.first}" if self.first else ""
        end = "" if self.end is None else f",until={self.end}"
        return f"rank={self.rank},factor={self.factor:g}{share}{first}{end}"


class Slowness:
    """The slowness of one rank: a factor for each of its computations, one after the other."""

    def __init__(self, slow: Sequence[Slow], rank: int, seed: int) -> None:
        self._slow = [each for each in slow if each.rank == rank]
        self._random = random.Random(f"{seed} {rank}")
        self.never_struck = list(self._slow)

    def next_factor(self, step: int) -> float:
        """The factor of the next computation, one of step `step`; if several strike at once, the largest counts."""
        struck = [each for each in self._slow if self._random.random() < each.share and each.lasts(step)]
        if self.never_struck:
            self.never_struck = [each for each in self.never_struck if each not in struck]
        return max((each.factor for each in struck), default=1.0)


@dataclass(frozen=True)
class Fail:
    """A failure of rank `rank` as step `step` begins, or of messages that it sends from then on (steps count from 0).

    Attributes:
        share: the fraction of its messages that is struck, above 0 and up to 1.
        end: messages are struck only before step `end`; None: until the end of the run.
        delay_s: by how many seconds a message is delayed.
        heals_s: after how many seconds the rank is no longer cut off; None: never.
    """

    rank: int
    step: int
    how: How = "kill"
    share: float = 0.1
    end: int | None = None
    delay_s: float = 0.2
    heals_s: float | None = None

    @classmethod
    def parse(cls, text: str) -> Fail:
        form = (
            "--fail rank=2,step=30,how=kill (or raise, or hang), or how=drop (or delay, duplicate, corrupt), "
            "which may have share=0.1 (above 0, up to 1), until=60 (a later step) and, of delay, delay=0.2 (seconds), "
            "or how=partition, which may have heals=2 (seconds)"
        )
        pairs = named_values(text, form, {"rank", "step", "how", "share", "until", "delay", "heals"})
        try:
            fail = cls(
                parse_integer(pairs["rank"]),
                parse_integer(pairs["step"]),
                cast(How, pairs.get("how", "kill")),
                parse_real(pairs["share"]) if "share" in pairs else cls.share,
                parse_integer(pairs["until"]) if "until" in pairs else None,
                parse_real(pairs["delay"]) if "delay" in pairs else cls.delay_s,
                parse_real(pairs["heals"]) if "heals" in pairs else None,
            )
        except (KeyError, ValueError) as error:
            raise UsageError(f"{text!r} does not fit: write it as {form}") from error
        fits = fail.rank >= 0 and fail.step >= 0 and fail.how in (*RANK_FAULTS, *MESSAGE_FAULTS, PARTITION)
        fits &= 0 < fail.share <= 1 and fail.delay_s > 0
        fits &= fail.end is None or fail.end > fail.step
        fits &= fail.how in MESSAGE_FAULTS or not pairs.keys() & {"share", "until"}
        fits &= fail.how == "delay" or "delay" not in pairs
        fits &= fail.heals_s is None or (fail.how == PARTITION and fail.heals_s > 0)
        if not fits:
            raise UsageError(f"{text!r} does not fit: write it as {form}")
        return fail

    @property
    def is_of_messages(self) -> bool:
        """Whether it strikes messages, also those to other ranks from a rank that is cut off."""
        return self.how in MESSAGE_FAULTS or self.how == PARTITION

    def lasts(self, step: int) -> bool:
        """Return whether the fault strikes messages of this step."""
        return self.step <= step and (self.end is None or step < self.end)

    def __str__(self) -> str:
        text = f"rank={self.rank},step={self.step},how={self.how}"
        if self.how in MESSAGE_FAULTS:
            text += f",share={self.share:g}" + ("" if self.end is None else f",until={self.end}")
        text += f",delay={self.delay_s:g}" if self.how == "delay" else ""
        return text + (f",heals={self.heals_s:g}" if self.heals_s is not None else "")

    def strike(self) -> None:
        """Have this rank fail, unless its failure ends: a partition that heals."""
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "raise":
            raise InjectedFault(f"--fail {self}")
        time.sleep(FOR_EVER_S if self.heals_s is None else self.heals_s)


def check_ranks(faults: Sequence[Slow | Fail], ranks: int) -> None:
    """Refuse a fault for a rank that does not exist."""
    for fault in faults:
        if fault.rank >= ranks:
            option = "--slow" if isinstance(fault, Slow) else "--fail"
            raise UsageError(f"{option} {fault}: there is no rank {fault.rank}; ranks are 0 to {ranks - 1}")


def check_steps(firsts: Mapping[str, int], steps: int | None) -> None:
    """Refuse options that begin at a step which no rank reaches.

    Args:
        firsts: each option, as given, and the step at which it begins.
        steps: the number of steps that a rank may take; None: unknown.
    """
    for option, step in firsts.items():
        if steps is not None and step >= steps:
            raise UsageError(f"{option} would never strike: the last step is {steps - 1}; give that or an earlier one")
