"""All-reduce with random factors (带随机因子的 AllReduce): document 001's variant, which only adds noise.

    g = Σ_r ξ_r·x_r        ξ_r uniform in 1 ± s, drawn anew by each rank in every all-reduce

A factor is drawn once a step, or once for each bucket of the gradient. Since ξ has the mean 1 the sum is right on
average; but the ranks draw independently, so its variance grows by Σ_r s²/3·x_r², even where all gradients are equal.
The training is noisier, and gains nothing. With s = 0 it is the underlying all-reduce, bit by bit.

Cost: a random number and a multiplication of the vector in place, on each rank, and no additional message. Source:
erratum 001.3.
"""

from __future__ import annotations

import numpy as np

from farandole.collectives.executor import AllReduce
from farandole.runtime.communicator import Buffer, Communicator


def with_random_factors(all_reduce: AllReduce, spread: float, seed: int) -> AllReduce:
    """Return an all-reduce whose ranks first multiply their vectors by random factors.

    Args:
        spread: s above, 0 to 1.
        seed: determines the factors, together with the rank.
    """
    draws: dict[int, np.random.Generator] = {}

    def reduce(comm: Communicator, buffer: Buffer) -> None:
        draw = draws.setdefault(comm.rank, np.random.default_rng([seed, comm.rank]))
        buffer *= draw.uniform(1 - spread, 1 + spread)
        all_reduce(comm, buffer)

    return reduce
