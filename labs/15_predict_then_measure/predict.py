"""Lab 15: how long will a step of distributed training take? Say it first, then measure.

Complete the functions, then: farandole lab check 15
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole_tools.lab.communicator import LabCommunicator


def fit(nbytes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """The α and β with which α + nβ is nearest to what messages of n bytes took.

    Nearest: the sum of the squares of the *relative* errors, (α + nβ − t)/t, is as small as it can be
    with neither α nor β below 0.

    Args:
        nbytes: the messages' lengths, of which at least two are different.
        seconds: what each of them took, above 0.

    Returns:
        alpha, in seconds for each message, and beta, in seconds for each byte.
    """
    raise NotImplementedError


def all_reduce_seconds(method: str, ranks: int, nbytes: int, alpha: float, beta: float) -> float:
    """What an all-reduce of `nbytes` takes, where a message of n bytes takes α + nβ and adding up takes nothing.

    Args:
        method: "ring"      one P-th of the vector at a time, from neighbour to neighbour, once round to add up, once
                            more to hand on what is complete
                "tree"      the whole vector up a binomial tree of ranks, and down again
                "doubling"  the whole vector to and from rank XOR 1, XOR 2, XOR 4, …; ranks beyond the largest power of
                            two hand theirs to a partner before that, and get the sum from it after that
        ranks: 1 or more; 1 sends nothing.
    """
    raise NotImplementedError


def slowest(samples: Sequence[float], ranks: int) -> float:
    """The expected time of the slowest of a number of ranks.

    Each rank's time is one of the samples, each of them with the same probability, whatever the others' are.

    Args:
        samples: what one rank took to compute, in some iterations.
        ranks: 1 or more.
    """
    raise NotImplementedError


def step_seconds(
    way: str, samples: Sequence[float], ranks: int, nbytes: int, alpha: float, beta: float, every: int = 1
) -> float:
    """The expected time of one step of training, the mean over many.

    Args:
        way: "synchronous"  all compute, then a ring all-reduce of the gradient
             "local"        each rank computes `every` steps by itself, then a ring all-reduce of the parameters
             "overlapped"   a ring all-reduce that begins with the computation and goes on beside it; a step ends
                            when both have, on all ranks
             "server"       `ranks` workers compute, then push the gradient to a server, which answers each with the
                            parameters once it has all the gradients
        samples: what one rank took to compute one step, in consecutive steps.
        ranks: those that compute; the server is one more.
        nbytes: the gradient's length, and the parameters'.
        alpha, beta: a message of n bytes takes α + nβ. All that goes to or from the server goes over its one link, one
            message after the other.
        every: of "local": how many steps there are to an all-reduce, not more than there are samples. Steps that follow
            one another are taken from the samples as they are: the first so many together, then the next so many; what
            is left over at the end is not used.
    """
    raise NotImplementedError


def measure(comm: LabCommunicator) -> tuple[float, float]:
    """The α and β of the links that `comm` goes over, by messages to and fro between ranks 0 and 1.

    Called on all ranks; only what rank 0 returns counts, and ranks 2 and higher have nothing to do. The first message
    takes longer than those after it. A second or so is enough.

        comm.rank, comm.size                 this process's number, and how many there are
        comm.send(array, to)                 send a numpy array to a rank; returns once it is received
        comm.receive(array, source)          fill an array, of the same length, with what a rank has sent
    """
    raise NotImplementedError
