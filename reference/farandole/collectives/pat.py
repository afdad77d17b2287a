"""PAT, parallel aggregated trees: all-gather and reduce-scatter in lgP rounds, for any number of ranks.

Each rank is the root of a binomial tree, down which its chunk goes to all others. P trees work at once, and what they
send from one rank to another travels in one message. The farthest ranks are served first, while a message
still has one chunk; the longest messages go to the neighbour.

    all-gather, 8 ranks     to r + 4   chunk r                         a chunk is o ranks from its owner; it is sent on
                            to r + 2   chunks r, r − 4                 by distances that are smaller than o's lowest bit
                            to r + 1   chunks r, r − 2, r − 4, r − 6

What is sent on has to be packed first. `aggregated` limits the chunks of a message, and so the memory for that. Above
the limit a rank sends several messages to the same distance, in the order of a depth-first walk: it sends on what it
has just received before it takes more. So it keeps lgP messages at most, however long the vector is.

The reduce-scatter is the all-gather backwards: the trees gather sums towards their roots, neighbours first.

Cost for n bytes in all and a limit of A chunks, a power of two: lgA + P/A − 1 messages where P is a power of two (lgP
without a limit, P − 1 if A = 1), and (P−1)/P·nβ; (P−1)/P·nγ for the reduce-scatter. Recursive halving and doubling cost
the same where P is a power of two; for other P they need more bytes.
Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", 2025; it is NCCL's since
version 2.23.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

from farandole.collectives.steps import Exchange, Schedule, Together

Transfer = tuple[int, Sequence[int]]  # how far it is sent; how far each chunk of the message is from its owner already


def transfers(size: int, aggregated: int) -> Iterator[Transfer]:
    """Yield what every rank sends to a farther one in an all-gather, one message after the other.

    Args:
        aggregated: chunks of a message at most; the next lower power of two is used.
    """
    reach = 1 << (size - 1).bit_length()  # the power of two that is not less than P
    stride = max(1, reach >> (aggregated.bit_length() - 1))
    distance = reach // 2
    while distance >= stride:  # one message to each distance: these trees work in parallel
        yield distance, [away for away in range(0, size, 2 * distance) if away + distance < size]
        distance //= 2
    for nearest, distance in _walk(0, stride):
        if away := [away for away in range(nearest, size, stride) if away + distance < size]:
            yield distance, away


def _walk(away: int, reach: int) -> Iterator[tuple[int, int]]:
    """Yield (from where, how far) for each edge of the tree below, depth first."""
    distance = reach // 2
    while distance:
        yield away, distance
        yield from _walk(away + distance, distance)
        distance //= 2


def all_gather(rank: int, size: int, aggregated: int) -> Iterator[Together]:
    """Rank r begins with chunk r, and every rank ends with every chunk."""
    for distance, away in transfers(size, aggregated):
        sent = [(rank - each) % size for each in away]
        received = [(chunk - distance) % size for chunk in sent]
        yield Together((
            Exchange(send=sent[0], to=(rank + distance) % size, offsets=_from_first(sent)),
            Exchange(recv=received[0], source=(rank - distance) % size, offsets=_from_first(received)),
        ))  # fmt: skip


def reduce_scatter(rank: int, size: int, aggregated: int) -> Iterator[Together]:
    """Afterwards rank r holds the sum of chunk r; its other chunks are partial sums."""
    for distance, away in reversed(list(transfers(size, aggregated))):
        received = [(rank - each) % size for each in away]
        sent = [(chunk - distance) % size for chunk in received]
        yield Together((
            Exchange(send=sent[0], to=(rank - distance) % size, offsets=_from_first(sent)),
            Exchange(recv=received[0], source=(rank + distance) % size, reduce=True, offsets=_from_first(received)),
        ))  # fmt: skip


def _from_first(chunks: Sequence[int]) -> tuple[int, ...]:
    return tuple(chunk - chunks[0] for chunk in chunks)


@lru_cache
def pat_all_gather(aggregated: int) -> Schedule:
    """Return the all-gather with at most `aggregated` chunks in a message."""
    name = f"PAT all-gather, {aggregated} chunks a message"
    steps = partial(all_gather, aggregated=aggregated)
    return Schedule(name, steps, lambda size: size, lambda size: 0, "all-gather")


@lru_cache
def pat_reduce_scatter(aggregated: int) -> Schedule:
    """Return the reduce-scatter with at most `aggregated` chunks in a message."""
    name = f"PAT reduce-scatter, {aggregated} chunks a message"
    steps = partial(reduce_scatter, aggregated=aggregated)
    return Schedule(name, steps, lambda size: size, lambda size: 0, "reduce-scatter")
