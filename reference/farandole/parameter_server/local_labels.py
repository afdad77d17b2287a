"""The samples and targets of workers that know only some of the classes.

A sample goes to one of the workers that know its class; its target there is that worker's own
number for the class (`labels` says how such numbers become common ones).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from farandole.data.datasets import Dataset
from farandole.data.shares import equal_shares, slices
from farandole.parameter_server.labels import ABSENT

# What the classes 0 to 9 of the data sets are called.
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def numbered(targets: NDArray[np.int64], names: Sequence[str]) -> NDArray[np.int64]:
    """Digits in the numbering where `names[i]` has number i; ABSENT for those without a name there."""
    number = {name: place for place, name in enumerate(names)}
    return np.array([number.get(name, ABSENT) for name in DIGITS], dtype=np.int64)[targets]


def by_worker(dataset: Dataset, known: Sequence[Sequence[str]]) -> list[Dataset]:
    """Return each worker's samples, of classes that it knows, with its own numbers as targets.

    A class that several workers know is shared equally among them; every sample goes to one worker.

    Args:
        known: for each worker its labels' names, in its own numbering; together all classes.
    """
    rows: list[list[NDArray[np.intp]]] = [[] for _ in known]
    for digit, name in enumerate(DIGITS):
        samples = np.flatnonzero(dataset.targets == digit)
        knowing = [worker for worker, names in enumerate(known) if name in names]
        for worker, part in zip(knowing, slices(equal_shares(len(samples), len(knowing))), strict=True):
            rows[worker].append(samples[part])
    shards = []
    for names, own in zip(known, rows, strict=True):
        shard = dataset[np.sort(np.concatenate(own))]
        shards.append(Dataset(shard.inputs, numbered(shard.targets, names)))
    return shards
