"""Lab 4: the gradient travels while backward still computes.

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

    A bucket is some parameters that follow one another. The first bucket begins with the last parameter and takes those
    before it as long as there is room; the second one goes on from there.

    Args:
        lengths: elements of each parameter, in the network's order.
        most: elements that a bucket may have, unless it is of a single parameter that has more.

    Returns:
        The numbers of each bucket's parameters: cut([5, 3, 9, 1], 10) is [range(2, 4), range(0, 2)]. No bucket is
        empty, and none has left out a parameter that it had room for.
    """
    raise NotImplementedError


class Overlapped:
    """A network that is trained in step with its copies on all other ranks.

    Args:
        network: this rank's copy:
            network.lengths              elements of each parameter
            network.places               where each parameter's gradient lies in network.gradients, a slice each
            network.gradients            all gradients, in one vector; 0 before a step
            network.backward(samples, is_there)    computes them, and calls is_there(number) whenever one is there
            network.update()             moves the parameters by what is in network.gradients, and sets that to 0
        comm: this rank's connection to the others:
            comm.rank, comm.size         this rank's number, and how many ranks there are
            comm.begin(part)             begins to put the sum over all ranks into this part of network.gradients,
                                         and returns at once; until reduction.wait() has returned, leave it alone
        most: elements that a bucket may have, as in `cut`.
        overlap: begin each reduction as soon as it can be, while backward goes on; otherwise begin the same ones when
            backward is over.
    """

    def __init__(self, network: Network, comm: BackgroundCommunicator, most: int, overlap: bool = True) -> None:
        raise NotImplementedError

    def step(self, samples: Sequence[int], share: float) -> None:
        """Compute the gradient of this rank's samples, sum it up over all ranks, and update, once.

        Every rank calls this at the same time, with its samples. Nothing is waited for before backward is over.
        The reductions are the same ones on all ranks, begun in the same order, whatever the order in which gradients
        come; and of a parameter that this rank has not used none comes at all.

        Args:
            samples: this rank's part of the batch.
            share: which part of the whole batch these are, between 0 and 1; the shares of all ranks sum to 1. The
                gradient that all move by is each rank's, times its share, summed up.
        """
        raise NotImplementedError
