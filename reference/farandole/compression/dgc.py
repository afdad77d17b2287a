"""Deep gradient compression: top-k, with a momentum that is computed before the choice.

    u ← μ·u + g        momentum correction: each rank's own velocity …
    v ← v + u          … is what is accumulated until its turn comes
    send the k largest of v;   v, u ← 0 at these entries (momentum factor masking)

With plain error feedback and momentum afterwards, an entry that waits t steps arrives as one kick and loses the factors
that the momentum would have given it. Masking stops a velocity that has been sent from pushing on in an old direction.
Warm-up: early gradients change fast, so the fraction falls from near 1 to its final value f exponentially, f^((t+1)/T)
in the T steps of the warm-up. Clipping, if any, is of each rank's own gradient before it is accumulated, to
threshold / √P: P independent parts of that norm make a sum whose norm is the threshold. What a rank clips here is its
weighted part of the mean gradient, so the threshold is one for the mean.

This holds the momentum, so the optimizer must have none. Cost: 8k bytes, as top-k; two vectors of memory.
Source: Lin et al., "Deep gradient compression: reducing the communication bandwidth for distributed training", 2018.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from farandole.compression.compressor import Payload, Use, Vector, as_payload
from farandole.compression.top_k import count_of, largest, scattered


class DGC:
    """One rank's side; always the same length.

    Args:
        fraction: k / n after the warm-up.
        momentum: μ; with 0 it is top-k with error feedback.
        warm_up: T, in steps.
        clip: longest own gradient, already divided by √P; None: as long as it is.
    """

    sums_as: np.dtype[Any] | None = None

    def __init__(
        self, length: int, fraction: float, momentum: float = 0.9, warm_up: int = 0, clip: float | None = None
    ) -> None:
        self.final, self.momentum, self.warm_up, self.clip = fraction, momentum, warm_up, clip
        self.velocity: Vector = np.zeros(length, np.float32)
        self.residual: Vector = np.zeros(length, np.float32)
        self._steps = 0

    @property
    def fraction(self) -> float:
        """Of the next step."""
        return float(self.final ** min(1.0, (self._steps + 1) / max(1, self.warm_up)))

    def nbytes(self, length: int) -> int:
        return 8 * count_of(self.fraction, length)

    def variance(self, length: int) -> float:
        return 0.0

    def encode(self, vector: Vector) -> Payload:
        if not np.isfinite(vector).all():  # every rank detects it, and none keeps it
            places = largest(vector, count_of(self.fraction, len(vector)))
            self._steps += 1
            return as_payload(places.astype(np.uint32), vector[places])
        norm = float(np.linalg.norm(vector.astype(np.float64))) if self.clip else 0.0  # squares overflow in float32
        factor = np.float32(self.clip / norm if self.clip and norm > self.clip else 1)
        self.velocity *= np.float32(self.momentum)
        self.velocity += vector * factor
        self.residual += self.velocity
        places = largest(self.residual, count_of(self.fraction, len(vector)))
        self._steps += 1
        values = self.residual[places]
        self.residual[places] = self.velocity[places] = 0
        return as_payload(places.astype(np.uint32), values)

    def decode(self, payload: Payload, length: int) -> Vector:
        return scattered(payload, length)


def make(use: Use) -> DGC:
    """Return the compressor of one rank: the whole --clip is that of all ranks' gradients together."""
    options = use.options
    clip = options.clip / sqrt(use.ranks) if options.clip else None
    return DGC(use.length, options.fraction, options.dgc_momentum, options.sparsity_warm_up, clip)
