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
from dataclasses import asdict, dataclass
from itertools import pairwise

from farandole.model_parallel.accounting import STATE_PER_PARAMETER
from farandole.model_parallel.memory import Memory
from farandole.sharded.options import Sharding


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


@dataclass(frozen=True)
class Sizes:
    """How large a model's units are, in bytes.

    Attributes:
        units: of each, in the type in which it computes; where there is a root unit, it is the first.
        parts: of this rank's parts of all, in the type in which they are kept.
        root: of the root unit, 0 if there is none.
    """

    units: Sequence[int]
    parts: int
    root: int

    def in_flight(self, prefetch: bool) -> int:
        """Return the most that is gathered at once: the root unit, and another one, or two that follow each other."""
        others = [*(self.units[1:] if self.root else self.units), 0]
        pairs = pairwise(others) if prefetch else ((each, 0) for each in others)
        return self.root + max(map(sum, pairs))


def by_formula(sharding: Sharding, sizes: Sizes, optimizer: str, on_device: bool) -> dict[str, int]:
    """Return what a rank should hold on its device, in bytes, by kind.

    Args:
        optimizer: its name.
        on_device: whether the rank's parts are there.
    """
    whole, in_flight = sum(sizes.units), sizes.in_flight(sharding.prefetch)
    parts = sizes.parts if on_device else 0
    masters = parts if sharding.half else 0
    divided = sharding.stage > 1 or masters
    return {
        "parameters": parts - masters + in_flight if sharding.stage == 3 else whole,
        "gradients": (whole if sharding.stage == 1 else in_flight) + (parts if divided else 0),
        "optimizer_state": masters + (STATE_PER_PARAMETER[optimizer] * parts if sharding.offload != "disk" else 0),
    }


def account(measured: Meter, formula: dict[str, int]) -> dict[str, dict[str, int | None]]:
    """Return the memory as the record has it; activations are those of any data-parallel training, and not counted."""
    most = measured.most
    found = Memory(most["parameters"], most["gradients"], most["optimizer_state"], None)
    return {"measured": asdict(found), "formula": asdict(Memory(**formula, activations=None))}
