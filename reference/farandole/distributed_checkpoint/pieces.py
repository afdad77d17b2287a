"""Where a rank's values lie in the tensors of the unsplit model.

Layouts divide tensors in two ways, and both at once: tensor ranks have a *box*, some of a matrix's columns or rows; and
the ranks that divide a flat vector (ZeRO) have a *run* of the box's elements, counted row by row.

    weight (4, 6), two tensor ranks, whose optimizer state is divided over two data ranks

        ┌───────┬───────┐     box      rows 0 to 4, columns 3 to 6: 12 elements
        │       │ ▒ ▒ ▒ │     run      elements 0 to 6 of these
        │       │ ▒ ▒ ▒ │
        │       │       │
        │       │       │
        └───────┴───────┘
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor

Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Part:
    """Which elements of a tensor of the unsplit model these are.

    Attributes:
        name: of the tensor.
        shape: of the whole of it.
        box: along each dimension, from where to where.
        run: of the box's elements, row by row, from which to which.
    """

    name: str
    shape: tuple[int, ...]
    box: Box
    run: tuple[int, int]

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the tensor."""
        return self.run[1] - self.run[0] == prod(self.shape)

    def of(self, whole: Tensor) -> Tensor:
        """Return these elements of the whole tensor, flat; a copy."""
        return self._boxed(whole).flatten()[slice(*self.run)].clone()

    def put(self, values: Tensor, whole: Tensor) -> None:
        """Put these elements, flat, into their place in the whole tensor."""
        box = self._boxed(whole)
        flat = box.flatten()
        flat[slice(*self.run)] = values
        box.copy_(flat.view(box.shape))

    def _boxed(self, whole: Tensor) -> Tensor:
        for dimension, (begin, end) in enumerate(self.box):
            whole = whole.narrow(dimension, begin, end - begin)
        return whole


@dataclass(frozen=True)
class Piece:
    """Values that a rank holds.

    Attributes:
        part: what they are of.
        values: they themselves, flat; to load writes into them.
        is_saved: whether this rank saves them; others may hold the same.
    """

    part: Part
    values: Tensor
    is_saved: bool = True


@dataclass(frozen=True)
class Local:
    """A tensor as it lies on this rank, which may be a box of one of the unsplit model's.

    Attributes:
        name, shape: of the latter.
        is_saved: whether this rank saves what it has of it.
    """

    name: str
    shape: tuple[int, ...]
    box: Box
    is_saved: bool = True

    @classmethod
    def undivided(cls, name: str, tensor: Tensor, is_saved: bool = True) -> Local:
        """Return one that this rank has whole."""
        return cls(name, tuple(tensor.shape), whole_box(tensor.shape), is_saved)

    @property
    def numel(self) -> int:
        """Return the number of elements on this rank."""
        return prod(end - begin for begin, end in self.box)

    def part(self, run: tuple[int, int] | None = None) -> Part:
        """Return all that this rank has of it, or a run of that."""
        return Part(self.name, self.shape, self.box, run or (0, self.numel))


def whole_box(shape: Sequence[int]) -> Box:
    """Return the box that is all of a tensor."""
    return tuple((0, length) for length in shape)


def of_vector(tensors: Sequence[Local], vector: Tensor, own: slice, prefix: str = "") -> Iterator[Piece]:
    """Cut a vector that holds a run of this rank's tensors, one after the other, where one tensor ends.

    Args:
        tensors: all that lie in the whole vector, in order.
        vector: the elements `own` of it, shape (own.stop − own.start,).
        prefix: of the pieces' names, where the vector has a number for each parameter, as an optimizer's state.
    """
    begin = 0
    for tensor in tensors:
        first, last = max(own.start, begin), min(own.stop, begin + tensor.numel)
        if first < last:
            part = tensor.part((first - begin, last - begin))
            named = Part(prefix + part.name, part.shape, part.box, part.run)
            yield Piece(named, vector[first - own.start : last - own.start], tensor.is_saved)
        begin += tensor.numel


def of_tensor(tensor: Local, values: Tensor) -> Piece:
    """Return the piece of a tensor that lies by itself, contiguous, such as a buffer of a module."""
    if not values.is_contiguous():
        raise ValueError(f"{tensor.name} is not contiguous: what is loaded could not be written into it")
    return Piece(tensor.part(), values.detach().view(-1) if values.dim() else values.detach().view(1), tensor.is_saved)
