"""A shared-memory window for parameters and gradients, so that only headers are sent.

On one host a message is two copies, or at best one. An MPI shared window (`MPI_Win_allocate_shared`) contains the
servers' parameters and a slot for each worker's gradient. A push is then a header alone, and the server reads the
gradient in place. A pull is one copy, by the worker. The headers still order the accesses: a slot may be filled again
once its push has been answered, and a server moves its parameters only when every worker that was granted them has
reported the end of its copy.

Under a policy whose updates wait for every worker (`bsp`) a pull needs no copy either. The parameters then lie in two
arrays, and an update reads one and writes the other, in turns. A worker computes at the one that was written last,
without copying it. Its next push says that it no longer reads there, and only the update after the next writes there.
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
        in_turns: the parameters lie in two arrays, which updates write in turns.

    Raises:
        UsageError: the ranks are on several hosts, or shared memory is too small for it.
    """

    def __init__(
        self,
        world: World,
        assignment: Mapping[int, Sequence[KeyRange]],
        clients: Sequence[int],
        table: Array,
        in_turns: bool = False,
    ) -> None:
        if world.local_size < world.size:
            raise UsageError("--transport window needs all ranks on one host: use --transport messages")
        world.comm.refuse("--transport window")
        self.comm = world.comm
        self.assignment = {server: list(ranges) for server, ranges in assignment.items()}
        self._shape, self._dtype = table.shape, table.dtype
        self._places: dict[int, slice] = {}  # each server's parameters follow those of the one before
        keys = 0
        for server, ranges in self.assignment.items():
            self._places[server] = slice(keys, keys := keys + sum(len(part) for part in ranges))
        self._home = min(self.assignment)  # has all servers' parameters in its part of the window
        self.in_turns, arrays = in_turns, 2 if in_turns else 1
        parts = dict.fromkeys(clients, table.nbytes) | {self._home: arrays * table.nbytes}
        self._window = allocate(world.control, parts.get(world.rank, 0), table.itemsize, "--transport messages")
        self._reading: set[int] = set()

    def slot(self, client: int) -> Array:
        """Return a client's slot."""
        return self._array(client)

    def parameters(self, server: int, array: int = 0) -> Array:
        """Return a server's parameters, in one of the arrays."""
        return self._array(self._home, array)[self._places[server]]

    @property
    def lends(self) -> bool:
        """Return whether a client can read all parameters where they lie (not if they are assigned by hashing)."""
        ranges = [part for ranges in self.assignment.values() for part in ranges]
        return self.in_turns and ranges == sorted(ranges)

    def lent(self, clock: int) -> Array | None:
        """Return the parameters for iteration `clock` where they lie, if the window `lends`."""
        return self._array(self._home, clock % 2) if self.lends else None

    def pieces(self, client: int, server: int) -> list[Array]:
        """Return the server's ranges of the client's slot."""
        slot = self.slot(client)
        return [slot[part.start : part.stop] for part in self.assignment[server]]

    def copy_out(self, server: int, clock: int, into: Array) -> None:
        """On a client: copy the server's parameters for iteration `clock`, and report the end of the copy to it."""
        values, start = self.parameters(server, clock % 2 if self.in_turns else 0), 0
        for part in joined(self.assignment[server]):
            into[part.start : part.stop] = values[start : start + len(part)]
            start += len(part)
        if not self.in_turns:
            self.comm.post(NOTHING, server, READ_DONE).Wait()

    def granted(self, client: int) -> None:
        """On a server: `client` is about to read."""
        if not self.in_turns:
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

    def _array(self, rank: int, number: int = 0) -> Array:
        memory, _ = self._window.Shared_query(rank)
        nbytes = int(np.prod(self._shape)) * self._dtype.itemsize
        return np.ndarray(self._shape, self._dtype, buffer=cast(bytearray, memory), offset=number * nbytes)
