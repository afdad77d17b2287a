"""The method of farandole/data_parallel/mixed_precision.py in the form of this lab; the loss scale is its own.

There torch computes, on whatever device there is, and one of our all-reduces sends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farandole.data_parallel.loss_scale import LossScale
from farandole_tools.lab.half_network import HalfNetwork
from farandole_tools.lab.summing import SummingCommunicator


class MixedPrecision:
    def __init__(
        self, network: HalfNetwork, values: np.ndarray, rate: float, scale: LossScale, comm: SummingCommunicator
    ) -> None:
        self.network, self.rate, self.scale, self.comm = network, rate, scale, comm
        self.master = values.copy()

    def step(self, samples: Sequence[int], share: float) -> None:
        self.finish(self.gradient(samples, share))

    def gradient(self, samples: Sequence[int], share: float) -> np.ndarray:
        """Return this rank's contribution, in float32."""
        scale = self.scale.value
        half = self.master.astype(np.float16)
        gradient = self.network.backward(half, samples, scale).astype(np.float32)
        gradient *= share / scale
        return gradient

    def finish(self, gradient: np.ndarray) -> None:
        self.comm.all_reduce(gradient)
        finite = bool(np.isfinite(gradient).all())
        self.scale.observe(finite)
        if finite:
            self.update(gradient)

    def update(self, gradient: np.ndarray) -> None:
        self.master -= self.rate * gradient
