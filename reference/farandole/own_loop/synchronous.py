"""Synchronous SGD around a loop of the user's own: each step follows the mean gradient over all ranks.

One step is that of `data_parallel.synchronous`, with any optimizer of torch: the sum of all ranks' gradients, each
weighted by its share of the batch, is the gradient of a single process on the whole batch.

    g  = Σ_r (n_r / n)·∇ mean loss of rank r's part
    w ← what the optimizer makes of w and g, alike on all ranks

Autograd adds gradients straight into one vector, of which each `grad` is a part, so the all-reduce needs no copy. Where
the loop puts another tensor in the place of a `grad`, it is copied.

Cost per step: one all-reduce of the gradient, and of one number per parameter tensor, which says whether any rank has
a gradient for it; one pass over the gradient to weigh it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.executor import AllReduce
from farandole.errors import UsageError
from farandole.own_loop.loop_method import LoopMethod, trainable
from farandole.runtime.world import World


class Synchronous(LoopMethod):
    """All ranks hold the same parameters, and take each step together."""

    name = "sync_sgd"

    def __init__(self, world: World, options: Any) -> None:
        super().__init__(world, options)
        self.optimizers: list[DistributedOptimizer] = []

    def optimizer(
        self,
        inner: torch.optim.Optimizer,
        every: int | None = None,
        max_norm: float | None = None,
        collective: str | None = None,
        **settings: Any,
    ) -> DistributedOptimizer:
        """Return `inner` with a `step` that first adds up all ranks' gradients.

        Raises:
            UsageError: there is no such collective, or `every` is less than 1.
        """
        collective = collective or "ring"
        if collective not in ALL_REDUCES:
            raise UsageError(f"there is no all-reduce {collective!r}: choose from {', '.join(ALL_REDUCES)}")
        if every is not None and every < 1:
            raise UsageError(f"every={every}: a step needs at least 1 batch")
        distributed = DistributedOptimizer(
            self.world, inner, every or 1, max_norm, ALL_REDUCES[collective], self.computing, self.together, self.secure
        )
        self.optimizers.append(distributed)
        return distributed

    def weigh(self, share: float) -> None:
        for optimizer in self.optimizers:
            optimizer.share = share


def call(what: Callable[[], None]) -> bool:
    """Make a collective call, whose failure ends the training."""
    what()
    return True


class DistributedOptimizer(torch.optim.Optimizer):
    """An optimizer of torch whose `step` follows the mean gradient over all ranks.

    Schedulers, `state_dict` and `load_state_dict` see the optimizer inside. A parameter that no rank has used has no
    gradient, as in one process; one that only some ranks have used moves alike on all.

    Where gradients are to be changed before the step, as by `GradScaler.unscale_`, call `reduce` first.

    Args:
        optimizer: of this rank's parameters, which are equal on all ranks.
        every: batches whose gradients are added up before a step is taken.
        max_norm: bound of the mean gradient's norm.
        computing: told what this rank computes from now on, for the trace; None: it communicates.
        together: makes a collective call; False: it failed, and the step does not count.
        secure: called before parameters change.

    Attributes:
        share: this rank's part of the batch, as a share of the whole.
    """

    def __init__(
        self,
        world: World,
        optimizer: torch.optim.Optimizer,
        every: int,
        max_norm: float | None,
        all_reduce: AllReduce,
        computing: Callable[[str | None], None] = lambda what: None,
        together: Callable[[Callable[[], None]], bool] = call,
        secure: Callable[[], None] = lambda: None,
    ) -> None:
        self.__dict__.update(optimizer.__dict__)  # param_groups, state, defaults and hooks: the same objects
        self.__dict__.pop("step", None)  # of a schedule that was made before: it would step without the others
        self.world, self.inner, self.every, self.max_norm = world, optimizer, every, max_norm
        self.all_reduce, self.computing, self.together, self.secure = all_reduce, computing, together, secure
        self.share = 1 / world.comm.size
        self.parameters = trainable(optimizer)
        kind = torch.float64 if any(each.dtype == torch.float64 for each in self.parameters) else torch.float32
        lengths = [each.numel() for each in self.parameters]
        is_on_a_card = any(each.device.type != "cpu" for each in self.parameters)
        self._sum = torch.zeros(sum(lengths) + len(lengths), dtype=kind, pin_memory=is_on_a_card)
        self._gradient, used = self._sum.split([sum(lengths), len(lengths)])
        self._used = used.numpy()  # an element of it is set in a thirtieth of the time
        self._parts = self._gradient.split(lengths)
        # One batch at a time, on the CPU, in the sum's type and order: a gradient may lie in the vector itself.
        self._places: list[Tensor | None] = [
            part.view_as(each)
            if every == 1 and each.dtype == kind and each.device.type == "cpu" and each.is_contiguous()
            else None
            for each, part in zip(self.parameters, self._parts, strict=True)
        ]
        for number, (parameter, place) in enumerate(zip(self.parameters, self._places, strict=True)):
            if place is not None:
                parameter.register_post_accumulate_grad_hook(partial(self._note, number))
        self._batches, self._is_reduced = 0, False

    def reduce(self) -> bool:
        """Add this batch's gradients to those before; after `every` batches make `grad` the mean of all ranks'.

        Returns:
            Whether it is the mean now, so that a step may follow.
        """
        self._collect()
        self._batches += 1
        if self._batches < self.every:
            self.zero_grad()
            return False
        self.computing(None)
        if not self.together(self._all_reduce):
            return False
        self.computing("update")
        used = self._used.tolist()
        for parameter, part, place, is_used in zip(self.parameters, self._parts, self._places, used, strict=True):
            mean = place if place is not None else part.clone().to(parameter).view_as(parameter)
            parameter.grad = mean if is_used else None
        if self.every > 1:
            self._sum.zero_()
        self._batches, self._is_reduced = 0, True
        return True

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step, if `every` batches have been added up; without `reduce` before, it is called."""
        if closure is not None:
            raise UsageError("a distributed step takes no closure: compute the loss and its gradient before")
        if not self._is_reduced and not self.reduce():
            return
        if self.max_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.max_norm)
        if self.together(self.secure):
            self.inner.step()
        self._is_reduced = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget this batch's gradients; those that have been added up stay."""
        self.inner.zero_grad(set_to_none)
        if self.every == 1:
            self._sum.zero_()
            for parameter, place in zip(self.parameters, self._places, strict=True):
                if place is not None:
                    parameter.grad = place

    def forget(self) -> None:
        """Forget all gradients, also those that have been added up."""
        self._batches, self._is_reduced = 0, False
        self._sum.zero_()
        self.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.inner.load_state_dict(state_dict)
        self.state, self.param_groups = self.inner.state, self.inner.param_groups

    def _collect(self) -> None:
        """Bring this batch's gradients, weighted by their share, into the vector."""
        alone = self.every == 1
        for number, (parameter, part, place) in enumerate(zip(self.parameters, self._parts, self._places, strict=True)):
            grad = parameter.grad
            if grad is not None and grad is place:
                continue  # `_note` has said whether it is used
            if grad is None:
                if alone:
                    part.zero_()
                    self._used[number] = 0
                continue
            own = (grad.to_dense() if grad.is_sparse else grad).reshape(-1).to(part)
            if alone:
                part.copy_(own)
            else:
                part.add_(own, alpha=self.share / self.every)
            self._used[number] = 1
        if alone:
            self._gradient *= self.share

    def _note(self, number: int, parameter: Tensor) -> None:
        """Autograd has added to this parameter's gradient."""
        self._used[number] = 1

    def _all_reduce(self) -> None:
        with self.world.communicate("all-reduce"):
            self.all_reduce(self.world.comm, self._sum.numpy())
