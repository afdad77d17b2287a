"""Your own loop, made distributed: five lines of a training in one process change.

    with OwnLoop("sync_sgd", out="runs/mine") as loop:                         # 1 join the launch, name the method
        model = loop.share(Model())                                            # 2 the same parameters on all ranks
        optimizer = loop.optimizer(torch.optim.AdamW(model.parameters()))      # 3 steps by that method
        for inputs, targets in loop.batches(dataset, 64, epochs=3):            # 4 this rank's part of each batch
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            loop.log(loss)                                                     # 5 the record

    mpirun -n 4 python my_program.py

Another method is another name in the first line:

    sync_sgd           each step follows the mean gradient of all ranks; Horovod has the same five lines
    local_sgd          each rank takes its own steps, and every `period` of them all average their parameters
    diloco             each rank takes its own steps, and every `period` of them an outer step follows the mean of all
    dpsgd              each rank takes its own steps, and averages with its neighbours in a graph
    parameter_server   workers pull parameters and push gradients; the servers step; "ssp" names its policy at once
    backup             as sync_sgd; the loop continues when a rank has died

Cost: that of the method (`own_loop.synchronous` and its neighbours).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from farandole.collectives.executor import run
from farandole.collectives.tree import BROADCAST
from farandole.data.batch import Batch
from farandole.data.samples import Samples, samples_of
from farandole.data.shares import equal_shares, slices
from farandole.data_parallel.evaluation import judged_in_shares, mean_of_statistics
from farandole.errors import UsageError
from farandole.methods import named, with_policy
from farandole.own_loop.backup import Protected, Stateful
from farandole.own_loop.diloco import DiLoCo
from farandole.own_loop.gossip import Gossip
from farandole.own_loop.local_sgd import LocalSGD
from farandole.own_loop.loop_method import LoopMethod
from farandole.own_loop.parts import Parts
from farandole.own_loop.server import Served
from farandole.own_loop.synchronous import Synchronous
from farandole.runtime import devices
from farandole.runtime.buffers import sha256
from farandole.runtime.command_line import parse, to_arguments
from farandole.runtime.record import Summary
from farandole.runtime.world import World
from farandole.tasks import Metric, check_layers

METHODS: dict[str, type[LoopMethod]] = {
    kind.name: kind for kind in (Synchronous, LocalSGD, DiLoCo, Gossip, Served, Protected)
}


class OwnLoop:
    """A training whose loop is yours, on all ranks of this launch.

    Args:
        method: one of `METHODS`; or a policy of parameter_server, as "ssp".
        options: the method's, and those of every run, as of `launch`: out, seed, device, slow, fail, link_mbps,
            wait_timeout.

    Attributes:
        world: this rank's place in the launch; `world.rank`, `world.size`, `world.device`.
        step: the number of the present batch, from 0.
        summary: of the run, on rank 0 after the end.

    Raises:
        UsageError: a method or an option that does not exist, or a value that does not fit.
    """

    def __init__(self, method: str = "sync_sgd", **options: Any) -> None:
        name, options = with_policy(named(method), options)
        if name not in METHODS:
            raise UsageError(f"a loop of your own has no method {method!r}: choose from {', '.join(METHODS)}")
        kind = METHODS[name]
        self.options = parse(kind.Options, to_arguments(options))
        self.world = World.start(self.options)
        self.method = kind(self.world, self.options)
        self.step = -1
        self.summary: Summary | None = None
        self._tests: tuple[Samples, dict[str, Metric]] | None = None
        self._parts: Parts | None = None
        self._samples = 0  # of all ranks, so far

    def __enter__(self) -> Self:
        self.world.__enter__()
        try:
            devices.seed_everything(self.options.seed)
            self.method.begin()
        except BaseException as error:  # as a folder that holds a run: the other ranks have to know
            self.world.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                self._finish()
            except BaseException as failure:
                self.world.__exit__(type(failure), failure, failure.__traceback__)
                raise
        self.world.__exit__(kind, error, trace)

    def share(self, model: nn.Module) -> nn.Module:
        """Bring the model to this rank's device, with rank 0's parameters and buffers. Collective.

        From then on each rank draws its own random numbers, for instance for dropout.

        Returns:
            The same model.

        Raises:
            UsageError: it has a SyncBatchNorm.
        """
        check_layers(model)
        self.method.model = model.to(self.world.device)
        state = [*model.parameters(), *model.buffers()]
        if state:
            as_bytes = torch.cat([each.detach().cpu().reshape(-1).contiguous().view(torch.uint8) for each in state])
            with self.world.communicate("broadcast"):
                run(BROADCAST, self.world.comm, as_bytes.numpy())
            for each, part in zip(state, as_bytes.split([each.nbytes for each in state]), strict=True):
                each.data.copy_(part.clone().view(each.dtype).reshape(each.shape))
        devices.seed_rank(self.options.seed, self.world.rank, 0)
        return model

    def keep(self, *objects: Stateful) -> None:
        """Have backup keep what these remember, as a schedule does: anything with state_dict and load_state_dict."""
        self.method.keep(objects)

    def optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        every: int | None = None,
        max_norm: float | None = None,
        collective: str | None = None,
    ) -> torch.optim.Optimizer:
        """Return what to call in place of `optimizer`, so that its steps are those of the method.

        The three settings are for the methods whose steps follow the mean gradient, sync_sgd and backup.

        Args:
            every: batches whose gradients are added up before a step is taken; nothing is sent in between.
            max_norm: bound of the norm of the mean gradient, which all ranks compute alike.
            collective: the all-reduce, one of `ALL_REDUCES`; by default the ring.

        Raises:
            UsageError: a setting that does not fit the method, an optimizer without parameters to train.
        """
        return self.method.optimizer(optimizer, every=every, max_norm=max_norm, collective=collective)

    def batches(
        self,
        samples: Any,
        batch: int,
        *,
        epochs: int = 1,
        steps: int | None = None,
        collate: Callable[[Any], Batch] | None = None,
        loader: Mapping[str, Any] | None = None,
    ) -> Iterator[Batch]:
        """Yield this rank's part of each batch, on its device.

        Every sample is used once an epoch, by one rank. The parts of a batch differ by one sample at most, and the
        methods weight them. A rank that is no worker (a server) gets none.

        Args:
            samples: arrays, a tuple or dict of them, or a Dataset, the same on all ranks.
            batch: samples of a step, of all ranks together.
            epochs: passes over the samples.
            steps: the number of batches, in place of epochs; an IterableDataset needs it.
            collate: makes a batch of a list of samples of a Dataset.
            loader: arguments of torch's DataLoader, for worker processes that read a Dataset ahead, as of `Task`.

        Raises:
            UsageError: a batch larger than the set, or too small for the ranks.
        """
        first, before = self.step + 1, self._samples
        given = samples_of(samples, collate, loader)
        self._parts = parts = Parts(given, batch, self.method, self.options.seed, first, epochs, steps)
        for step in self.method.steps(first, parts.count):
            self.step = step
            self.world.begin_step(step)
            part = parts.take(step)
            self._samples = before + parts.used(step + 1)
            self.method.weigh(parts.own / parts.whole)
            self.method.computing("forward and backward")
            yield part

    def test(self, samples: Any, *, collate: Callable[[Any], Batch] | None = None, **metrics: Metric) -> None:
        """Judge the trained model by these samples when the loop has ended, each rank by its share of them.

        Args:
            samples, collate: as of `batches`, the same on all ranks.
            metrics: name → function of model and batch: a value for each answer, or the mean over the batch. The
                record's test_accuracy is the one called accuracy.
        """
        self._tests = samples_of(samples, collate), metrics

    def log(self, loss: Tensor | float, **also: float) -> None:
        """Add this rank's part of the batch's loss to the record. Collective, in each step or in none.

        Args:
            loss: the mean over this rank's part of the batch.
            also: what else the step's line in metrics.jsonl is to say, the same on all ranks.

        Raises:
            UsageError: no batch has begun.
        """
        if self._parts is None or self.step < 0:
            raise UsageError("log belongs to a batch: call it within the loop over loop.batches(…)")
        self.method.computing(None)
        value = loss.item() if isinstance(loss, Tensor) else float(loss)
        share = self._parts.own / self._parts.whole
        self.method.log(self.step, value, share, self._parts.whole, also)

    def _finish(self) -> None:
        self.method.computing(None)
        model = self.method.model or nn.Module()
        found = self.method.finish(self.step + 1)
        if found is None:
            return
        mean_of_statistics(model, self.world, self.method.trains)
        figures = {"steps": self.step + 1, "samples": self._samples, "test_metrics": self._judged(model)} | found
        self.summary = self.method.recorder.finish(params_sha256=sha256(model), **figures)

    def _judged(self, model: nn.Module) -> dict[str, float] | None:
        """Return the metrics of the trained model, if it is to be tested. Collective."""
        if not self._tests:
            return None
        samples, metrics = self._tests
        control = self.world.control
        own = slices(equal_shares(len(samples), control.size))[control.rank]
        return judged_in_shares(model, samples[own], self.world, metrics)
