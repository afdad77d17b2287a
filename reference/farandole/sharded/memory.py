"""What a rank holds of a divided training: counted while it trains, and by formula.

With Ψ bytes of parameters, K times as much optimizer state and N ranks:

    stage 1    Ψ + Ψ + KΨ/N                         only the optimizer's state is divided
    stage 2    Ψ + (Ψ/N + u + r) + KΨ/N             gradients too
    stage 3    2·(Ψ/N + u + r) + KΨ/N               and parameters

The paper's formulas are those without u and r. They are what a rank holds for a moment: u, the largest unit, while it
is gathered, or until its gradient is reduced; r, the root unit, which is gathered during the whole step.
Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020, figure 1; its
2Ψ + 2Ψ + KΨ counts bytes of half-precision numbers, with K = 12 for Adam and float32 copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from farandole.model_parallel.accounting import STATE_PER_PARAMETER
from farandole.model_parallel.memory import Memory


class Meter:
    """Counts the bytes that a rank holds, by kind.

    Attributes:
        most: kind → the largest number of bytes held at once.
    """

    def __init__(self) -> None:
        self._now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def hold(self, kind: str, nbytes: int) -> None:
        """Count `nbytes` more bytes of `kind`, or fewer where it is negative."""
        self._now[kind] += nbytes
        self.most[kind] = max(self.most[kind], self._now[kind])


def by_formula(stage: int, nbytes: Sequence[int], own: Sequence[int], root: int, optimizer: str) -> dict[str, int]:
    """Return what a rank should hold, in bytes, by kind.

    Args:
        nbytes: of the parameters of each unit; where there is a root unit, it is the first.
        own: of this rank's part of each.
        root: of the root unit, 0 if there is none.
        optimizer: its name.
    """
    whole, part = sum(nbytes), sum(own)
    in_parts = part + root + max(nbytes[1:] if root else nbytes, default=0)
    return {
        "parameters": in_parts if stage == 3 else whole,
        "gradients": in_parts if stage > 1 else whole,
        "optimizer_state": STATE_PER_PARAMETER[optimizer] * part,
    }


def account(measured: Meter, formula: dict[str, int]) -> dict[str, dict[str, int | None]]:
    """Return the memory as the record has it; activations are those of any data-parallel training, and not counted."""
    most = measured.most
    found = Memory(most["parameters"], most["gradients"], most["optimizer_state"], None)
    return {"measured": asdict(found), "formula": asdict(Memory(**formula, activations=None))}
