"""Results of one process, for all ranks to compare with."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from farandole.runtime.world import World


def found_by_one(world: World, find: Callable[[], Sequence[NDArray[np.float64]]]) -> NDArray[np.float64]:
    """Return the rows of `find`, the same on every rank; only rank 0 calls it.

    The first use of torch.optim loads torch's compiler: a second, on every rank that does it.
    """
    rows = np.array(find() if world.rank == 0 else [])
    shape = np.array(rows.shape if world.rank == 0 else (0, 0))
    world.control.Bcast(shape)
    rows = rows if world.rank == 0 else np.empty(shape)
    world.control.Bcast(rows)
    return rows
