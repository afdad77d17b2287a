"""Sums over all ranks that are begun and waited for in two calls: what lab 4's gradients travel by.

It is strict where MPI's and torch's non-blocking collectives only promise nothing. Until a rank has waited for it, a
part that is being reduced holds numbers of no use, and changing it is an error. Ranks meet in the order in which
they began, so all have to begin the same reductions in the same order. And the order in which the ranks' numbers are
added up depends on where in the part they lie, as in a ring: parts that are cut otherwise have other last bits.

A rank that waits for a reduction does what is left of it and of those begun before: so nothing here takes place in the
background in truth, and nothing depends on the clock. What counts is the order of events, which it notes.
"""

from __future__ import annotations

import numpy as np

from farandole.collectives.steps import chunk_slices
from farandole.runtime.communicator import Buffer
from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.instrumented_network import Event, Network, told

OF_NO_USE = 1e200  # what stands in a part that is being reduced


class Reduction:
    """A sum over all ranks that has been begun."""

    def __init__(self, communicator: BackgroundCommunicator, part: Buffer, parameters: tuple[int, ...]) -> None:
        self.parameters = parameters
        self.mine = part.copy()
        self.total: Buffer | None = None
        self._communicator, self._part = communicator, part
        self._waited = False
        self._begun = len(communicator.events)
        part[:] = OF_NO_USE

    def wait(self) -> None:
        """Return once the sum stands where this rank's own numbers stood. A second time it does nothing.

        Raises:
            ValueError: the part was changed meanwhile, or the ranks have not begun the same reductions in one order.
        """
        if self._waited:
            return
        self._waited = True
        self._communicator.finish(self)
        if not (self._part == OF_NO_USE).all():
            if any(event.name == "update" for event in self._communicator.events[self._begun :]):
                raise ValueError(f"the update comes before the wait for {told(self.parameters)}")
            raise ValueError(
                f"what is being reduced has been changed: the gradients of {told(self.parameters)}. Were all of them "
                "there when the reduction was begun, and were they left alone until it was waited for?"
            )
        self._part[:] = self.total


class BackgroundCommunicator:
    """Begins sums over ranks 0 … size − 1 of parts of a network's gradients.

    Attributes:
        rank, size: this process's number, and how many there are.
        events: what has happened on this rank, the network's events.
    """

    def __init__(self, comm: LabCommunicator, network: Network) -> None:
        self.rank, self.size = comm.rank, comm.size
        self.events = network.events
        self._comm, self._network = comm, network
        self._begun: list[Reduction] = []
        self._finished = 0

    def begin(self, part: Buffer) -> Reduction:
        """Begin to replace `part` by its sum over all ranks, and return at once.

        Args:
            part: of the network's `gradients`, not a copy: those of some parameters that follow one another.

        Raises:
            ValueError: it is something else.
        """
        reduction = Reduction(self, part, self._parameters_in(part))
        self._begun.append(reduction)
        self.events.append(Event("begin", reduction.parameters))
        return reduction

    def finish(self, reduction: Reduction) -> None:
        """Take part in it, after all that were begun before it."""
        self.events.append(Event("wait", reduction.parameters))
        while reduction.total is None:
            self._meet(self._finished, self._begun[self._finished])
            self._finished += 1

    def _meet(self, number: int, reduction: Reduction) -> None:
        ends = [reduction.parameters[0], reduction.parameters[-1]]
        sent = np.concatenate([ends, reduction.mine])
        everybodys = self._comm.everybodys(sent, f"the wait for {told(reduction.parameters)}")
        for rank, arrived in enumerate(everybodys):
            first, last = map(int, arrived[:2])
            if [first, last] != ends:
                here, there = told(reduction.parameters), told(range(first, last + 1))
                raise ValueError(
                    f"reduction {number + 1} is of {here} on rank {self.rank}, and of {there} on rank {rank}: all "
                    "ranks have to begin them in the same order"
                )
        reduction.total = added_up([arrived[2:] for arrived in everybodys])

    def _parameters_in(self, part: Buffer) -> tuple[int, ...]:
        gradients, places = self._network.gradients, self._network.places
        if not isinstance(part, np.ndarray) or part.dtype != gradients.dtype or not part.flags.c_contiguous:
            raise ValueError("begin takes a part of network.gradients, such as network.gradients[start:stop]")
        start = (part.ctypes.data - gradients.ctypes.data) // part.itemsize
        stop = start + part.size
        if not 0 <= start < stop <= len(gradients):
            raise ValueError("begin takes a part of network.gradients itself, not a copy and not an empty one")
        within = [number for number, place in enumerate(places) if start <= place.start and place.stop <= stop]
        if not within or (places[within[0]].start, places[within[-1]].stop) != (start, stop):
            raise ValueError(
                f"begin takes the whole gradients of some parameters: elements {start} to {stop - 1} are no such part"
            )
        return tuple(within)


def added_up(everybodys: list[Buffer]) -> Buffer:
    """Return the sum, chunk c's beginning with rank c, as a ring does it."""
    size = len(everybodys)
    total = everybodys[0].copy()
    for chunk, place in enumerate(chunk_slices(total.size, size)):
        total[place] = everybodys[chunk][place]
        for step in range(1, size):
            total[place] += everybodys[(chunk + step) % size][place]
    return total
