"""The same step by torch's DistributedDataParallel, over gloo or NCCL (Li et al. 2020).

DDP collects gradients into buckets and reduces each as soon as backward has filled it. It
averages over ranks, so each loss is scaled by share · K first; with equal parts the factor is 1.

Cost per step: one all-reduce of the gradient by the library's own algorithm, beside backward except for the last
bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from farandole.data.batch import Batch
from farandole.data_parallel import accumulation, process_group
from farandole.data_parallel.backward_clock import BackwardClock
from farandole.data_parallel.process_group import SIGNS, WantedBackend
from farandole.data_parallel.training import Strategy
from farandole.runtime.world import World
from farandole.tasks import Loss


class WithLoss(nn.Module):
    """A model with its loss as the outputs, so that DDP sees a forward pass even where the part has no sample.

    The loss of no sample does not call the model. Without a forward pass DDP would not reduce, and the others wait.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch) -> Tensor:
        return self.loss(self.model, batch)


class DdpSGD(Strategy):
    """A model trained by torch DDP in step with its copies on all other ranks.

    Args:
        bucket_kb: DDP closes a bucket when it has this many KB or more; None: its default.
    """

    bytes_are_counted = False

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        lr: float,
        timeout_s: float,
        wanted: WantedBackend = "auto",
        bucket_kb: int | None = None,
    ) -> None:
        self.world = world
        self.model = model
        self.loss = loss
        self.backend = process_group.start(world, timeout_s, wanted)
        self.clock = BackwardClock(world, model)
        bucket_cap_mb: Any = None if bucket_kb is None else 1000 * bucket_kb / 2**20  # DDP's MB, not whole ones
        self.parallel = DistributedDataParallel(WithLoss(model, loss), bucket_cap_mb=bucket_cap_mb)
        self.optimizer = SGD(model.parameters(), lr=lr)

    def step(self, batch: Batch, share: float) -> float:
        self.optimizer.zero_grad(set_to_none=False)
        self.clock.start(self.accumulate)
        mean_loss = self.backward(batch, share * self.world.size)
        self.clock.backward_has_ended()
        self.clock.communicated()

        with self.world.compute("update"):
            self.optimizer.step()
        return mean_loss.item()

    def backward(self, batch: Batch, weight: float) -> Tensor:
        return accumulation.backward(self.parallel, batch, weight, self.accumulate, self._around)

    @contextmanager
    def _around(self, is_last: bool) -> Iterator[None]:
        """Let only the last pass reduce: DDP decides in forward whether its backward does."""
        library = self.world.comm.waiting_for_library("DDP's all-reduce", sign=SIGNS[self.backend])
        with nullcontext() if is_last else self.parallel.no_sync(), library:
            yield
