"""Sparse logistic regression: the gradient of the used rows is the whole gradient, and SGD on it learns."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from farandole.data import text
from farandole.models.sparse_logistic import gradient, predict, touched_rows

BUCKETS, CLASSES = 1 << 12, 8


@pytest.fixture(scope="module")
def passages() -> text.SparseDataset:
    return text.load(BUCKETS, CLASSES)


def dense(dataset: text.SparseDataset) -> torch.Tensor:
    matrix = torch.zeros(len(dataset), BUCKETS)
    for sample, (start, stop) in enumerate(pairwise(dataset.indptr)):
        matrix[sample, dataset.indices[start:stop]] = torch.from_numpy(dataset.values[start:stop])
    return matrix


def random_table(scale: float) -> NDArray[np.float32]:
    return (scale * np.random.default_rng(1).normal(size=(BUCKETS, CLASSES))).astype(np.float32)


@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_gradient_is_that_of_autograd_on_the_dense_table(passages: text.SparseDataset, size: int, scale: float) -> None:
    batch = passages[np.random.default_rng(size).permutation(len(passages))[:size]]
    table = random_table(scale)
    dense_table = torch.from_numpy(table).requires_grad_()
    expected = cross_entropy(dense(batch) @ dense_table, torch.from_numpy(batch.targets))
    expected.backward()
    assert dense_table.grad is not None

    loss, rows, row_gradients = gradient(table[touched_rows(batch)], batch)

    assert math.isclose(loss, expected.item(), rel_tol=1e-4)
    assert rows.tolist() == sorted(set(batch.indices.tolist()))
    assert row_gradients.shape == (len(rows), CLASSES)
    assert row_gradients.dtype == np.float32
    np.testing.assert_allclose(row_gradients, dense_table.grad[rows].numpy(), rtol=1e-4, atol=1e-6)
    untouched = np.setdiff1d(np.arange(BUCKETS), rows)
    assert not dense_table.grad[untouched].any(), "the rows left out have no gradient"


def test_gradients_of_parts_add_up_by_their_shares(passages: text.SparseDataset) -> None:
    batch, table = passages[slice(0, 60)], random_table(1.0)
    _, rows, whole = gradient(table[touched_rows(batch)], batch)
    summed = np.zeros((BUCKETS, CLASSES), dtype=np.float32)
    for part in (batch[slice(0, 10)], batch[slice(10, 60)]):
        _, part_rows, part_gradients = gradient(table[touched_rows(part)], part)
        summed[part_rows] += len(part) / len(batch) * part_gradients
    np.testing.assert_allclose(summed[rows], whole, rtol=1e-4, atol=1e-6)


def test_an_empty_batch_touches_nothing(passages: text.SparseDataset) -> None:
    loss, rows, row_gradients = gradient(np.empty((0, CLASSES), dtype=np.float32), passages[slice(0, 0)])
    assert (loss, len(rows), row_gradients.shape) == (0.0, 0, (0, CLASSES))
    assert len(predict(random_table(1.0), passages[slice(0, 0)])) == 0


def test_prediction_is_the_largest_logit(passages: text.SparseDataset) -> None:
    table = random_table(1.0)
    expected = (dense(passages) @ torch.from_numpy(table)).argmax(dim=1)
    assert np.mean(predict(table, passages) == expected.numpy()) > 0.999  # equal but for logits a rounding apart


def test_plain_sgd_learns_the_topics() -> None:
    """Over 20 seeds the test accuracy was 0.86 on average (Python 3.11); the largest topic alone has 0.25."""
    accuracies = []
    for seed in range(3):
        splits = text.split(text.load(), seed)
        table = np.zeros((1 << 16, CLASSES), dtype=np.float32)
        generator = np.random.default_rng(seed)
        for _ in range(10):
            order = generator.permutation(len(splits.train))
            for start in range(0, len(order), 64):
                batch = splits.train[order[start : start + 64]]
                _, rows, row_gradients = gradient(table[touched_rows(batch)], batch)
                table[rows] -= np.float32(30.0) * row_gradients
        accuracies.append(np.mean(predict(table, splits.test) == splits.test.targets))
    assert np.mean(accuracies) > 0.8
