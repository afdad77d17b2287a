"""A stream of samples whose distribution drifts: real digits that turn further and further.

Online learning meets each sample once and has to follow what changes. Here the change is known:
the sample at position p of the stream's n is turned by degrees · p / (n − 1), counter-clockwise,
and a model that has stopped learning at 0° gets worse and worse (a "rotating MNIST", as studied for
concept drift). The positions are dealt to the workers in turn, p to worker p mod workers, so that
all of them see the same angle at the same time. Document 000's online incremental training uses it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from farandole.data.datasets import Dataset
from farandole.errors import UsageError


class RotatingDigits:
    """Yields one worker's batches, (inputs, targets), until the stream's end.

    The samples come in a seeded order that begins anew, shuffled differently, whenever the data set
    is used up. Every worker holds the whole set; the shape of a batch is (samples, channels, height, width).

    Args:
        dataset: the upright digits.
        samples_total: length of the stream, over all workers.
        degrees: the angle at the stream's last position; it begins at 0.
        worker, workers: whose sub-stream this is, of how many.
        batch: samples that a worker takes at a time; its last batch may be smaller.

    Raises:
        UsageError: there is no such worker, less than one sample for each or in a batch, or no finite angle.
    """

    def __init__(
        self,
        dataset: Dataset,
        samples_total: int,
        degrees: float,
        seed: int,
        worker: int = 0,
        workers: int = 1,
        batch: int = 16,
    ) -> None:
        if not 0 <= worker < workers:
            raise UsageError(f"there is no worker {worker}: with {workers}, they are numbered from 0 to {workers - 1}")
        if samples_total < workers:
            raise UsageError(f"a stream of {samples_total} samples is too short for {workers} workers: one each")
        if batch < 1:
            raise UsageError(f"a batch of {batch} samples: must be at least 1")
        if not math.isfinite(degrees):
            raise UsageError(f"{degrees} degrees: must be a finite number")
        self.dataset, self.samples_total, self.degrees, self.seed = dataset, samples_total, degrees, seed
        self.worker, self.workers, self.batch = worker, workers, batch
        self.step = 0

    @property
    def steps(self) -> int:
        """Batches in this worker's sub-stream."""
        return math.ceil(self._samples / self.batch)

    def __iter__(self) -> RotatingDigits:
        return self

    def __next__(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        if self.step >= self.steps:
            raise StopIteration
        positions = self.positions(self.step)
        samples = self.dataset[self.sample_numbers(positions)]
        self.step += 1
        return rotated(samples.inputs, self.angles(positions)), samples.targets

    def positions(self, step: int) -> NDArray[np.int64]:
        """Where in the whole stream the samples of this worker's batch number `step` stand."""
        start = step * self.batch
        return np.arange(start, min(start + self.batch, self._samples)) * self.workers + self.worker

    def angles(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """By how many degrees the samples at these positions are turned."""
        return self.degrees * positions / max(self.samples_total - 1, 1)

    def sample_numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which samples of the data set stand at these positions, which ascend."""
        rounds, places = np.divmod(positions, len(self.dataset))
        return np.concatenate([self._order(number)[places[rounds == number]] for number in np.unique(rounds)])

    def state(self) -> dict[str, int]:
        """Return the position: with it and the same stream, the sequence goes on exactly where it was."""
        return {"seed": self.seed, "worker": self.worker, "workers": self.workers, "step": self.step}

    def restore(self, state: Mapping[str, int]) -> None:
        """Go to a position that `state` returned."""
        self.seed, self.step = state["seed"], state["step"]
        self.worker, self.workers = state["worker"], state["workers"]

    @property
    def _samples(self) -> int:
        return len(range(self.worker, self.samples_total, self.workers))

    def _order(self, number: int) -> NDArray[np.int64]:
        # A fresh generator per round: any position can be reached without replaying the ones before.
        return np.random.default_rng([self.seed, number]).permutation(len(self.dataset))


def rotated(inputs: NDArray[np.float32], degrees: NDArray[np.float64]) -> NDArray[np.float32]:
    """Turn each image about its centre, counter-clockwise, with bilinear interpolation; outside is 0.

    Args:
        inputs: of shape (samples, channels, height, width).
        degrees: the angle of each sample, of shape (samples,).
    """
    height, width = inputs.shape[2:]
    angles = np.deg2rad(degrees)[:, None, None]
    y, x = np.ogrid[:height, :width]
    y, x = y - (height - 1) / 2, x - (width - 1) / 2
    # Where each pixel of the result comes from, (samples, height, width); rows count downwards.
    source_y = np.cos(angles) * y + np.sin(angles) * x + (height - 1) / 2
    source_x = np.cos(angles) * x - np.sin(angles) * y + (width - 1) / 2
    top, left = np.floor(source_y).astype(np.int64), np.floor(source_x).astype(np.int64)
    # A border of zeros, onto which everything outside is clipped.
    padded = np.pad(inputs, ((0, 0), (0, 0), (1, 1), (1, 1)))
    sample = np.arange(len(inputs))[:, None, None]
    result = np.zeros((len(inputs), height, width, inputs.shape[1]))
    for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
        weight = (1 - np.abs(source_y - row)) * (1 - np.abs(source_x - column))
        neighbour = padded[sample, :, np.clip(row + 1, 0, height + 1), np.clip(column + 1, 0, width + 1)]
        result += weight[..., None] * neighbour
    return np.ascontiguousarray(np.moveaxis(result, -1, 1), dtype=np.float32)
