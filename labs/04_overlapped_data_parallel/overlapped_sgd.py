"""Lab 4: reduce the gradients while the backward pass is still computing.

Complete `cut` and `Overlapped`, then: farandole lab check 4
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from farandole_tools.lab.background import BackgroundCommunicator
    from farandole_tools.lab.instrumented_network import Network


def cut(lengths: Sequence[int], most: int) -> list[range]:
    """Cut a network's parameters into buckets, in the order in which backward fills them.

    A bucket holds consecutive parameters. The first bucket begins with the last parameter and takes the ones before it
    as long as there is room. The second bucket continues from there.

    Args:
        lengths: the number of elements of each parameter, in the network's order.
        most: the largest number of elements in a bucket. A single parameter with more elements is a bucket by itself.

    Returns:
        The parameter numbers of each bucket: cut([5, 3, 9, 1], 10) is [range(2, 4), range(0, 2)]. No bucket is empty,
        and no bucket leaves out a parameter that it had room for.
    """
    raise NotImplementedError


class Overlapped:
    """A network that is trained synchronously with its copies on all other ranks.

    Args:
        network: this rank's copy:
            network.lengths              the number of elements of each parameter
            network.places               for each parameter, the slice of network.gradients that holds its gradient
            network.gradients            all gradients, in one vector; 0 before a step
            network.backward(samples, is_there)    computes them, and calls is_there(number) when one is complete
            network.update()             moves the parameters by network.gradients, and sets that to 0
        comm: this rank's communicator:
            comm.rank, comm.size         this rank's number, and the number of ranks
            comm.begin(part)             begins to replace this part of network.gradients with its sum over all ranks,
                                         and returns a reduction at once. Do not touch the part until
                                         reduction.wait() has returned
        most: the largest number of elements in a bucket, as in `cut`.
        overlap: begin each reduction as early as possible, during the backward pass. If False, begin the same ones
            after it.
    """

    def __init__(self, network: Network, comm: BackgroundCommunicator, most: int, overlap: bool = True) -> None:
        raise NotImplementedError

    def step(self, samples: Sequence[int], share: float) -> None:
        """Compute the gradient of this rank's samples, sum it over all ranks, and update once.

        Every rank calls this at the same time, with its own samples. Do not wait for a reduction before the backward
        pass has ended. All ranks begin the same reductions in the same order, whatever the order in which gradients
        become complete. A parameter that this rank has not used is never reported by backward.

        Args:
            samples: this rank's part of the batch.
            share: this rank's fraction of the whole batch, between 0 and 1; the shares of all ranks sum to 1. The
                update uses the sum over all ranks of share times gradient.
        """
        raise NotImplementedError
