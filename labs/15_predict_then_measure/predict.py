"""Lab 15: predict how long a step of distributed training takes, then measure it.

Complete the functions, then: farandole lab check 15
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole_tools.lab.communicator import LabCommunicator


def fit(nbytes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Return the α and β for which α + nβ fits the measured times of messages of n bytes best.

    The best fit minimises the sum of the squares of the *relative* errors, (α + nβ − t)/t, with
    neither α nor β below 0.

    Args:
        nbytes: the lengths of the messages; at least two of them are different.
        seconds: the time of each message, above 0.

    Returns:
        alpha, in seconds per message, and beta, in seconds per byte.
    """
    raise NotImplementedError


def all_reduce_seconds(method: str, ranks: int, nbytes: int, alpha: float, beta: float) -> float:
    """Return the time of an all-reduce of `nbytes` if a message of n bytes takes α + nβ and additions take no time.

    Args:
        method: "ring"      one P-th of the vector at a time, from neighbour to neighbour: once around the ring to add
                            the parts up, once more to distribute the complete ones
                "tree"      the whole vector up a binomial tree of ranks, and down again
                "doubling"  the whole vector, exchanged with rank XOR 1, XOR 2, XOR 4, …; each rank beyond the largest
                            power of two first sends its vector to a partner, and at the end receives the sum from it
        ranks: 1 or more; 1 sends nothing.
    """
    raise NotImplementedError


def slowest(samples: Sequence[float], ranks: int) -> float:
    """Return the expected time of the slowest of `ranks` ranks.

    Each rank's time is drawn from the samples, with equal probability and independently of the other ranks.

    Args:
        samples: the computation times of one rank, in some iterations.
        ranks: 1 or more.
    """
    raise NotImplementedError


def step_seconds(
    way: str, samples: Sequence[float], ranks: int, nbytes: int, alpha: float, beta: float, every: int = 1
) -> float:
    """Return the expected time of one training step, as the mean over many steps.

    Args:
        way: "synchronous"  all ranks compute, then run a ring all-reduce of the gradient
             "local"        each rank computes `every` steps by itself, then all run a ring all-reduce of the parameters
             "overlapped"   a ring all-reduce that begins with the computation and runs in parallel with it; a step
                            ends when both have ended on all ranks
             "server"       `ranks` workers compute, then push their gradients to a server, which sends the parameters
                            to each of them once it has received all gradients
        samples: the computation times of one rank, in consecutive steps.
        ranks: the number of ranks that compute; the server comes in addition.
        nbytes: the length of the gradient, and that of the parameters.
        alpha, beta: a message of n bytes takes α + nβ. All messages to and from the server use its one link, one after
            the other.
        every: for "local", the number of steps per all-reduce, at most the number of samples. The steps between two
            all-reduces are consecutive samples: the first `every` samples, then the next `every`, and so on. A
            remainder of fewer than `every` samples is not used.
    """
    raise NotImplementedError


def measure(comm: LabCommunicator) -> tuple[float, float]:
    """Measure and return the α and β of the links that `comm` uses, with messages back and forth between ranks 0 and 1.

    All ranks call this. Only the result of rank 0 counts, and ranks 2 and higher have nothing to do. The first message
    takes longer than later ones. About a second of measuring is enough.

        comm.rank, comm.size                 this rank's number, and the number of ranks
        comm.send(array, to)                 send a numpy array to a rank; returns once it is received
        comm.receive(array, source)          fill an array, of the same length, with a message from a rank
    """
    raise NotImplementedError
