"""The communication of ranks that share a layer, as operators that autograd goes back through.

Between two split layers the activations are whole: every rank has them, the same bits. Inside,
each rank has its part. Three operators lead in and out (f and g are the paper's names):

    operator           forward                    backward
    copy to the parts  nothing                    Σ of the parts' gradients      f
    sum of the parts   Σ of the parts             nothing                        g
    gather             the parts side by side     the own part's slice

Backward of a copy is a sum and backward of a sum is a copy, so f and g are each other's
conjugates: a layer between them costs one all-reduce forward and one backward. The loss counts as
one number, although every rank computes it.

Cost for n bytes of activations: a sum 2(P−1)/P·n per rank with the ring, a gather (P−1)/P·n.
Source: Shoeybi et al., "Megatron-LM", 2019.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from mpi4py import MPI
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.executor import AllReduce
from farandole.data.shares import equal_shares
from farandole.errors import UsageError
from farandole.runtime.communicator import Communicator
from farandole.runtime.devices import empty_on_host, on_host
from farandole.runtime.world import World


class TensorGroup:
    """The ranks that share the layers of a model; a group of one communicates nothing.

    Args:
        comm: counted messages among these ranks.
        world: traces the communication; None: it is not traced.
        all_reduce: sums a vector in place and leaves the same bits everywhere.
    """

    def __init__(self, comm: Communicator, world: World | None = None, all_reduce: AllReduce | None = None) -> None:
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self._world = world
        self._all_reduce = all_reduce or ALL_REDUCES["ring"]
        members = comm.mpi.Get_group().Translate_ranks(list(range(self.size)), MPI.COMM_WORLD.Get_group())
        self._name = f"tensor group {','.join(map(str, members))}"

    def __deepcopy__(self, _: object) -> TensorGroup:
        """A copied layer is shared by the same ranks."""
        return self

    def shares(self, count: int, what: str) -> list[int]:
        """Return the number of the `count` heads, outputs, … that each rank gets.

        Raises:
            UsageError: some rank would get none.
        """
        if self.size > count:
            raise UsageError(f"{count} {what} cannot be divided over {self.size} ranks: use at most {count}")
        return equal_shares(count, self.size)

    def sum(self, part: Tensor) -> Tensor:
        """Σ of all ranks' parts, which have one shape; the same bits on every rank. Collective."""
        if self.size == 1:
            return part
        with self._communicating("all-reduce"):
            staged = empty_on_host(part.shape, part.dtype, part.device).copy_(part.detach())
            self._all_reduce(self.comm, staged.numpy().reshape(-1))
            return staged.to(part.device)

    def gather(self, part: Tensor, shares: Sequence[int], dimension: int) -> Tensor:
        """Return all ranks' parts side by side along `dimension`, where rank r's is `shares[r]` long. Collective.

        The ring's all-gather with a block per rank: each block goes once around.
        """
        if self.size == 1:
            return part
        shape = list(part.shape)
        blocks = []
        with self._communicating("all-gather"):
            for rank, share in enumerate(shares):
                shape[dimension] = share
                blocks.append(on_host(part) if rank == self.rank else empty_on_host(shape, part.dtype, part.device))
            right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
            with self.comm.collective("all-gather", max(block.nbytes for block in blocks)):
                for step in range(self.size - 1):
                    leaving, place = blocks[(self.rank - step) % self.size], (self.rank - step - 1) % self.size
                    self.comm.exchange(leaving.numpy(), right, blocks[place].numpy(), left)
            return torch.cat(blocks, dimension).to(part.device)

    def reduce_scatter(self, part: Tensor, shares: Sequence[int], dimension: int) -> Tensor:
        """Σ of all ranks' parts, of which rank r gets `shares[r]` along `dimension`. Collective.

        The first half of a ring all-reduce, with a block per rank: rank r's block travels from rank r + 1 once around.
        """
        if self.size == 1:
            return part
        with self._communicating("reduce-scatter"):
            blocks = [on_host(block) for block in part.detach().split(list(shares), dimension)]
            right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
            with self.comm.collective("reduce-scatter", part.nbytes):
                for step in range(self.size - 1):
                    leaving, own = blocks[(self.rank - step - 1) % self.size], (self.rank - step - 2) % self.size
                    arriving = torch.empty_like(blocks[own])
                    self.comm.exchange(leaving.numpy(), right, arriving.numpy(), left)
                    blocks[own] = arriving.add_(blocks[own])
            return blocks[self.rank].to(part.device)

    @contextmanager
    def _communicating(self, name: str) -> Iterator[None]:
        if self._world is None:
            yield
            return
        with self._world.communicate(name, self._name):
            yield


def copy_to_parts(x: Tensor, group: TensorGroup) -> Tensor:
    """f: every rank goes on with `x`, which all of them have; backward adds up their gradients."""
    return apply(_CopyToParts, x, group) if group.size > 1 else x


def sum_of_parts(part: Tensor, group: TensorGroup) -> Tensor:
    """g: Σ of the ranks' parts; backward hands the gradient to each of them."""
    return apply(_SumOfParts, part, group) if group.size > 1 else part


def gather_parts(part: Tensor, shares: Sequence[int], group: TensorGroup) -> Tensor:
    """Return the ranks' parts side by side along the last dimension; backward takes the own part's slice."""
    return apply(_GatherParts, part, shares, group) if group.size > 1 else part


class _CopyToParts(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: TensorGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.group.sum(gradient), None


class _SumOfParts(Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: TensorGroup) -> Tensor:
        return group.sum(part)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _GatherParts(Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, shares: Sequence[int], group: TensorGroup) -> Tensor:
        ctx.shares, ctx.rank = list(shares), group.rank
        return group.gather(part, shares, dimension=-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient.split(ctx.shares, dim=-1)[ctx.rank], None, None


def apply(operator: type[Function], *arguments: object) -> Tensor:
    """``operator.apply``, which torch has left without types."""
    result: Tensor = operator.apply(*arguments)
    return result
