"""The exchange of encoded vectors: an all-reduce if payloads can be added, otherwise an all-gather.

`sum_encoded`: an all-reduce by a ring, of numbers that may be added as they are. 2(P−1)/P·c bytes leave each rank, c
the bytes of a payload.

`gather`: every rank gets every payload, by the ring's second half; each decodes all and adds them in the order of
ranks, so all have the same bits. Each rank sends (P−1)·c bytes and decodes P payloads: this cost grows with the number
of ranks, while the all-reduce's does not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from farandole.collectives.executor import run
from farandole.collectives.ring import ALL_GATHER, RING
from farandole.collectives.steps import chunk_slices
from farandole.compression.compressor import Compressor, Payload, Vector
from farandole.runtime.communicator import Communicator


def transfer(compressor: Compressor, comm: Communicator, payload: Payload) -> Payload:
    """Exchange the payloads; return the argument of `decoded_sum`, the same on all ranks. Collective."""
    return gather(comm, payload) if compressor.sums_as is None else sum_encoded(compressor, comm, payload)


def sum_encoded(compressor: Compressor, comm: Communicator, payload: Payload) -> Payload:
    """Return the payload of the sum. Collective; overwrites `payload`."""
    assert compressor.sums_as is not None
    run(RING, comm, payload.view(compressor.sums_as))
    return payload


def gather(comm: Communicator, payload: Payload) -> Payload:
    """Return all payloads, which have equal lengths, in the order of ranks. Collective."""
    own = len(payload)
    everything = np.empty(comm.size * own, np.uint8)
    # In the ring's numbering rank r begins with chunk r + 1, so chunk 0 is the last rank's.
    place = (comm.rank + 1) % comm.size * own
    everything[place : place + own] = payload
    run(ALL_GATHER, comm, everything)
    return np.roll(everything, -own)


def swap_rows(comm: Communicator, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Send row j to rank j, and return all ranks' rows for this rank, in order (all-to-all). Collective.

    P − 1 rounds, in each of which every rank sends one row and receives another.
    """
    received = rows.copy()
    for distance in range(1, comm.size):
        to, source = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
        comm.exchange(rows[to], to, received[source], source)
    return received


def decoded_sum(compressor: Compressor, carried: Payload, length: int, ranks: int) -> Vector:
    """Return the sum of all ranks' vectors, with the compression error."""
    if compressor.sums_as is not None:
        return compressor.decode(carried, length)
    total = np.zeros(length, np.float32)
    for payload in carried.reshape(ranks, -1) if carried.size else ():
        total += compressor.decode(payload, length)
    return total


def bytes_of_ring(length: int, itemsize: int, rank: int, ranks: int) -> int:
    """Return the bytes that this rank sends in a ring all-reduce: 2(P−1)/P of the vector, in whole entries."""
    parts = chunk_slices(length, ranks)
    exchanges = (each for step in RING.steps(rank, ranks) for each in step.exchanges)
    sent = (parts[chunk] for each in exchanges for chunk in each.sent)
    return sum(itemsize * int(part.stop - part.start) for part in sent)
