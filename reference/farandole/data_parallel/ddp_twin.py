"""The same step by torch's DistributedDataParallel, over gloo or NCCL (Li et al. 2020).

DDP collects gradients into buckets and reduces each as soon as backward has filled it. It
averages over ranks, so each loss is scaled by share · K first; with equal parts the factor is 1.
The processes are those of the launch: MPI only tells them where rank 0 listens.

gloo adds up in the memory of hosts, to which it copies what lies on cards. NCCL does so on the cards, and refuses two
ranks on one.

Cost per step: one all-reduce of the gradient by the library's own algorithm, beside backward except for the last
bucket.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any, Literal

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch's stubs omit it
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from farandole.data.batch import Batch
from farandole.data_parallel import accumulation
from farandole.data_parallel.backward_clock import BackwardClock
from farandole.data_parallel.training import Strategy
from farandole.errors import UsageError
from farandole.runtime.communicator import all_gather_text, broadcast_text
from farandole.runtime.world import World
from farandole.tasks import Loss

Backend = Literal["gloo", "nccl"]
WantedBackend = Literal["auto", "gloo", "nccl"]
SIGNS = {"gloo": "gloo", "nccl": "NCCL"}  # in a library's own errors


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
        self.backend = backend_of(wanted, _cards(world), dist.is_nccl_available())
        join_process_group(world, timeout_s, self.backend)
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


def backend_of(wanted: WantedBackend, cards: Sequence[str], has_nccl: bool) -> Backend:
    """Return the library that adds up the gradients: NCCL, unless gloo is wanted, if each rank has its own CUDA card.

    Args:
        cards: of all ranks, by name; "": the rank computes elsewhere.
        has_nccl: torch is built with NCCL.

    Raises:
        UsageError: NCCL is wanted, and cannot be had.
    """
    fits = has_nccl and all(cards) and len(set(cards)) == len(cards)
    if wanted == "nccl" and not fits:
        why = "some ranks have none, or share one" if has_nccl else "this torch is built without NCCL"
        raise UsageError(f"--backend nccl needs a CUDA card for each rank, and {why}: use --backend gloo")
    return "nccl" if fits and wanted != "gloo" else "gloo"


def _cards(world: World) -> list[str]:
    """Return each rank's CUDA card, by name. Collective."""
    card = world.place.card
    return all_gather_text(world.control, card.name if card and world.device.type == "cuda" else "")


def join_process_group(world: World, timeout_s: float, backend: Backend = "gloo") -> None:
    """Make the launch's ranks a process group of torch, once; rank 0 picks a free port and tells it. Collective."""
    if dist.is_initialized():
        return
    timeout = timedelta(seconds=timeout_s)
    host = "127.0.0.1" if world.local_size == world.size else socket.gethostname()
    store = None
    if world.rank == 0:
        store = TCPStore(host, 0, world.size, is_master=True, timeout=timeout, wait_for_workers=False)
    address = broadcast_text(world.control, f"{host}:{store.port}" if store else "")
    host, _, port = address.rpartition(":")
    store = store or TCPStore(host, int(port), world.size, is_master=False, timeout=timeout)
    dist.init_process_group(
        backend,
        store=store,
        rank=world.rank,
        world_size=world.size,
        timeout=timeout,
        device_id=world.device if backend == "nccl" else None,
    )
