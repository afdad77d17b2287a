"""The same division by torch's FSDP2 (`fully_shard`), over gloo or NCCL (Zhao et al. 2023).

FSDP2 divides each parameter among the ranks by its first dimension, where ours divides the vector of a whole unit. It
gathers a unit before its forward pass and again before its backward pass, and adds up and divides its gradient as soon
as that is complete. Units are those of `plan`, except those that share a parameter with another one; the root unit has
the rest, and frozen parameters, which FSDP2 divides, too. It averages over ranks, so each loss is scaled by share · K
first, as in `data_parallel.ddp_twin`.

Cost per step: with stage 3 two all-gathers of the parameters and one reduce-scatter of the gradient; with stage 2, in
which a unit stays gathered from forward to backward, one all-gather less. By the library's own algorithms. With k
micro-batches all is gathered in each, and the gradient is added up whole on each rank until the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import SGD, Adam, Optimizer

from farandole.data.batch import Batch
from farandole.data_parallel import accumulation, process_group
from farandole.data_parallel.process_group import SIGNS, Backend, WantedBackend
from farandole.data_parallel.training import Strategy
from farandole.errors import UsageError
from farandole.runtime.buffers import buffers_as_bytes, set_buffers, trained
from farandole.runtime.world import World
from farandole.sharded.half import check_buffers
from farandole.sharded.plan import units
from farandole.tasks import Loss

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"sgd": SGD, "momentum": partial(SGD, momentum=0.9), "adam": Adam}


class FsdpSGD(Strategy):
    """A model whose training state FSDP2 divides over the ranks. Its parameters must be used in the modules with them.

    Args:
        optimizer: sgd, momentum or adam, by torch.
        stage: 3: a unit is freed after its forward pass; 2: only after its backward pass.
        half: the model computes in bfloat16, and is gathered in it; gradients are added up in float32.

    Raises:
        UsageError: NCCL is wanted, and cannot be had; the ranks compute on cards without it; or the model cannot
            compute in bfloat16 (`half.check_buffers`).
    """

    bytes_are_counted = False
    needs_samples = True  # a rank without any would not take part in the gathering

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        optimizer: str,
        lr: float,
        timeout_s: float,
        wanted: WantedBackend = "auto",
        stage: Literal[2, 3] = 3,
        half: bool = False,
    ) -> None:
        self.world, self.loss = world, loss
        self.backend = process_group.start(world, timeout_s, wanted)
        if self.backend == "gloo" and world.device.type != "cpu":
            raise UsageError("gloo gathers in hosts' memory only: use --device cpu, or NCCL and a card for each rank")
        if half:
            check_buffers(model)
        self._whole = without_memory(model)
        mesh = init_device_mesh(world.device.type, (world.size,))
        shard = partial(fully_shard, mesh=mesh, reshard_after_forward=stage == 3)
        for module in (*own_units(model), model):
            policy = MixedPrecisionPolicy()
            if half:  # the loss is computed in float32
                policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32 if module is model else None)
            divided: Any = shard(module, mp_policy=policy)  # the module itself, which FSDP2 has made an FSDPModule
            divided.set_custom_all_gather(Traced(world, self.backend, "all-gather"))
            divided.set_custom_reduce_scatter(Traced(world, self.backend, "reduce-scatter"))
        self.model = self._divided = divided
        self.optimizer = OPTIMIZERS[optimizer](model.parameters(), lr=lr)

    def step(self, batch: Batch, share: float) -> float:
        self.optimizer.zero_grad()
        with self.world.compute("forward and backward"):
            mean_loss = self.backward(batch, share * self.world.size)
        with self.world.compute("update"):
            self.optimizer.step()
        return mean_loss.item()

    def backward(self, batch: Batch, weight: float) -> Tensor:
        return accumulation.backward(partial(self.loss, self.model), batch, weight, self.accumulate, self._around)

    @contextmanager
    def _around(self, is_last: bool) -> Iterator[None]:
        """Let only the last pass add up the ranks' gradients."""
        self._divided.set_requires_gradient_sync(is_last)
        yield

    def finish(self) -> None:
        """Have the whole model on every rank, to be evaluated. Collective."""
        with self.world.comm.waiting_for_library("FSDP's parameters", sign=SIGNS[self.backend]):
            gathered = {id(each): _gathered(each) for each in self._divided.parameters()}  # a tied one once
        for name, each in self._divided.named_parameters(remove_duplicate=False):
            module, _, last = name.rpartition(".")
            setattr(self._whole.get_submodule(module), last, gathered[id(each)])
        set_buffers(self._whole, buffers_as_bytes(self._divided))
        self.model = self._whole


def own_units(model: nn.Module) -> list[nn.Module]:
    """Return the modules that are units and share no trained parameter with another one: FSDP2 divides it once."""
    modules = [(unit.module, len(unit.parameters)) for unit in units(model)]
    return [module for module, own in modules if module and own == len(trained(module))]


# By the names that torch gives them from 2.13 on, or else by their former ones.
COLLECTIVES: dict[str, Callable[..., Any]] = {
    "all-gather": getattr(dist, "all_gather_single", dist.all_gather_into_tensor),
    "reduce-scatter": getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor),
}


class Traced:
    """A collective for FSDP2, traced as communication. On cards the call returns before it is complete."""

    def __init__(self, world: World, backend: Backend, name: str) -> None:
        self.world, self.backend, self.name = world, backend, name

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return memory for the result."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, **given: Any) -> Any:
        library = self.world.comm.waiting_for_library(f"FSDP's {self.name}", sign=SIGNS[self.backend])
        with self.world.communicate(self.name), library:
            return COLLECTIVES[self.name](output_tensor, input_tensor, **given)


def without_memory(model: nn.Module) -> nn.Module:
    """Return a copy of a model whose parameters are on torch's meta device."""
    there = {
        id(each): nn.Parameter(torch.empty_like(each, device="meta"), each.requires_grad) for each in model.parameters()
    }
    return deepcopy(model, there)


def _gathered(parameter: nn.Parameter) -> nn.Parameter:
    own = parameter.detach()
    return nn.Parameter(own.full_tensor() if isinstance(own, DTensor) else own, parameter.requires_grad)
