"""The memory of a rank of a divided training, counted while it trains; the formulas are in ``stages``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from farandole.model_parallel.memory import Memory
from farandole.models.muon import Matrix, numbers
from farandole.models.training_state import STATE_PER_PARAMETER


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


def remembered(optimizer: str, own: slice, matrices: Sequence[Matrix]) -> int:
    """Return how many numbers an optimizer keeps for the part `own` of a unit's vector.

    Args:
        optimizer: its name.
        matrices: of hidden layers, in the vector; of no account but for Muon.
    """
    return numbers(matrices, own) if optimizer == "muon" else STATE_PER_PARAMETER[optimizer] * (own.stop - own.start)


def account(
    measured: Meter, formula: dict[str, int], activations: tuple[int | None, int | None]
) -> dict[str, dict[str, int | None]]:
    """Return the memory as the record has it.

    Args:
        activations: measured and by formula; None where they are not known.
    """
    most = measured.most
    found = Memory(most["parameters"], most["gradients"], most["optimizer_state"], activations[0])
    return {"measured": asdict(found), "formula": asdict(Memory(**formula, activations=activations[1]))}
