"""The ranks that divide the experts, and the messages between them, as operators that autograd goes back through.

    dispatch    each rank's rows to the ranks of their experts
    combine     the experts' answers back to the ranks of their tokens

Both are an all-to-all of unequal blocks. Each is the other's way back: the gradients of the answers travel as the
tokens did, and those of the tokens as the answers did.

Cost per layer, for rows of w bytes: what a rank sends to others, then what it has received from them; backward again.
With an even load that is 4k(P−1)/P·n·w for its n tokens. With more ranks, and n as before, it hardly grows, but the
messages become more and shorter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from farandole.collectives.executor import run, run_unequal_all_to_all
from farandole.collectives.ring import ALL_GATHER
from farandole.model_parallel.expert.plan import Counts, divided
from farandole.model_parallel.tensor.exchange import apply
from farandole.runtime.communicator import Communicator
from farandole.runtime.devices import empty_on_host, on_host
from farandole.runtime.world import World


class ExpertGroup:
    """The ranks that divide the experts; a group of one communicates nothing.

    Args:
        comm: counted messages among these ranks.
        experts: of each layer.
        world: traces the communication; None: it is not traced.
        everyone: all ranks with tokens of the same batch, where several groups have copies of the experts; None: this
            group is all.
        name: tells this group from others, for the trace.

    Attributes:
        placement: each rank's experts.
        among: the places of this group's ranks among `everyone`.
    """

    def __init__(
        self,
        comm: Communicator,
        experts: int,
        world: World | None = None,
        everyone: Communicator | None = None,
        name: str = "expert group",
    ) -> None:
        self.comm, self.experts, self.everyone = comm, experts, everyone or comm
        self.among = [self.everyone.members.index(member) for member in comm.members]
        self.rank, self.size = comm.rank, comm.size
        self.placement = divided(experts, comm.size)
        self._world, self._name = world, name

    def __deepcopy__(self, _: object) -> ExpertGroup:
        """A copied layer's experts are divided over the same ranks."""
        return self

    @property
    def own(self) -> range:
        """Return the experts of this rank."""
        return self.placement[self.rank]

    def all_gather(self, counts: Tensor) -> Counts:
        """Return the counts of `everyone`, with one dimension more, the ranks, in front. Collective."""
        here: Counts = counts.cpu().numpy().astype(np.int64)
        rank, size = self.everyone.rank, self.everyone.size
        if size == 1:
            return here[None]
        everywhere = np.empty((size, here.size), np.int64)
        everywhere[(rank + 1) % size] = here.ravel()  # the ring's all-gather begins with that chunk
        with self._communicating("counts: all-gather"):
            run(ALL_GATHER, self.everyone, everywhere.reshape(-1))
        return np.roll(everywhere, -1, axis=0).reshape(size, *here.shape)

    def all_to_all(self, rows: Tensor, leaving: Sequence[int], arriving: Sequence[int], name: str) -> Tensor:
        """Return the rows that all ranks have for this one, in order of the ranks. Collective.

        Args:
            rows: (rows, width), those for rank 0 first.
            leaving, arriving: number of rows to each rank, and from each.
            name: of the communication, for the trace.
        """
        with self._communicating(name):
            sent = on_host(rows)
            received = empty_on_host([sum(arriving), rows.shape[1]], rows.dtype, rows.device)
            blocks = ([each.numpy() for each in sent.split(list(leaving))],
                      [each.numpy() for each in received.split(list(arriving))])  # fmt: skip
            run_unequal_all_to_all(self.comm, *blocks)
            return received.to(rows.device)

    @contextmanager
    def _communicating(self, name: str) -> Iterator[None]:
        if self._world is None:
            yield
            return
        with self._world.communicate(name, self._name):
            yield


def all_to_all(rows: Tensor, group: ExpertGroup, leaving: Sequence[int], arriving: Sequence[int], name: str) -> Tensor:
    """Return the rows that all ranks have for this one; backward sends their gradients back. Collective, both ways.

    Args:
        rows, leaving, arriving, name: as of `ExpertGroup.all_to_all`.
    """
    return apply(_AllToAll, rows, group, leaving, arriving, name) if group.size > 1 else rows


class _AllToAll(Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, group: ExpertGroup, leaving: Sequence[int], arriving: Sequence[int], name: str
    ) -> Tensor:
        ctx.group, ctx.leaving, ctx.arriving, ctx.name = group, leaving, arriving, name
        return group.all_to_all(rows, leaving, arriving, name)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        back: Tensor = ctx.group.all_to_all(gradient, ctx.arriving, ctx.leaving, f"{ctx.name}, backward")
        return back, None, None, None, None
