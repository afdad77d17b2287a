"""Label alignment: workers with different numberings of the classes agree on a common one.

Each worker has samples of some classes only, and has numbered these from 0. It sends the manager their names in this
order. The manager sorts the union of all names; a name's position is its common number. The workers then translate
their targets once and train one model together. Document 001 calls this the master's label information.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.errors import UsageError

ABSENT = -1


@dataclass(frozen=True)
class Alignment:
    """One space of labels for all workers.

    Attributes:
        names: the union of all workers' labels, sorted; a label's place is its common number.
        to_common: for each worker, int64 of shape (its labels,): local number → common number.
    """

    names: tuple[str, ...]
    to_common: tuple[NDArray[np.int64], ...]

    def to_local(self, worker: int) -> NDArray[np.int64]:
        """The way back, of shape (names,): common number → local number, ABSENT where the worker has no such label."""
        local = np.full(len(self.names), ABSENT, dtype=np.int64)
        local[self.to_common[worker]] = np.arange(len(self.to_common[worker]))
        return local


def align(local_label_names: Sequence[Sequence[str]]) -> Alignment:
    """Make the common space of labels.

    The result does not depend on the order of the workers, except that `to_common` follows it.

    Args:
        local_label_names: for each worker its labels' names, in its own numbering.

    Raises:
        UsageError: no workers, a worker without labels or with one that has no name, a name twice in a worker.
    """
    if not local_label_names:
        raise UsageError("no worker has sent its labels: at least 1 must")
    for worker, names in enumerate(local_label_names):
        _check(worker, names)
    union = sorted({name for names in local_label_names for name in names})
    number = {name: place for place, name in enumerate(union)}
    to_common = tuple(np.array([number[name] for name in names], dtype=np.int64) for names in local_label_names)
    return Alignment(tuple(union), to_common)


def local_label_sets(classes: Sequence[str], workers: int, per_worker: int, seed: int) -> list[list[str]]:
    """For demonstration: give each worker some of the classes, in a numbering of its own.

    The classes are laid on a circle, shuffled; each worker takes `per_worker` that follow each
    other, beginning at equal distances, and numbers them in this order. So every class is with some
    worker, and as soon as workers · per_worker exceeds the number of classes neighbours share some,
    numbered differently.

    Raises:
        UsageError: more labels for a worker than there are, or too few for all classes to be had.
    """
    if not 1 <= per_worker <= len(classes):
        raise UsageError(f"{per_worker} labels per worker: must be from 1 to the {len(classes)} classes")
    if workers * per_worker < len(classes):
        raise UsageError(
            f"{workers} workers with {per_worker} labels each cannot cover {len(classes)} classes: "
            f"give each at least {-(-len(classes) // max(workers, 1))}"
        )
    circle = np.random.default_rng(seed).permutation(len(classes))
    sets = []
    for worker in range(workers):
        first = worker * len(classes) // workers
        own = np.take(circle, range(first, first + per_worker), mode="wrap")
        sets.append([classes[number] for number in own])
    return sets


def _check(worker: int, names: Sequence[str]) -> None:
    if not names:
        raise UsageError(f"worker {worker} has no labels: each worker needs at least 1")
    if not all(names):
        raise UsageError(f"worker {worker} has a label without a name: each label needs one")
    repeated = [name for place, name in enumerate(names) if name in names[:place]]
    if repeated:
        raise UsageError(f"worker {worker} has the label {repeated[0]!r} twice: each must have one number only")
