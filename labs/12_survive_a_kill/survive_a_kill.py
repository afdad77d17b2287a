"""Lab 12: a worker is killed in the middle of the training, and the others go on as if it had never been there.

Complete the four functions, then: farandole lab check 12
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole_tools.lab.small_training import Worker
from farandole_tools.lab.ulfm_communicator import PeerLost, UlfmCommunicator  # noqa: F401


def divide(samples: Sequence[int], rank: int, size: int) -> Sequence[int]:
    """The part of `samples` on which rank `rank` of `size` works.

    Each sample is in exactly one rank's part, and the parts differ by one sample at most. Some are empty
    if there are more ranks than samples.
    """
    raise NotImplementedError


def recover(comm: UlfmCommunicator, done: bool) -> UlfmCommunicator | None:
    """Agree with all living ranks on how to go on. Every rank calls it, whether it has noticed a death or not.

    Args:
        done: whether this rank has come to the end of its work; False if it was interrupted.

    Returns:
        None if all are done, on all ranks alike; else a communicator of the living ranks.
    """
    raise NotImplementedError


def catch_up(comm: UlfmCommunicator, worker: Worker) -> None:
    """Make all workers ready to take the same step, with the same parameters and the same momentum.

    That is the step of the one who has come furthest: none that anybody has done is done again. Who is
    behind gets the state from there. A step that was begun and not done begins anew: with an empty
    gradient, and with the random numbers that it had before.

    If a rank dies in here it raises `PeerLost`, and the worker is then either as it was or has caught up.
    """
    raise NotImplementedError


def train(comm: UlfmCommunicator, worker: Worker, steps: int) -> None:
    """Train until `steps` steps are done by all living workers, however many die meanwhile.

    A step is: compute the gradient of one's own part of `worker.batch()`, sum it over all ranks, update.
    Nothing may be kept in global variables; you may add attributes to `worker`.

    Args:
        comm: of all ranks at the start.
    """
    raise NotImplementedError
