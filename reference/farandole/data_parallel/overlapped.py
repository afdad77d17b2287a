"""Synchronous SGD whose all-reduces run while backward still computes.

    computation      forward │ backward: layer 3 │ layer 2 │ layer 1 │        │ update
    communication                                │ bucket 0│ bucket 1│bucket 2│
                                                                     └ exposed┘

A hook on each parameter reports its gradient; a bucket whose gradients are complete is passed to a thread that only
all-reduces, in an order that is the same on all ranks. A step waits only for the communication that is left when
backward has ended. Without overlap (apex calls it `delay_allreduce`) the same buckets wait for the end of backward, and
are then reduced: the sums are bitwise the same.

On a card a bucket is copied to the host on a stream of its own, as soon as it is complete, and its sum back on another:
bucket 1 is copied while bucket 0 travels, and both while backward computes. With `--card-transport direct` MPI sends a
bucket from the card, and its sums are computed on a stream of their own.

Cost: as synchronous SGD, with α for each bucket; a step takes forward + max(backward, communication) + the last
bucket's all-reduce instead of the sum of all, if there is a core, a card or a network that computes nothing meanwhile.
Source: Li et al., "PyTorch distributed: experiences on accelerating data parallel training", 2020.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from torch import Event, Tensor, nn

from farandole.collectives.executor import AllReduce
from farandole.data.batch import Batch
from farandole.data_parallel.backward_clock import BackwardClock
from farandole.data_parallel.buckets import cut
from farandole.data_parallel.training import Strategy
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers, trained
from farandole.runtime.communicator import Buffer
from farandole.runtime.world import World
from farandole.tasks import Loss


class OverlappedSGD(Strategy):
    """A model trained in step with its copies on all other ranks, its gradient reduced bucket by bucket.

    Args:
        bucket_bytes: how large a bucket may be, unless it is of one parameter.
        overlap: reduce while backward continues; otherwise after it.
        gradients: memory for the gradient, where it is to lie in a certain place.
    """

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        make_optimizer: MakeOptimizer,
        all_reduce: AllReduce,
        bucket_bytes: int,
        overlap: bool = True,
        bytes_are_counted: bool = True,
        gradients: Buffer | None = None,
    ) -> None:
        self.world = world
        self.model = model
        self.loss = loss
        self.all_reduce = all_reduce
        self.overlap = overlap
        self.bytes_are_counted = bytes_are_counted
        self.flat = FlatBuffers(model, gradients, direct=world.transport == "direct")
        self.copies = self.flat.copies()
        self.optimizer = make_optimizer(self.flat.values, self.flat.gradients)
        self.comm = world.comm.split(0, world.rank)  # the thread's own: its messages meet no others
        parameters = trained(model)
        self.buckets = cut([each.numel() for each in parameters], bucket_bytes // self.flat.values.itemsize)
        self.clock = BackwardClock(world, model)
        self._thread = ThreadPoolExecutor(1, "all-reduce")
        self._missing: list[int] = []  # of each bucket, how many gradients
        self._reductions: list[Future[Event | None]] = []  # of the buckets handed over, which are the first ones
        for number, bucket in enumerate(self.buckets):
            for parameter in bucket.parameters:
                hook = partial(self._gradient_is_there, number)
                parameters[parameter].register_post_accumulate_grad_hook(hook)

    def step(self, batch: Batch, share: float) -> float:
        self.flat.zero_gradients()
        self._reductions = []
        # Each of a parameter's backward passes reports its gradient; only the last one completes it.
        self._missing = [self.accumulate * len(bucket.parameters) for bucket in self.buckets]
        self.clock.start(self.accumulate)
        mean_loss = self.backward(batch, share)
        self.clock.backward_has_ended()
        while len(self._reductions) < len(self.buckets):
            self._hand_over_next()
        for reduction in self._reductions:
            if arrival := reduction.result():
                arrival.synchronize()
        self.clock.communicated()

        with self.world.compute("update"):
            self.optimizer.step()
        return mean_loss.item()

    def finish(self) -> None:
        self._thread.shutdown()

    def _gradient_is_there(self, bucket: int, _: Tensor) -> None:
        self._missing[bucket] -= 1
        while self.overlap and len(self._reductions) < len(self.buckets) and not self._missing[len(self._reductions)]:
            self._hand_over_next()

    def _hand_over_next(self) -> None:
        """In the buckets' order, whichever is complete first: all ranks have to reduce the same one."""
        place = self.buckets[len(self._reductions)].place
        self._reductions.append(self._thread.submit(self._reduce, place, self.copies.begin_to_host(place)))

    def _reduce(self, place: slice, is_there: Event | None) -> Event | None:
        """In the thread: reduce, and begin to bring the sum back to the card."""
        if is_there:
            is_there.synchronize()
        with self.world.trace.beside("all-reduce of a bucket"), self.copies.adding():
            self.all_reduce(self.comm, self.flat.on_wire[place])
        return self.copies.begin_from_host(place)
