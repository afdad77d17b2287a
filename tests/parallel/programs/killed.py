"""Rank 2 dies at step 7 by a signal that no --fail has announced."""

import os
import signal

import numpy as np

from farandole.collectives.executor import run
from farandole.collectives.ring import RING
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

with World.start(RunOptions(wait_timeout=20)) as world:
    for step in world.steps(20):
        if (world.rank, step) == (2, 7):
            os.kill(os.getpid(), signal.SIGKILL)
        run(RING, world.comm, np.ones(1000))
