"""The project's own, in this lab's form: farandole/collectives/halving_doubling.py says what is sent when."""

from __future__ import annotations

import numpy as np

from farandole.collectives.executor import run
from farandole.collectives.halving_doubling import HALVING_DOUBLING
from farandole_tools.lab.communicator import LabCommunicator


def halving_doubling_all_reduce(vector: np.ndarray, comm: LabCommunicator) -> None:
    run(HALVING_DOUBLING, comm, vector)
