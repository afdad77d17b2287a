"""The norm of a gradient whose parts lie on several ranks, and its clipping.

The squares of the parts add up over the ranks, so that one number is all-reduced, and every rank shortens its parts by
the same factor. Had each rank clipped its own parts by their norm, the direction would change.
Source: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", 2013.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from torch import Tensor

from farandole.collectives.executor import run
from farandole.collectives.ring import RING
from farandole.runtime.communicator import Communicator

TINY = 1e-6  # as in torch.nn.utils.clip_grad_norm_


def shorten(parts: Sequence[Tensor], max_norm: float, group: Communicator) -> float:
    """Shorten the gradient to `max_norm`, in place, if it is longer; return its norm before. Collective.

    Args:
        parts: this rank's, of the whole gradient that the ranks of `group` have together.

    Cost: an all-reduce of one number.
    """
    squares = np.array([sum(float(each.double().square().sum()) for each in parts)])
    run(RING, group, squares)
    norm = sqrt(float(squares[0]))
    factor = max_norm / (norm + TINY)
    if factor < 1:
        for each in parts:
            each.mul_(factor)
    return norm
