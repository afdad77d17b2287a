"""Muon: the matrices of hidden layers move in orthogonal directions; everything else moves as AdamW says.

    m ← βm + (1−β)g                          for each matrix, β = 0.95
    d = βm + (1−β)g                          Nesterov's look ahead
    w ← w − η·0.2·√max(rows, columns)·O(d)   O: nearly UVᵀ, for d = UΣVᵀ

A gradient of a matrix is mostly of low rank: a few directions are long, and a step along it hardly moves in the others.
O gives all directions of d about the same length. It is computed without a decomposition, by five Newton-Schulz steps
on d/‖d‖, each of which is an odd polynomial of d, and so one of every singular value:

    X ← aX + (bA + cA²)X,  A = XXᵀ           a, b, c = 3.4445, −4.7750, 2.0315: takes singular values to 0.7 … 1.2

The factor 0.2·√max(rows, columns) gives a step the length that AdamW's steps usually have, so that both share a rate
and a decoupled decay. Embeddings, the last layer, biases and gains are not hidden matrices: they get AdamW. A
convolution's weights count as a matrix with a row for each output channel.

Muon remembers one number for each element of a matrix, where Adam remembers two. A rank that keeps only a part of a
vector needs all of d for O: `gather` brings it, and each rank computes the matrices of which it has a part.

Cost: for a matrix r×c with r ≤ c about 5·(4r²c + 2r³) operations a step. Sources: Jordan et al., "Muon: an optimizer
for hidden layers in neural networks", 2024 (with these coefficients); Liu et al., "Muon is scalable for LLM training",
2025 (the factor, and divided states).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from farandole.models.optimizers import SGD, adam_moments, adam_state

STEPS = 5
A, B, C = 3.4445, -4.7750, 2.0315
TINY = 1e-7


def orthogonalised(matrix: Tensor) -> Tensor:
    """Return UVᵀ of matrix = UΣVᵀ, to singular values between 0.7 and 1.2; shape (rows, columns).

    Memory: `work` numbers, of which the result is a part.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalised(matrix.T).T
    x = torch.div(matrix, matrix.norm().clamp(min=TINY))
    gram, square = (x.new_empty(len(x), len(x)) for _ in range(2))
    following = torch.empty_like(x)
    for _ in range(STEPS):
        torch.mm(x, x.T, out=gram)
        torch.addmm(gram, gram, gram, beta=B, alpha=C, out=square)
        torch.addmm(x, square, x, beta=A, out=following)
        x, following = following, x
    return x


def work(rows: int, columns: int) -> int:
    """Return how many numbers `orthogonalised` holds: two matrices of this shape, and two squares of its short side."""
    return 2 * rows * columns + 2 * min(rows, columns) ** 2


@dataclass(frozen=True)
class Matrix:
    """A hidden layer's matrix: where it lies in a vector of parameters, and its shape."""

    start: int
    rows: int
    columns: int

    @property
    def stop(self) -> int:
        return self.start + self.rows * self.columns


def hidden(model: nn.Module) -> set[nn.Parameter]:
    """Return the trained parameters of `model` that are matrices of hidden layers."""
    embedded = {module.weight for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)}
    named = model.named_parameters(remove_duplicate=False)  # the last layer's may be an embedding's
    found = [each for name, each in named if each.requires_grad and each.dim() > 1 and name.endswith("weight")]
    return {*found} - {*found[-1:]} - embedded


def matrices(parameters: Sequence[nn.Parameter], wanted: Collection[nn.Parameter]) -> list[Matrix]:
    """Return where those `wanted` lie in the vector of all `parameters`."""
    found, start = [], 0
    for each in parameters:
        if each in wanted:
            found.append(Matrix(start, len(each), each[0].numel()))
        start += each.numel()
    return found


