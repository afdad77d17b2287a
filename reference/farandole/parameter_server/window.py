"""Parameters and gradients in memory that all ranks of a host share: what is pushed need not travel.

On one host a message is two copies, or at best one. In an MPI shared window (`MPI_Win_allocate_shared`)
the servers' parameters and a slot for each worker's gradient lie where all can see them. A push is
then a header alone: the server reads the gradient where it is. A pull is one copy, by the worker.
Headers still say when: a slot may be filled again once its push has been answered, and a server
moves its parameters only when all to whom it has granted them have said that their copy is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from farandole.errors import UsageError
from farandole.parameter_server.keys import KeyRange, joined
from farandole.parameter_server.mailbox import READ_DONE
from farandole.runtime.shared_window import allocate
from farandole.runtime.world import World

Array = NDArray[Any]
NOTHING = np.empty(0, dtype=np.uint8)


class Window:
    """One application's shared memory. Collective.

    Args:
        assignment: server's rank → its ranges.
        clients: who gets a slot.
        table: shape and type of the parameters.

    Raises:
        UsageError: the ranks are on several hosts, or shared memory is too small for it.
    """

    def __init__(
        self, world: World, assignment: Mapping[int, Sequence[KeyRange]], clients: Sequence[int], table: Array
    ) -> None:
        if world.local_size < world.size:
            raise UsageError("--transport window needs all ranks on one host: use --transport messages")
        world.comm.refuse("--transport window")
        self.comm = world.comm
        self.assignment = {server: list(ranges) for server, ranges in assignment.items()}
        self._shapes = dict.fromkeys(clients, table.shape)
        for server, ranges in assignment.items():
            self._shapes[server] = (sum(len(part) for part in ranges), *table.shape[1:])
        self._dtype = table.dtype
        own = int(np.prod(self._shapes.get(world.rank, (0,)))) * table.itemsize
        self._window = allocate(world.control, own, table.itemsize, "--transport messages")
        self._reading: set[int] = set()

    def of(self, rank: int) -> Array:
        """A server's parameters, or a client's slot."""
        memory, _ = self._window.Shared_query(rank)
        return np.ndarray(self._shapes[rank], self._dtype, buffer=cast(bytearray, memory))

    def pieces(self, client: int, server: int) -> list[Array]:
        """The client's slot as the server's ranges see it."""
        slot = self.of(client)
        return [slot[part.start : part.stop] for part in self.assignment[server]]

    def copy_out(self, server: int, into: Array) -> None:
        """A client's pull: copy the server's parameters, and tell it when that is done."""
        values, start = self.of(server), 0
        for part in joined(self.assignment[server]):
            into[part.start : part.stop] = values[start : start + len(part)]
            start += len(part)
        self.comm.post(NOTHING, server, READ_DONE).Wait()

    def granted(self, client: int) -> None:
        """On a server: `client` is about to read."""
        self._reading.add(client)

    def settle(self) -> None:
        """On a server: wait until nobody reads any more."""
        for client in sorted(self._reading):
            with self.comm.waiting("the end of a read", client):
                self.comm.take(NOTHING.copy(), client, READ_DONE)
        self._reading.clear()

    def free(self) -> None:
        """Give the memory back. Collective."""
        self._window.Free()
