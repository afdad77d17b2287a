"""Top-k: push the k entries of largest magnitude, and add the rest to the next gradient.

Document 004's rule for a client's pushes. Entries that are not sent are added to the next gradient (error feedback), so
they are late but never lost: at any time

    Σ sent + residual = Σ gradients,    exactly.

`compression.top_k` chooses the entries; they are sent as keys and values, as in all pushes. Cost: k indices and k
values instead of n values. Sources: Aji & Heafield 2017; Lin et al., "Deep gradient compression", 2018.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.compression.top_k import count_of, largest


class TopK:
    """Chooses what one worker pushes.

    Args:
        fraction: k / n, above 0 and up to 1; at least one entry is sent.
    """

    def __init__(self, length: int, fraction: float, dtype: np.dtype[Any]) -> None:
        self.count = count_of(fraction, length)
        self.residual: NDArray[Any] = np.zeros(length, dtype)

    def choose(self, gradient: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the entries to send: their numbers, ascending, and their values."""
        self.residual += gradient
        entries = largest(self.residual, self.count)
        values = self.residual[entries]
        self.residual[entries] = 0
        return entries, values
