"""The grid of ranks: six ways to divide a training, an axis for each, and which rank stands where.

From the outermost axis to the innermost, with what a rank sends for b bytes of activations between two layers (those of
the samples and positions of its own column of tensor ranks) and p bytes of parameters:

    axis       divides                                    sends                                         how often
    data       samples; all else has copies               2(D−1)/D·p of gradients                       a step
    shard      samples; parameters, gradients and         (S−1)/S·p, three times                        a micro-batch
               optimizer state of each copy (ZeRO-3)
    pipeline   layers                                     b forward, and b backward                     a border
    expert     samples; the experts of a mixture          about 2k(E−1)/E·b, forward and backward       a block
    context    positions of each sequence                 2(C−1)/T·b forward, 2(2C−1)/T·b backward      a block
    tensor     matrices                                   4(T−1)/T·b, forward and backward              a block

    rank = ((((data·S + shard)·P + pipeline)·E + expert)·C + context)·T + tensor

So the ranks of an inner axis have neighbouring numbers, and a launcher puts neighbours on one host, where links are
fast. Inside is what talks in every layer while the computation waits for it: tensor; then context, whose ring may hide
behind attention; then expert. A pipeline talks at its borders only. Outside is what talks between steps, or beside the
computation: shard, and data. The order changes no result.

Cost: the table's bytes, for each axis that has more than one rank.

Sources: Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021
(tensor within a node, pipelines across); Grattafiori et al., "The Llama 3 herd of models", 2024, section 3.3.2, whose
order from the inside is tensor, context, pipeline, data. Megatron Core's default is tensor, context, expert, data,
pipeline: messages of a pipeline are few, so that the slowest links may be left to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from math import prod

from farandole.errors import UsageError


@dataclass(frozen=True)
class Grid:
    """The lengths of the axes, the outermost first; their product is the number of ranks."""

    data: int = 1
    shard: int = 1
    pipeline: int = 1
    expert: int = 1
    context: int = 1
    tensor: int = 1

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return prod(astuple(self))

    @property
    def lengths(self) -> dict[str, int]:
        """Return the length of each axis, by name, the outermost first."""
        return dict(zip(AXES, astuple(self), strict=True))

    def place(self, rank: int) -> dict[str, int]:
        """Return the coordinates of `rank`, by axis."""
        found = {}
        for axis, length in reversed(self.lengths.items()):
            rank, found[axis] = divmod(rank, length)
        return {axis: found[axis] for axis in AXES}

    def rank(self, place: Mapping[str, int]) -> int:
        """Return the rank at these coordinates; an axis that is left out has 0."""
        number = 0
        for axis, length in self.lengths.items():
            number = number * length + place.get(axis, 0)
        return number

    def line(self, rank: int, *axes: str) -> list[int]:
        """Return the ranks that differ from `rank` along no other than these axes, itself too, in order."""
        place = self.place(rank)
        return self.at(**{axis: place[axis] for axis in AXES if axis not in axes})

    def lines(self, axis: str) -> list[list[int]]:
        """Return the groups of ranks that talk to each other along `axis`, in the order of their first ranks."""
        return [self.line(rank, axis) for rank in range(self.ranks) if self.place(rank)[axis] == 0]

    def at(self, **place: int) -> list[int]:
        """Return all ranks with these coordinates, in order; along axes that are not named, all."""
        ranks = [0]
        for axis, length in self.lengths.items():
            along = [place[axis]] if axis in place else range(length)
            ranks = [rank * length + number for rank in ranks for number in along]
        return ranks

    def number(self, rank: int, *axes: str) -> int:
        """Return which one `rank` is on its line along these axes."""
        return self.line(rank, *axes).index(rank)

    def __str__(self) -> str:
        return " × ".join(f"{axis} {length}" for axis, length in self.lengths.items() if length > 1) or "1 rank"


AXES = tuple(field.name for field in fields(Grid))


def factorisations(ranks: int, axes: Sequence[str] = AXES) -> list[Grid]:
    """Return every grid of `ranks` with other axes than these of length 1, those with a short last axis first."""
    return [Grid(**lengths) for lengths in _lengths(ranks, axes)]


def fitting(ranks: int, wanted: Mapping[str, int | None]) -> Grid:
    """Return the grid that is meant.

    Args:
        wanted: axis → its length. An axis with None takes what the others leave; at most one may.

    Raises:
        UsageError: the axes do not multiply to `ranks`; with the nearest grids that do.
    """
    known = {axis: length for axis, length in wanted.items() if length is not None}
    open_axes = [axis for axis, length in wanted.items() if length is None]
    rest = max(1, ranks // prod(known.values()))
    lengths = known | dict.fromkeys(open_axes, rest)
    if prod(lengths.values()) == ranks:
        return Grid(**lengths)
    meant = Grid(**lengths)
    axes = tuple(axis for axis in AXES if axis in wanted)
    near = sorted(factorisations(ranks, axes), key=lambda grid: _distance(grid, meant))
    given = " × ".join(f"{axis} {known[axis]}" for axis in axes if axis in known)
    raise UsageError(
        f"{given} does not make {ranks} rank{'s' * (ranks > 1)}; "
        f"{' × '.join(axes)} could be {', or '.join(map(str, near[:3]))}"
    )


def _distance(grid: Grid, other: Grid) -> int:
    return sum(abs(a - b) for a, b in zip(astuple(grid), astuple(other), strict=True))


def _lengths(ranks: int, axes: Sequence[str]) -> Iterator[dict[str, int]]:
    """Yield the lengths of the axes, of which the first takes what the others leave."""
    *others, last = axes
    if not others:
        yield {last: ranks}
        return
    for length in (number for number in range(1, ranks + 1) if ranks % number == 0):
        for lengths in _lengths(ranks // length, others):
            yield lengths | {last: length}
