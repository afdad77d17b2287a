"""Multinomial logistic regression on sparse samples, its parameters a table of rows.

The table W has a row per feature and a column per class, and starts at zero. With samples X and
targets y, the loss is the mean of −ln softmax(X W)[y] and its gradient Xᵀ (softmax(X W) − y) / n,
which is zero in every row that no sample of the batch has as a feature. So a batch needs its own
rows only, and only they change: what a worker pulls from and pushes to a parameter server.

Cost: 4 K operations for each entry of the batch, with K classes. No matrix library is called, whose
threads would be in each other's way where many ranks share few cores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from farandole.data.text import SparseDataset

Array = NDArray[np.floating]  # float32, or float64 to compare two ways of computing the same


def touched_rows(batch: SparseDataset) -> NDArray[np.int64]:
    """Return the rows of the table that the batch needs and changes, ascending."""
    return np.unique(batch.indices)


def gradient(table_rows: Array, batch: SparseDataset) -> tuple[float, NDArray[np.int64], Array]:
    """Return the loss and its gradient, from the touched rows alone.

    Args:
        table_rows: `table[touched_rows(batch)]`, of shape (rows, classes).

    Returns:
        The mean cross-entropy (0 for an empty batch), the touched rows, ascending, and the
        gradient of each, of shape (rows, classes).
    """
    rows = touched_rows(batch)
    samples, places = _samples(batch), np.searchsorted(rows, batch.indices)  # of each entry
    logits = _sums(batch.values[:, None] * table_rows[places], samples, len(batch))
    logits -= logits.max(axis=1, keepdims=True)  # softmax stays the same, and exp cannot overflow
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    right = np.arange(len(batch)), batch.targets
    count = max(len(batch), 1)
    loss = -float(log_probabilities[right].sum()) / count
    errors = np.exp(log_probabilities)
    errors[right] -= 1
    return loss, rows, _sums(batch.values[:, None] * errors[samples], places, len(rows)) / np.float32(count)


def predict(table: Array, dataset: SparseDataset) -> NDArray[np.int64]:
    """Return the likeliest class of each sample, from the whole table of shape (features, classes)."""
    logits = _sums(dataset.values[:, None] * table[dataset.indices], _samples(dataset), len(dataset))
    guesses: NDArray[np.int64] = np.argmax(logits, axis=1)
    return guesses


def _samples(batch: SparseDataset) -> NDArray[np.int64]:
    """To which sample each entry of the batch belongs."""
    return np.repeat(np.arange(len(batch)), np.diff(batch.indptr))


def _sums(parts: Array, groups: NDArray[np.int64], count: int) -> Array:
    """Add up the rows of `parts` that belong to the same one of `count` groups; (entries, K) → (count, K)."""
    classes = parts.shape[1]
    places = groups[:, None] * classes + np.arange(classes)
    # np.add.at says it more plainly, and takes three times as long.
    sums = np.bincount(places.ravel(), weights=parts.ravel(), minlength=count * classes)
    return sums.reshape(count, classes).astype(parts.dtype)
