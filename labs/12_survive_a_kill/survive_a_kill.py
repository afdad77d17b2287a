"""Lab 12: a worker is killed during training, and the remaining workers continue and get the same result.

Complete the four functions, then: farandole lab check 12
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole_tools.lab.small_training import Worker
from farandole_tools.lab.ulfm_communicator import PeerLost, UlfmCommunicator  # noqa: F401


def divide(samples: Sequence[int], rank: int, size: int) -> Sequence[int]:
    """Return the part of `samples` that rank `rank` of `size` processes.

    Each sample is in exactly one rank's part, and the parts differ by one sample at most. Some parts are
    empty if there are more ranks than samples.
    """
    raise NotImplementedError


def recover(comm: UlfmCommunicator, done: bool) -> UlfmCommunicator | None:
    """Agree with all living ranks on how to continue. Every rank calls it, whether or not it has detected a failure.

    Args:
        done: whether this rank has finished its work; False if a failure interrupted it.

    Returns:
        None, on all ranks, if all are done; otherwise a communicator of the living ranks.
    """
    raise NotImplementedError


def catch_up(comm: UlfmCommunicator, worker: Worker) -> None:
    """Bring all workers to the same step, with the same parameters and the same momentum.

    This is the step of the most advanced worker: no step that any worker has completed is repeated. A worker
    that is behind receives the state of the most advanced one. A step that was begun but not completed
    starts again, with a zero gradient and with the random numbers that it had before.

    If a rank dies during the call, the call raises `PeerLost`. The worker then has either its old state or
    the new one.
    """
    raise NotImplementedError


def train(comm: UlfmCommunicator, worker: Worker, steps: int) -> None:
    """Train until all living workers have completed `steps` steps, however many workers die meanwhile.

    In a step, each worker computes the gradient of its own part of `worker.batch()`, sums it over all ranks,
    and updates. Do not keep state in global variables; you may add attributes to `worker`.

    Args:
        comm: the communicator of all ranks at the start.
    """
    raise NotImplementedError
