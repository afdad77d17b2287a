"""Many all-reduces of the same vectors with random factors: their mean and variance."""

import json

import numpy as np

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data_parallel.random_factors import with_random_factors
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

SPREAD, DRAWS, SEED = 0.6, 800, 3

with World.start(RunOptions(wait_timeout=30)) as world:
    all_reduce = with_random_factors(ALL_REDUCES["ring"], SPREAD, SEED)
    sums = np.zeros((DRAWS, world.size + 1))
    for buffer in sums:
        buffer[world.rank] = 1  # so that the sum shows this rank's factor
        buffer[-1] = world.rank + 1
        all_reduce(world.comm, buffer)
    assert len(set(world.control.allgather(sums.tobytes()))) == 1, "the same bits on all ranks"
    factors, totals = sums[:, :-1], sums[:, -1]
    assert (abs(factors - 1) <= SPREAD).all()
    np.testing.assert_allclose(totals, factors @ np.arange(1, world.size + 1), rtol=1e-12)
if world.rank == 0:
    correlations = np.corrcoef(factors, rowvar=False).reshape(world.size, world.size)
    print(
        json.dumps(
            {
                "spread": SPREAD,
                "draws": DRAWS,
                "mean": totals.mean(),
                "variance": totals.var(ddof=1),
                "correlations": correlations.tolist(),
            }
        )
    )
