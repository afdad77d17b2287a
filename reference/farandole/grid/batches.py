"""The data of one rank of a context line: its positions of every sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from farandole.model_parallel.batches import Shard


class PositionsShard(Shard):
    """A share of the training set, of which this rank has some positions.

    Attributes:
        positions: their numbers, in order; None: all.
    """

    positions: Tensor | None = None

    def batch(self, rows: NDArray[np.intp]) -> tuple[Tensor, Tensor]:
        inputs, targets = super().batch(rows)
        return (inputs, targets) if self.positions is None else (inputs[:, self.positions], targets[:, self.positions])
