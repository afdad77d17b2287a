"""Dynamic loss scaling (动态损失缩放): keeps small gradients from becoming 0 in half precision.

The smallest number float16 knows is 6e-8; gradients below it vanish (underflow, 下溢). So the loss, and with it every
gradient, is multiplied by a large number before backward, and the gradients are divided by it afterwards, in float32.
If the number is too large some become infinite (overflow, 溢出): then the step is left out and the number halved.

    an overflow               scale ← scale / 2, and no update
    2000 steps without one    scale ← 2·scale

Cost: one step in 2000 that is tried in vain, and those at the beginning until the number fits. Sources: Micikevicius et
al., "Mixed precision training", 2018, section 3.2 (loss scaling, and skipping steps that overflow while the scale
adapts); the rule, 2¹⁶, ×2 after 2000 and ×½, is that of NVIDIA's Apex and of torch.amp.GradScaler.
"""

from __future__ import annotations

from collections.abc import Mapping

FIRST = 2.0**16
PATIENCE = 2000  # steps without overflow before a larger scale is tried
LEAST = 1.0


class LossScale:
    """The number, decided on the same way by all ranks, for all see the same overflows.

    Attributes:
        value: by which the loss is to be multiplied now; always a power of two, so that it costs no bit.
        skipped: number of steps that were skipped.
    """

    def __init__(self, value: float = FIRST, patience: int = PATIENCE) -> None:
        self.value = value
        self.patience = patience
        self.skipped = 0
        self._good = 0

    def observe(self, finite: bool) -> None:
        """Record whether a step's gradients are finite; if not, the step must be skipped."""
        if not finite:
            self.value = max(LEAST, self.value / 2)
            self.skipped += 1
            self._good = 0
            return
        self._good += 1
        if self._good == self.patience:
            self.value *= 2
            self._good = 0

    def state(self) -> dict[str, float]:
        """Return the state of the scale: a training that restarts at 65536 would skip other steps."""
        return {"value": self.value, "good": self._good, "skipped": self.skipped}

    def restore(self, state: Mapping[str, float]) -> None:
        """Return to a recorded `state`."""
        self.value, self._good, self.skipped = state["value"], int(state["good"]), int(state["skipped"])
