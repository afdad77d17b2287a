"""The parts of the state that each of ZeRO's stages divides over N ranks, and a rank's memory, by formula.

    stage 1    the optimizer's state        Ψ + Ψ + KΨ/N
    stage 2    gradients too                Ψ + Ψ/N + KΨ/N
    stage 3    and parameters               Ψ/N + Ψ/N + KΨ/N

with Ψ bytes of parameters, as many of gradients, and K times as much optimizer state (`held`). A rank that trains holds
more for a moment (`by_formula`): u, the largest unit, while it is gathered, or until its gradient is reduced; r, the
root unit, which is gathered during the whole step. Stage 2 then takes u + r more, stage 3 twice that. In bfloat16 a
unit's gradient is added up in a copy of 4 bytes for each of its 2. Muon's step holds a gathered unit. What else an
update makes for a moment, of this rank's parts, is not counted. Source:
Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020, section 5 and figure
1; its 2Ψ + 2Ψ + KΨ counts bytes of Ψ half-precision parameters, with K = 12 for Adam and float32 copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from farandole.sharded.options import Sharding

DIVIDED = ("optimizer_state", "gradients", "parameters")  # stage s divides the first s of them


def is_divided(kind: str, stage: int) -> bool:
    """Return whether this stage divides parameters, gradients or optimizer_state; stage 0 divides nothing."""
    return kind in DIVIDED[:stage]


def held(whole: Mapping[str, float], stage: int, ranks: int) -> dict[str, float]:
    """Return the bytes by kind on one of `ranks`, between steps.

    Args:
        whole: of each kind, where nothing is divided.
    """
    return {kind: nbytes / ranks if is_divided(kind, stage) else nbytes for kind, nbytes in whole.items()}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model's units, in bytes.

    Attributes:
        units: of each, in the type in which it computes; where there is a root unit, it is the first.
        parts: of this rank's parts of all, in the type in which they are kept.
        root: of the root unit, 0 if there is none.
        state: of what the optimizers remember for these parts.
        step: the most that an optimizer needs beside that, while it moves the parts of one unit.
        passes: micro-batches of a step.
        widened: bytes in which a gradient is added up, for each byte of it; 0: in place.
    """

    units: Sequence[int]
    parts: int
    root: int
    state: int = 0
    step: int = 0
    passes: int = 1
    widened: int = 0

    def in_flight(self, prefetch: bool) -> int:
        """Return the most that is gathered at once: the root unit, and another one, or two that follow each other."""
        others = [*(self.units[1:] if self.root else self.units), 0]
        pairs = pairwise(others) if prefetch else ((each, 0) for each in others)
        return self.root + max(map(sum, pairs))

    def gradients_in_flight(self, prefetch: bool) -> int:
        """Return the most of whole gradients, and of the copies in which they are added up.

        With prefetch a unit's gradient is still added up while the unit before it computes its own; and while the next
        micro-batch's pass comes to the last unit. The root unit's gradient is there during a whole pass, and added up
        at its end.
        """
        others = self.units[1:] if self.root else self.units
        adding = 1 + self.widened
        most = [self.root * adding, self.root + max(others, default=0) * adding]
        if prefetch:
            most += [self.root + before + each * adding for before, each in pairwise(others)]
            if self.passes > 1 and others:
                most.append(self.root + others[-1] + (self.root or others[0]) * adding)
        return max(most)


def by_formula(sharding: Sharding, sizes: Sizes, on_device: bool) -> dict[str, int]:
    """Return what a rank should hold on its device, in bytes, by kind.

    Args:
        on_device: whether the rank's parts are there.
    """
    whole, in_flight = sum(sizes.units), sizes.in_flight(sharding.prefetch)
    parts = sizes.parts if on_device else 0
    masters = parts if sharding.half else 0
    stage = sharding.stage
    return {
        "parameters": parts - masters + in_flight if is_divided("parameters", stage) else whole,
        "gradients": parts + sizes.gradients_in_flight(sharding.prefetch)
        if is_divided("gradients", stage)
        else whole + masters + sizes.widened * max(sizes.units),
        "optimizer_state": masters + (sizes.state if on_device and sharding.offload != "disk" else 0) + sizes.step,
    }
