"""The sum of a round's contributions on the server, which is rank 0: plain, or so that the server learns the sum only.

    plain     each vector in float32                    4 bytes a number from each client
    secure    each vector masked, in 64-bit integers (`secure_sum`)
                                                        8 bytes a number, and keys and shares, whose number grows
                                                        with the square of the number of clients

There are more clients than ranks. Each rank is the host of some clients, and the keys and shares of all clients are
sent in one table, up a tree and down again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from farandole.collectives.executor import run
from farandole.collectives.tree import TREE
from farandole.errors import PlainError
from farandole.federated.clients import host
from farandole.federated.key_agreement import PUBLIC_BYTES
from farandole.federated.secret_sharing import SHARE_BYTES
from farandole.federated.secure_sum import SEALED_BYTES, Keys, SecureClient, Whole, from_whole, to_whole, unmasked
from farandole.runtime.communicator import Buffer, Communicator

SERVER = 0

Table = NDArray[np.uint8]


@dataclass(frozen=True)
class Round:
    """The clients that begin a round, and those that remain at its end, in order of their numbers."""

    taking_part: Sequence[int]
    left: Sequence[int]


class NotToBeMasked(PlainError):
    """A client's vector cannot be written in fixed-point numbers: the client has diverged."""


class Aggregation(Protocol):
    """A method of summing the clients' vectors."""

    def total(self, own: Mapping[int, Buffer], of: Round, length: int) -> Buffer | None:
        """Return the sum over all remaining clients on the server; None elsewhere, or if there is none. Collective.

        Args:
            own: the vectors of this host's remaining clients, in float64.
            length: of each vector.
        """
        ...


class PlainSum:
    """A sum of which the server sees every vector. A NaN or an infinity in one vector is one in the sum."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm

    def total(self, own: Mapping[int, Buffer], of: Round, length: int) -> Buffer | None:
        sent = {client: vector.astype(np.float32) for client, vector in own.items()}
        seen = to_server(self.comm, sent, of.left, np.empty(length, np.float32))
        if self.comm.rank != SERVER or not of.left:
            return None
        total = np.zeros(length)
        for client in of.left:  # in an order that has nothing to do with where they live
            total += seen[client]
        return total


class SecureSum:
    """A sum of which the server sees only masked vectors.

    Integers have no NaN and no infinity, so a client that has diverged ends the run.

    Args:
        threshold: number of clients that must remain; with one client the sum would be its vector.
    """

    def __init__(self, comm: Communicator, threshold: int) -> None:
        self.comm, self.threshold = comm, threshold

    def total(self, own: Mapping[int, Buffer], of: Round, length: int) -> Buffer | None:
        place = {client: number for number, client in enumerate(of.taking_part)}
        here = {
            client: SecureClient(client, self.threshold)
            for client in of.taking_part
            if host(client, self.comm.size) == self.comm.rank
        }

        keys = np.zeros((len(place), 2, PUBLIC_BYTES), np.uint8)
        for number, client in here.items():
            keys[place[number]] = [_bytes(key, PUBLIC_BYTES) for key in (client.keys.masks, client.keys.seals)]
        self._everybodys(keys)
        directory = {number: Keys(*map(_number, keys[at])) for number, at in place.items()}

        shares = np.zeros((len(place), len(place), SEALED_BYTES), np.uint8)  # from, for
        for number, client in here.items():
            for other, sealed in client.sealed_shares(directory).items():
                shares[place[number], place[other]] = np.frombuffer(sealed, np.uint8)
        self._everybodys(shares)
        for number, client in here.items():
            for other in set(place) - {number}:
                client.hold(other, shares[place[other], place[number]].tobytes())

        # From here on clients may be lost.
        if len(of.left) < self.threshold:
            return None
        masked = {client: here[client].masked(_whole(client, vector, len(place))) for client, vector in own.items()}
        seen = to_server(self.comm, masked, of.left, np.empty(length, np.uint64))

        told = np.zeros((len(place), len(place), SHARE_BYTES), np.uint8)  # by, of
        for number in own:
            for other, share in here[number].reveal(of.left).items():
                told[place[number], place[other]] = _bytes(share, SHARE_BYTES)
        self._everybodys(told)
        if self.comm.rank != SERVER:
            return None
        revealed = {by: {other: _number(told[place[by], at]) for other, at in place.items()} for by in of.left}
        return from_whole(unmasked(seen, directory, revealed))

    def _everybodys(self, table: Table) -> None:
        """Fill in the entries of the other hosts; this host has 0 in their place."""
        run(TREE, self.comm, table.reshape(-1))


def to_server(comm: Communicator, own: Mapping[int, Buffer], left: Sequence[int], space: Buffer) -> dict[int, Buffer]:
    """Return every client's vector on the server, in the clients' order; nothing elsewhere. Collective.

    Args:
        own: those of this host's clients.
        space: an array of the length and type that all vectors have.
    """
    seen = {}
    for client in left:
        source = host(client, comm.size)
        if comm.rank == SERVER and source != SERVER:
            comm.receive(space, source)
            seen[client] = space.copy()
        elif comm.rank == SERVER:
            seen[client] = own[client]
        elif comm.rank == source:
            comm.send(own[client], SERVER)
    return seen


def _whole(client: int, vector: Buffer, parts: int) -> Whole:
    try:
        return to_whole(vector, parts)
    except OverflowError as error:
        raise NotToBeMasked(
            f"client {client} has diverged, and --secure cannot add it up ({error}): give a smaller --lr, or leave out "
            "--secure to see what it does"
        ) from error


def _bytes(number: int, length: int) -> Table:
    return np.frombuffer(number.to_bytes(length), np.uint8)


def _number(row: Table) -> int:
    return int.from_bytes(row.tobytes())
