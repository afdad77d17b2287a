"""All-reduce with random factors (带随机因子的 AllReduce): document 001's variant, and why nobody needs it.

    g = Σ_r ξ_r·x_r        ξ_r uniform in 1 ± s, drawn anew by each rank in every all-reduce

That is once a step, or where the gradient goes in buckets once for each bucket. Since ξ has the mean 1 the sum is
right on average, and only then; but the ranks draw independently, so its variance grows by Σ_r s²/3·x_r², which is
there even where all gradients are the same. The training is that much noisier, for nothing in return. With s = 0 it is
the all-reduce beneath, to the bit.

Cost: a random number and a multiplication of the vector in place, on each rank, and no message more. Source: erratum
001.3.
"""

from __future__ import annotations

import numpy as np

from farandole.collectives.executor import AllReduce
from farandole.runtime.communicator import Buffer, Communicator


def with_random_factors(all_reduce: AllReduce, spread: float, seed: int) -> AllReduce:
    """That all-reduce, of vectors that each rank multiplies by a factor of its own before.

    Args:
        spread: s above, 0 to 1.
        seed: with the rank it decides on the factors.
    """
    draws: dict[int, np.random.Generator] = {}

    def reduce(comm: Communicator, buffer: Buffer) -> None:
        draw = draws.setdefault(comm.rank, np.random.default_rng([seed, comm.rank]))
        buffer *= draw.uniform(1 - spread, 1 + spread)
        all_reduce(comm, buffer)

    return reduce
