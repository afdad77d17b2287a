"""Your own loop, made distributed: five lines of a training in one process change.

    with OwnLoop(out="runs/mine") as loop:                                     # 1 join the launch
        model = loop.share(Model())                                            # 2 the same parameters on all ranks
        optimizer = loop.optimizer(torch.optim.AdamW(model.parameters()))      # 3 steps along the mean gradient
        for inputs, targets in loop.batches(dataset, 64, epochs=3):            # 4 this rank's part of each batch
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            loop.log(loss)                                                     # 5 the record

One step is that of synchronous SGD (`synchronous`), with any optimizer of torch: the sum of all ranks' gradients, each
weighted by its share of the batch, is that of a single process on the whole batch. Horovod has the same five lines.

    mpirun -n 4 python my_program.py

Cost per step: one all-reduce of the gradient, and of one number per parameter tensor, which says whether any rank has
a gradient for it; one pass over the gradient to collect it, and one to hand it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.executor import AllReduce, run
from farandole.collectives.tree import BROADCAST
from farandole.data import batch as batch_tools
from farandole.data.batch import Batch
from farandole.data.sampler import EpochSampler, batch_size, check_filled, steps_per_epoch
from farandole.data.samples import samples_of
from farandole.data.shares import equal_shares, slices
from farandole.data_parallel.loss_log import LossLog
from farandole.errors import UsageError
from farandole.runtime import devices
from farandole.runtime.buffers import mean_statistics, sha256
from farandole.runtime.command_line import parse, to_arguments
from farandole.runtime.options import RunOptions
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World

NAME = "own_loop"
ENDLESS = 2**62  # steps, of a training whose end is not known


class OwnLoop:
    """A training whose loop is yours, on all ranks of this launch.

    Args:
        options: those of every run, as of `launch`: out, seed, device, slow, fail, link_mbps, wait_timeout.

    Attributes:
        world: this rank's place in the launch; `world.rank`, `world.size`, `world.device`.
        step: the number of batches that have begun, less 1.
        summary: of the run, on rank 0 after the end.

    Raises:
        UsageError: an option that does not exist, or a value that does not fit.
    """

    def __init__(self, **options: Any) -> None:
        self.options = parse(RunOptions, to_arguments(options))
        self.world = World.start(self.options)
        self.step, self.share_of_batch = -1, 1.0 / self.world.size
        self.summary: Summary | None = None
        self._model: nn.Module | None = None
        self._optimizers: list[DistributedOptimizer] = []
        self._samples, self._of_batch, self._is_logged = 0, 0, False
        self._span: AbstractContextManager[None] | None = None

    def __enter__(self) -> Self:
        self.world.__enter__()
        try:
            devices.seed_everything(self.options.seed)
            self._recorder = Recorder(self.world, NAME, self.options)
            self._losses = LossLog(self.world, self._recorder, ENDLESS)
            self._recorder.start()
        except BaseException as error:  # as a folder that holds a run: the other ranks have to know
            self.world.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._computing(None)
            self._finish()
        self.world.__exit__(kind, error, trace)

    def share(self, model: nn.Module) -> nn.Module:
        """Bring the model to this rank's device, with rank 0's parameters and buffers. Collective.

        Returns:
            The same model.
        """
        self._model = model.to(self.world.device)
        state = [*model.parameters(), *model.buffers()]
        if state:
            as_bytes = torch.cat([each.detach().cpu().reshape(-1).contiguous().view(torch.uint8) for each in state])
            with self.world.communicate("broadcast"):
                run(BROADCAST, self.world.comm, as_bytes.numpy())
            for each, part in zip(state, as_bytes.split([each.nbytes for each in state]), strict=True):
                each.data.copy_(part.clone().view(each.dtype).reshape(each.shape))
        return model

    def optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        every: int = 1,
        max_norm: float | None = None,
        collective: str = "ring",
    ) -> DistributedOptimizer:
        """Return `optimizer` with a `step` that first adds up all ranks' gradients.

        Args:
            every: batches whose gradients are added up before a step is taken; nothing is sent in between.
            max_norm: bound of the norm of the mean gradient, which all ranks compute alike.
            collective: the all-reduce, one of `ALL_REDUCES`.

        Raises:
            UsageError: there is no such collective, or `every` is less than 1.
        """
        if collective not in ALL_REDUCES:
            raise UsageError(f"there is no all-reduce {collective!r}: choose from {', '.join(ALL_REDUCES)}")
        if every < 1:
            raise UsageError(f"every={every}: a step needs at least 1 batch")
        distributed = DistributedOptimizer(
            self.world, optimizer, every, max_norm, ALL_REDUCES[collective], self._computing
        )
        self._optimizers.append(distributed)
        return distributed

    def batches(
        self, samples: Any, batch: int, *, epochs: int = 1, collate: Callable[[Any], Batch] | None = None
    ) -> Iterator[Batch]:
        """Yield this rank's part of each batch, on its device.

        Every sample is used once an epoch, by one rank. All ranks take the same number of steps; their parts of a batch
        differ by one sample at most, and `DistributedOptimizer` weights them.

        Args:
            samples: arrays, a tuple or dict of them, or a map-style Dataset, the same on all ranks.
            batch: samples of a step, of all ranks together.
            collate: makes a batch of a list of samples of a Dataset.

        Raises:
            UsageError: a batch larger than the set, or too small for the ranks.
        """
        whole = samples_of(samples, collate)
        shares = equal_shares(len(whole), self.world.size)
        epoch = steps_per_epoch(len(whole), batch)
        check_filled(shares, batch, epochs * epoch)
        if min(shares) < epoch:
            raise UsageError(
                f"batch={batch}: some ranks would have no sample in a step; give at least {self.world.size}"
            )
        reader = whole[slices(shares)[self.world.rank]].on(self.world.device)
        sampler = EpochSampler(shares[self.world.rank], epoch, self.options.seed, self.world.rank)
        for number in range(epochs * epoch):
            self._computing(None)
            self.step += 1
            self.world.begin_step(self.step)
            part = reader[next(sampler)]
            self._of_batch = sum(batch_size(share, epoch, number) for share in shares)
            self._samples += self._of_batch
            self.share_of_batch = batch_tools.size(part) / self._of_batch
            for optimizer in self._optimizers:
                optimizer.share = self.share_of_batch
            self._computing("forward and backward")
            yield part
        self._computing(None)

    def log(self, loss: Tensor | float, **also: float) -> None:
        """Add this rank's part of the batch's loss to the record. Collective, in each step or in none.

        Args:
            loss: the mean over this rank's part of the batch.
            also: what else the step's line in metrics.jsonl is to say, the same on all ranks.
        """
        self._computing(None)
        self._losses.add(self.step, float(loss), self.share_of_batch, self._of_batch, **also)
        self._is_logged = True

    def _computing(self, what: str | None) -> None:
        """End the present span of computation, and begin another one."""
        if self._span:
            self._span.__exit__(None, None, None)
        self._span = self.world.compute(what) if what else None
        if self._span:
            self._span.__enter__()

    def _finish(self) -> None:
        self._losses.flush(self.step + 1)
        self._losses.finish()
        self._recorder.stop()
        model = self._model or nn.Module()
        mean_statistics(model, lambda sums: ALL_REDUCES["ring"](self.world.comm, sums), self.world.size)
        self.summary = self._recorder.finish(
            steps=self.step + 1,
            samples=self._samples,
            final_loss=self._losses.last if self._is_logged else None,
            test_metrics=None,
            params_sha256=sha256(model),
        )


class DistributedOptimizer(torch.optim.Optimizer):
    """An optimizer of torch whose `step` follows the mean gradient over all ranks.

    Schedulers, `state_dict` and `load_state_dict` see the optimizer inside. A parameter that no rank has used has no
    gradient, as in one process; one that only some ranks have used moves alike on all.

    Where gradients are to be changed before the step, as by `GradScaler.unscale_`, call `reduce` first.

    Args:
        optimizer: of this rank's parameters, which are equal on all ranks.
        every, max_norm: as of `OwnLoop.optimizer`.
        computing: told what this rank computes from now on, for the trace; None: it communicates.

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
    ) -> None:
        self.__dict__.update(optimizer.__dict__)  # param_groups, state, defaults and hooks: the same objects
        self.world, self.inner, self.every, self.max_norm = world, optimizer, every, max_norm
        self.all_reduce, self.computing, self.share = all_reduce, computing, 1 / world.size
        self.parameters = [each for group in self.param_groups for each in group["params"] if each.requires_grad]
        if not self.parameters:
            raise UsageError("the optimizer has no parameter to train: set requires_grad=True for at least one")
        kind = torch.float64 if any(each.dtype == torch.float64 for each in self.parameters) else torch.float32
        length = sum(each.numel() for each in self.parameters)
        self._sum = torch.zeros(length + len(self.parameters), dtype=kind)
        self._parts = self._sum[:length].split([each.numel() for each in self.parameters])
        self._used = self._sum[length:]
        self._batches, self._is_reduced = 0, False

    def reduce(self) -> bool:
        """Add this batch's gradients to those before; after `every` batches make `grad` the mean of all ranks'.

        Returns:
            Whether it is the mean now, so that a step may follow.
        """
        for number, (parameter, part) in enumerate(zip(self.parameters, self._parts, strict=True)):
            if parameter.grad is not None:
                own = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
                part.add_(own.reshape(-1).to(part), alpha=self.share / self.every)
                self._used[number] = 1
        self._batches += 1
        if self._batches < self.every:
            self.zero_grad()
            return False
        self.computing(None)
        with self.world.communicate("all-reduce"):
            self.all_reduce(self.world.comm, self._sum.numpy())
        self.computing("update")
        for parameter, part, used in zip(self.parameters, self._parts, self._used, strict=True):
            parameter.grad = part.clone().to(parameter).view_as(parameter) if used else None
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
        self.inner.step()
        self._is_reduced = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget this batch's gradients; those that have been added up stay."""
        self.inner.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.inner.load_state_dict(state_dict)
        self.state, self.param_groups = self.inner.state, self.inner.param_groups
