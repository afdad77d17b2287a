"""A shared-memory window for parameters and gradients, so that only headers are sent.

On one host a message is two copies, or at best one. An MPI shared window (`MPI_Win_allocate_shared`) contains the
servers' parameters and a slot for each worker's gradient. A push is then a header alone, and the server reads the
gradient in place. A pull is one copy, by the worker. The headers still order the accesses: a slot may be filled again
once its push has been answered, and a server moves its parameters only when every worker that was granted them has
reported the end of its copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from farandole.errors import UsageError
from farandole.parameter_server.keys import KeyRange, joined
from farandole.parameter_server.message_queue import READ_DONE
from farandole.runtime.shared_window import allocate
from farandole.runtime.world import World

Array = NDArray[Any]
NOTHING = np.empty(0, dtype=np.uint8)


class Window:
    """One application's shared memory. Collective.

    Args:
        assignment: server's rank → its ranges.
        clients: the ranks that get a slot.
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
        """Return a server's parameters, or a client's slot."""
        memory, _ = self._window.Shared_query(rank)
        return np.ndarray(self._shapes[rank], self._dtype, buffer=cast(bytearray, memory))

    def pieces(self, client: int, server: int) -> list[Array]:
        """Return the server's ranges of the client's slot."""
        slot = self.of(client)
        return [slot[part.start : part.stop] for part in self.assignment[server]]

    def copy_out(self, server: int, into: Array) -> None:
        """On a client: copy the server's parameters, and report the end of the copy to it."""
        values, start = self.of(server), 0
        for part in joined(self.assignment[server]):
            into[part.start : part.stop] = values[start : start + len(part)]
            start += len(part)
        self.comm.post(NOTHING, server, READ_DONE).Wait()

    def granted(self, client: int) -> None:
        """On a server: `client` is about to read."""
        self._reading.add(client)

    def wait_for_readers(self) -> None:
        """On a server: block until no client reads any more."""
        for client in sorted(self._reading):
            with self.comm.waiting("the end of a read", client):
                self.comm.take(NOTHING.copy(), client, READ_DONE)
        self._reading.clear()

    def free(self) -> None:
        """Give the memory back. Collective."""
        self._window.Free()
