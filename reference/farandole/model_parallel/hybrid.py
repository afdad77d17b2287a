"""The grid of data × pipeline × tensor: which factorisations of the ranks there are, and which is meant.

The axis that talks most gets the neighbouring ranks, which a launcher puts on one host: tensor
(several all-reduces per layer) inside, then pipeline (two messages per micro-batch and border), data
(one all-reduce per step) outside. Source: Narayanan et al., "Efficient large-scale language model
training on GPU clusters using Megatron-LM", 2021.
"""

from __future__ import annotations

from farandole.errors import UsageError


def factorisations(ranks: int) -> list[tuple[int, int, int]]:
    """Every (data, pipeline, tensor) whose product is `ranks`."""
    divisors = [number for number in range(1, ranks + 1) if ranks % number == 0]
    return [(ranks // (p * t), p, t) for t in divisors for p in divisors if ranks % (p * t) == 0]


def factors(ranks: int, data: int | None, pipeline: int, tensor: int) -> tuple[int, int, int]:
    """The grid that is meant; without `data` it takes what the other two leave.

    Raises:
        UsageError: the three do not multiply to `ranks`.
    """
    wanted = (data or max(1, ranks // (pipeline * tensor)), pipeline, tensor)
    fitting = factorisations(ranks)
    if wanted not in fitting:
        near = sorted(fitting, key=lambda grid: sum(abs(a - b) for a, b in zip(grid, wanted, strict=True)))
        given = [f"data {data}"] * (data is not None) + [f"pipeline {pipeline}", f"tensor {tensor}"]
        examples = ", ".join("×".join(map(str, grid)) for grid in near[:3])
        raise UsageError(
            f"{' × '.join(given)} does not make {ranks} ranks; data × pipeline × tensor could be {examples}"
        )
    return wanted
