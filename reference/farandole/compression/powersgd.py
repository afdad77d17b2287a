"""PowerSGD: each matrix of the gradient as the product of two thin ones, by one step of the power iteration.

For a matrix M = Σ_r M_r of m×n, where rank r has M_r, and a thin Q of n×k that is the same on all ranks:

    P ← Σ_r M_r Q          an all-reduce of m·k numbers
    P ← orthogonalise(P)
    Q ← Σ_r M_rᵀ P         an all-reduce of n·k numbers
    M̂ = P Qᵀ

The result depends on M alone, not on how it is divided among ranks, and is exact where M's rank is at most k. The next
step begins with this Q (warm start): gradients change slowly, so over the steps the power iteration converges to the
best approximation. Each rank keeps M_r − M̂/K, K the number of ranks, for the next step (error feedback).

Cost: two all-reduces, of k(m + n) numbers together instead of mn; what is no matrix, and a matrix for which that is no
gain, goes as it is, with the first. Source: Vogels, Karimireddy & Jaggi, "PowerSGD: practical low-rank gradient
compression for distributed optimization", 2019 (document 001's matrix compression).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from farandole.compression.compressor import Use, Vector

Matrix = Vector  # with two axes


class PowerSGD:
    """One rank's side. A round is `project`, all-reduce, `project_back`, all-reduce, `decode`.

    Args:
        shapes: of the tensors that make up the vector, in order; of more than two axes the first stays, and the
            others are taken as one.
        rank: k.
        ranks: how many take part.
        generator: seeded alike on all ranks; for the first Q.
        feedback: keep what is lost.

    Attributes:
        right: each compressed matrix's Q.
        residual: what has not been sent yet.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        rank: int,
        ranks: int,
        generator: np.random.Generator,
        feedback: bool = True,
    ) -> None:
        self.ranks, self.feedback = ranks, feedback
        self.matrices, self.plain = divided(shapes, rank)
        self.rank = rank
        self.right: list[Matrix] = [
            orthogonalised(generator.standard_normal((columns, rank), np.float32)) for _, _, columns in self.matrices
        ]
        self.residual: Vector = np.zeros(sum(map(prod, shapes)), np.float32)
        self._left: list[Matrix] = []
        self._plain: Vector = np.zeros(0, np.float32)
        self._vector = self.residual

    def nbytes(self) -> tuple[int, int]:
        """Return the bytes that each of the two all-reduces carries."""
        return _carried(self.matrices, self.plain, self.rank)

    def project(self, vector: Vector) -> Vector:
        """Return this rank's part of every P, and what goes as it is: to be summed over the ranks."""
        self._vector = vector + self.residual
        parts = [each @ right for each, right in zip(self._own(), self.right, strict=True)]
        return _joined(parts + [self._vector[place] for place in self.plain])

    def project_back(self, summed: Vector) -> Vector:
        """Return this rank's part of every Q, from the sum of what `project` has given: to be summed over the ranks."""
        left, plain = _cut(summed, [(rows, self.rank) for _, rows, _ in self.matrices])
        # All ranks orthogonalise the same bits, and get the same bits.
        self._left, self._plain = [orthogonalised(each) for each in left], plain
        return _joined([each.T @ left for each, left in zip(self._own(), self._left, strict=True)])

    def decode(self, summed: Vector) -> Vector:
        """Return the approximated sum, from the sum of what `project_back` has given."""
        right, _ = _cut(summed, [(columns, self.rank) for _, _, columns in self.matrices])
        result = np.zeros_like(self._vector)
        for (place, _, _), left, each in zip(self.matrices, self._left, right, strict=True):
            result[place] = (left @ each.T).reshape(-1)
        if not np.isfinite(result).all() or not np.isfinite(self._plain).all():
            result[:] = np.nan  # every rank detects it; residual and basis stay as they were
            return result
        if self.feedback:
            self.residual = self._vector - result / np.float32(self.ranks)
            for place in self.plain:
                self.residual[place] = 0
        offset = 0
        for place in self.plain:
            length = place.stop - place.start
            result[place] = self._plain[offset : offset + length]
            offset += length
        self.right = [orthogonalised(each) for each in right]
        return result

    def _own(self) -> list[Matrix]:
        return [self._vector[place].reshape(rows, columns) for place, rows, columns in self.matrices]


def divided(shapes: Sequence[tuple[int, ...]], rank: int) -> tuple[list[tuple[slice, int, int]], list[slice]]:
    """Return the matrices that are compressed, as (place, rows, columns), and the places of what goes as it is."""
    matrices, plain, offset = [], [], 0
    for shape in shapes:
        place = slice(offset, offset + prod(shape))
        rows, columns = (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, prod(shape))
        if rank * (rows + columns) < rows * columns:
            matrices.append((place, rows, columns))
        else:
            plain.append(place)
        offset = place.stop
    return matrices, plain


def nbytes(shapes: Sequence[tuple[int, ...]], rank: int) -> tuple[int, int]:
    """Return what the two all-reduces carry for tensors of these shapes, without making a compressor for them."""
    return _carried(*divided(shapes, rank), rank)


def _carried(matrices: Sequence[tuple[slice, int, int]], plain: Sequence[slice], rank: int) -> tuple[int, int]:
    first = sum(rows * rank for _, rows, _ in matrices) + sum(each.stop - each.start for each in plain)
    return 4 * first, 4 * sum(columns * rank for _, _, columns in matrices)


def orthogonalised(matrix: Matrix) -> Matrix:
    """Return an orthonormal basis of its columns' span; columns that add nothing to it are replaced by others."""
    if not np.isfinite(matrix).all():
        return np.full_like(matrix, np.nan)  # decoded, all of the matrix is NaN
    return np.linalg.qr(matrix)[0].astype(np.float32)


def _joined(parts: Sequence[Vector]) -> Vector:
    return np.concatenate([np.zeros(0, np.float32), *(part.reshape(-1) for part in parts)])


def _cut(vector: Vector, shapes: Sequence[tuple[int, int]]) -> tuple[list[Matrix], Vector]:
    """Matrices of these shapes, one after the other, and what is left."""
    matrices, offset = [], 0
    for rows, columns in shapes:
        matrices.append(vector[offset : offset + rows * columns].reshape(rows, columns))
        offset += rows * columns
    return matrices, vector[offset:]


def make(use: Use) -> PowerSGD:
    return PowerSGD(use.shapes, use.options.matrix_rank, use.ranks, use.common, use.feedback)