class Muon(SGD):
    """Moves a vector of parameters, or the part `own` of one.

    Args:
        matrices: of the whole vector, in order.
        own: which part of the whole vector `values` is; by default all of it.
        gather: this rank's part of a vector → the whole vector. Collective.
        hold: is told of the numbers that a step takes memory for, and, negative, of those that it lets go.
    """

    def __init__(
        self,
        values: Tensor,
        gradients: Tensor,
        lr: float,
        matrices: Sequence[Matrix],
        own: slice | None = None,
        gather: Callable[[Tensor], Tensor] | None = None,
        momentum: float = 0.95,
        hold: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(values, gradients, lr)
        self.momentum, self.matrices = momentum, matrices
        self.own = own or slice(0, len(values))
        self.gather, self.hold = gather, hold or (lambda _: None)
        self._parts = [part for matrix in matrices if (part := self._part(matrix.start, matrix.stop))]
        ends = [0, *(end for matrix in matrices for end in (matrix.start, matrix.stop)), self.own.stop]
        between = zip(ends[::2], ends[1::2], strict=True)
        self._others = [other for start, stop in between if (other := self._part(start, stop))]
        self.state["momentum"] = torch.zeros_like(_joined(values, self._parts))
        self.state |= adam_state(_joined(values, self._others))

    def _move(self) -> None:
        if self.matrices:
            self._move_matrices()
        mean, root, correction = adam_moments(self.state, _joined(self.gradients, self._others))
        for part, direction in self._divided(self._others, mean / root):
            self.values[part].sub_(direction, alpha=self.lr / correction)

    def _move_matrices(self) -> None:
        ahead = self._looked_ahead()
        if self.gather:
            whole = self.gather(ahead)
            self.hold(len(whole))
            self.hold(-len(ahead))
        else:
            whole = ahead
        del ahead
        for matrix in self.matrices:
            if own := self._part(matrix.start, matrix.stop):
                self.hold(work(matrix.rows, matrix.columns))
                direction = orthogonalised(whole[matrix.start : matrix.stop].view(matrix.rows, matrix.columns))
                begin = own.start + self.own.start - matrix.start
                moved = direction.reshape(-1)[begin : begin + own.stop - own.start]
                self.values[own].sub_(moved, alpha=self.lr * 0.2 * max(matrix.rows, matrix.columns) ** 0.5)
                self.hold(-work(matrix.rows, matrix.columns))
        self.hold(-len(whole))

    def _looked_ahead(self) -> Tensor:
        """Return Nesterov's d where this rank has elements of matrices, and 0 elsewhere; shape of `values`."""
        self.hold(len(self.gradients))
        ahead = torch.zeros_like(self.gradients)
        for part, momentum in self._divided(self._parts, self.state["momentum"]):
            gradients = self.gradients[part]
            momentum.lerp_(gradients, 1 - self.momentum)
            torch.lerp(gradients, momentum, self.momentum, out=ahead[part])
        return ahead

    def _part(self, start: int, stop: int) -> slice | None:
        """Return where elements of the whole vector lie in `values`; None: elsewhere."""
        start, stop = max(start, self.own.start), min(stop, self.own.stop)
        return slice(start - self.own.start, stop - self.own.start) if start < stop else None

    @staticmethod
    def _divided(parts: Sequence[slice], vector: Tensor) -> Iterator[tuple[slice, Tensor]]:
        return zip(parts, vector.split([part.stop - part.start for part in parts]), strict=True)


def numbers(matrices: Sequence[Matrix], own: slice) -> int:
    """Return how many numbers Muon remembers for the part `own` of a vector: one or two for each of its elements."""
    inside: int = sum(max(0, min(each.stop, own.stop) - max(each.start, own.start)) for each in matrices)
    elements: int = own.stop - own.start
    return 2 * elements - inside


def of_a_step(matrices: Sequence[Matrix], own: slice, whole: int) -> int:
    """Return how many numbers a step holds for a moment, to move the part `own` of a vector of `whole` numbers.

    They are the gathered vector, with what this rank has given of it, or with the `work` of its largest matrix.
    """
    if not matrices:
        return 0
    touched = [each for each in matrices if max(each.start, own.start) < min(each.stop, own.stop)]
    beside: int = max([own.stop - own.start, *(work(each.rows, each.columns) for each in touched)])
    return whole + beside


def _joined(vector: Tensor, parts: Sequence[slice]) -> Tensor:
    return torch.cat([vector[part] for part in parts]) if parts else vector[:0]
