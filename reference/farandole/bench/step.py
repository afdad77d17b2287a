"""``farandole bench step``: one data-parallel training step, beside torch DDP's and Horovod's.

A round is that of `step_rounds.py`: forward, backward, the gradient's mean over all ranks, the update, on 8 samples a
rank of a perceptron with three hidden layers, of 10 million parameters or of 0.1 million. Peers, each with a launch of
its own, in several sweeps by turns with ours:

- torch DDP over Gloo;
- Horovod's DistributedOptimizer over MPI; where it is not installed there is an error instead of its median.

Ours are also beside the first of them, our simplest: the ring after backward.
"""

from __future__ import annotations

from typing import Any

from farandole.bench.step_task import OURS, parameters
from farandole.bench.turns import Medians, medians, row, why_not

ROUNDS_PROGRAM = "farandole.bench.step_rounds"
WIDTHS = {2048: 8, 110: 40}  # of the hidden layers → rounds of a sweep
SWEEPS = 3
PEERS = {"ddp": "torch DDP", "Horovod": "Horovod", "ring": "our ring"}


def rows(ranks: int) -> list[dict[str, Any]]:
    """A row for each of our ways and each size of model.

    Raises:
        LaunchError: one of the systems failed, or trained something else.
    """
    missing = {name: error for name in PEERS if (error := why_not(name))}
    launches = [list(OURS), *([name] for name in ("ddp", "Horovod") if name not in missing)]
    return composed(medians(ROUNDS_PROGRAM, launches, WIDTHS, ranks, SWEEPS), missing, ranks)


def composed(found: Medians, missing: dict[str, str], ranks: int) -> list[dict[str, Any]]:
    """The rows, from the medians by width and system, and why some peers have none."""
    return [
        row(name, 4 * parameters(width), ranks, its, PEERS, missing) for width, its in found.items() for name in OURS
    ]
