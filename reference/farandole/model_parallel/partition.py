"""Where to cut: contiguous parts of a list of layers, so that the costliest part costs least.

A pipeline goes as fast as its slowest stage, so the best cut minimises the largest sum:

    bound(k, n) = min over i of max(bound(k − 1, i), cost of layers i … n−1)

is the smallest possible cost of the costliest of k parts of the first n layers. Many cuts may reach
it; of these the one with the smallest sum of squares is taken, the most even one. Cost: O(k n²),
which for any model's layers is nothing. Source: the linear partition problem, e.g. Skiena, "The
Algorithm Design Manual", 2008; for pipelines Narayanan et al., "PipeDream", 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import inf
from operator import add

from farandole.errors import UsageError


def min_max_partition(costs: Sequence[float], parts: int) -> list[slice]:
    """Cut `costs` into `parts` contiguous, non-empty parts whose largest sum is as small as possible.

    Raises:
        UsageError: more parts than there are layers, or none.
    """
    layers = len(costs)
    if not 1 <= parts <= layers:
        raise UsageError(f"{layers} layers cannot be cut into {parts} parts: use at most {layers}, or a deeper model")
    before = [0.0, *accumulate(costs)]
    bound, _ = _best(before, parts, combine=max, cost=lambda part: part)
    # Rounding must not forbid the very cut that the bound comes from.
    limit = bound * (1 + 1e-12)
    _, bounds = _best(before, parts, combine=add, cost=lambda part: part**2 if part <= limit else inf)
    return [slice(first, last) for first, last in pairwise(bounds)]


def _best(
    before: Sequence[float], parts: int, combine: Callable[[float, float], float], cost: Callable[[float], float]
) -> tuple[float, list[int]]:
    """Return the cut with the smallest combined cost of its parts: that cost, and where its parts begin and end.

    Args:
        before: the sum of all layers before each, and of all.
    """
    layers = len(before) - 1
    best = [cost(total) for total in before]  # of the first n layers in one part, in two, …
    starts = []  # where the last of these parts begins
    for part in range(2, parts + 1):
        row, start = [inf] * (layers + 1), [part - 1] * (layers + 1)
        for end in range(part, layers + 1):
            for cut in range(part - 1, end):
                found = combine(best[cut], cost(before[end] - before[cut]))
                if found < row[end]:
                    row[end], start[end] = found, cut
        best = row
        starts.append(start)
    bounds = [layers]
    for start in reversed(starts):
        bounds.append(start[bounds[-1]])
    return best[layers], [0, *reversed(bounds)]


def largest_cost(costs: Sequence[float], parts: Sequence[slice]) -> float:
    """Return the cost of the costliest part: what a pipeline's pace is set by."""
    return max(sum(costs[part]) for part in parts)
