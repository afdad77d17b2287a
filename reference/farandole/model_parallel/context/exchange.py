"""The ranks that share a sequence, and the messages between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from farandole.collectives.all_to_all import PAIRWISE
from farandole.collectives.executor import run_all_to_all
from farandole.model_parallel.context.placement import Parts, Placement, length
from farandole.model_parallel.context.steps import PassBlock, PassGradient
from farandole.runtime.communicator import Communicator, Pending
from farandole.runtime.devices import empty_on_host, on_host
from farandole.runtime.world import World

TAG = 0


@dataclass
class Arriving:
    """A block that is under way.

    Attributes:
        sent, received: buffers that must stay as they are until the exchange is complete.
    """

    pending: Pending
    sent: Tensor
    received: Tensor


class ContextGroup:
    """The ranks that share each sequence; a group of one communicates nothing.

    Args:
        comm: counted messages among these ranks.
        placement: the positions of each rank.
        world: traces the communication; None: it is not traced.
        name: tells this group from others, for the trace.
    """

    def __init__(
        self, comm: Communicator, placement: Placement, world: World | None = None, name: str = "context group"
    ) -> None:
        self.comm, self.placement = comm, placement
        self.rank, self.size = comm.rank, comm.size
        self._world, self._name = world, name

    def __deepcopy__(self, _: object) -> ContextGroup:
        """A copied layer is shared by the same ranks."""
        return self

    @property
    def own(self) -> Parts:
        """Return the positions of this rank."""
        return self.placement[self.rank]

    def positions(self, device: torch.device | None = None) -> Tensor:
        """Return the positions of this rank as numbers, in order."""
        return torch.cat([torch.arange(part.start, part.stop, device=device) for part in self.own])

    def begin(self, block: Tensor, step: PassBlock) -> Arriving:
        """Begin to send `block` to the right neighbour and to receive the next one from the left."""
        sent = on_host(block)
        received = empty_on_host(self._shape(block, step.following), block.dtype, block.device)
        pending = self.comm.begin_exchange([sent.numpy()], step.to, [received.numpy()], step.source, TAG)
        return Arriving(pending, sent, received)

    def complete(self, arriving: Arriving, device: torch.device) -> Tensor:
        """Wait for the block, and return it."""
        with self._communicating("ring: keys and values"):
            self.comm.complete(arriving.pending)
        return arriving.received.to(device)

    def pass_gradient(self, gradient: Tensor, step: PassGradient) -> Tensor:
        """Send the gradient of a block to the right neighbour, and return the one from the left."""
        received = empty_on_host(self._shape(gradient, step.following), gradient.dtype, gradient.device)
        with self._communicating("ring: gradients"):
            self.comm.exchange(on_host(gradient).numpy(), step.to, received.numpy(), step.source)
        return received.to(gradient.device)

    def all_to_all(self, blocks: Tensor) -> Tensor:
        """Return the blocks that all ranks have for this one: (ranks, …), and of `blocks` the s-th is for rank s."""
        with self._communicating("all-to-all"):
            return torch.from_numpy(run_all_to_all(PAIRWISE, self.comm, on_host(blocks).numpy())).to(blocks.device)

    def _shape(self, block: Tensor, owner: int) -> list[int]:
        """Return the shape of another rank's block: (…, its positions, head width)."""
        return [*block.shape[:-2], length(self.placement[owner]), block.shape[-1]]

    @contextmanager
    def _communicating(self, name: str) -> Iterator[None]:
        if self._world is None:
            yield
            return
        with self._world.communicate(name, self._name):
            yield
