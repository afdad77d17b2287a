"""A parameter server around a loop of the user's own: workers pull parameters and push gradients.

    before each batch      the worker pulls; the policy decides when it may go on (`parameter_server.core.policies`)
    at the optimizer's step    it pushes its gradient, and goes on
    on the servers         the user's optimizer moves the parameters, each gradient weighted by its share of the batch

A rank that is manager or server sees no batch: it serves inside `OwnLoop.batches`, until the workers have finished. At
the end all ranks have the servers' parameters. A fast worker takes more steps than a slow one, if the policy permits.

Cost: two messages of the parameters' size per worker and step, and two passes over them.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from cyclopts import Parameter
from torch import nn

from farandole.errors import UsageError
from farandole.own_loop.apart import Apart
from farandole.parameter_server import choices
from farandole.parameter_server.application import Application
from farandole.parameter_server.cluster import Cluster
from farandole.parameter_server.core.torch_rule import TorchRule
from farandole.parameter_server.groups import place
from farandole.parameter_server.kv_worker import KVWorker, Start
from farandole.parameter_server.options import RoleOptions, SyncOptions
from farandole.parameter_server.outcome import Outcome
from farandole.parameter_server.report_lines import ByCount, ByStep
from farandole.parameter_server.reports import Reports
from farandole.parameter_server.training import pull
from farandole.runtime.world import World


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServedOptions(SyncOptions, RoleOptions):
    """When gradients count, and which rank is what."""


class Served(Apart):
    """Workers and servers; this rank is one of them."""

    name = "parameter_server"
    Options = ServedOptions

    def __init__(self, world: World, options: ServedOptions) -> None:
        super().__init__(world, options)
        if options.replicas > 1 or options.server_change:
            given = "replicas" if options.replicas > 1 else "server_change"
            raise UsageError(f"{given}= is for the scenario parameter_server: leave it out")
        self.placement = place(world, options)
        if self.placement.aggregators:
            raise UsageError(f"--place {options.place}: a loop of your own has no aggregators; leave them out")
        self._inner: torch.optim.Optimizer | None = None
        self._start: Start | None = None
        self._kv: KVWorker | None = None  # until it has left
        self._cluster: Cluster | None = None
        self._reports: Reports | None = None

    @property
    def slot(self) -> tuple[int, int]:
        workers = self.placement.workers
        return (workers.index(self.world.rank) if self.trains else 0), len(workers)

    @property
    def trains(self) -> bool:
        return self.world.rank in self.placement.workers

    def optimizer(self, inner: torch.optim.Optimizer, **settings: Any) -> torch.optim.Optimizer:
        """Return an optimizer that pushes gradients; the servers step as `inner` would.

        Raises:
            UsageError: there is one already, or it has several groups of parameters.
        """
        super().optimizer(inner, **settings)
        if self._inner is not None or len(inner.param_groups) > 1:
            raise UsageError(
                "servers move all parameters by one rule: give one optimizer, with one group of parameters"
            )
        self._inner, self._make = inner, maker_like(inner)
        return PushingOptimizer(self, inner)

    def steps(self, first: int, count: int) -> Iterator[int]:
        """Yield this worker's iterations, as the policy permits them; on another rank serve."""
        if first:
            raise UsageError("one call of batches with a parameter server: give it epochs=")
        if self._inner is None:
            raise UsageError("a parameter server needs loop.optimizer(…) before the first batch")
        cluster = self._deploy(count)
        if not cluster.kv:
            cluster.serve()
            return
        self._kv = cluster.kv.__enter__()
        while start := pull(self.world, self._kv, self._table):
            self._start = start
            self.hand_out(torch.from_numpy(self._table))
            yield start.clock
            self.computing(None)
            if self._start:
                raise UsageError("no step was taken after this batch: call the optimizer's step in each turn")
        self._leave()

    def push(self) -> None:
        """Push this worker's gradient; the next batch begins when the policy permits it."""
        if self._start is None or self._kv is None:
            raise UsageError("one step for each batch: a worker pushes one gradient for each pull")
        self.computing(None)
        gradient = np.zeros_like(self._table)
        parts = torch.from_numpy(gradient).split([each.numel() for each in self.parameters])
        for parameter, part in zip(self.parameters, parts, strict=True):
            if parameter.grad is not None:
                part.copy_((parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad).reshape(-1))
        time.sleep(self._policy.pause(self.world.rank, self._start.clock))
        self._kv.push(gradient, self._start.clock, self.share)
        self._start = None

    def log(self, step: int, loss: float, share: float, samples: int, also: dict[str, float]) -> None:
        """Report this worker's loss to the manager."""
        if also:
            raise UsageError(f"log({next(iter(also))}=…): a worker reports its loss alone; leave it out")
        if self._kv:
            self._kv.report(step, loss, round(share * samples))

    def finish(self, following: int) -> dict[str, Any]:
        """Make the model that of the servers."""
        if self._cluster is None or self._reports is None:
            return self.written(following)
        self._leave()
        outcome: Outcome = self._cluster.finish()
        self.hand_out(torch.from_numpy(outcome.tables[0]))
        self._reports.close()
        figures = {"steps": max(outcome.updates, default=0), "samples": self._reports.samples}
        return {"final_loss": self._reports.loss, **figures, **outcome.figures()}

    def _deploy(self, count: int) -> Cluster:
        """Start the roles, with this rank's parameters as the first ones. Collective."""
        workers = self.placement.workers
        self._table = self.collected().numpy()
        self._policy = choices.make_policy(self.options, workers)
        in_rounds = self._policy.in_rounds
        lines = ByStep(workers, waits=self.options.sync == "bsp") if in_rounds else ByCount(len(workers))
        self._reports = Reports(self.recorder, lines, count)
        model = Application(
            table=self._table,
            workers=workers,
            clients=workers,
            policy=lambda: choices.make_policy(self.options, workers),
            rule=lambda values: TorchRule(self._make),
            correction=lambda: None,
            limit=count * (1 if in_rounds else len(workers)),
        )
        reports = self._reports
        self._cluster = Cluster(
            self.world, self.recorder, self.options, self.placement, [model], reports.add, left=reports.left
        )
        return self._cluster

    def _leave(self) -> None:
        """Report that this worker has finished, and wait for the others."""
        if self._kv:
            self._kv.leave_with_the_others()
            self._kv.__exit__(None, None, None)
            self._kv = None


class PushingOptimizer(torch.optim.Optimizer):
    """An optimizer whose step is taken by the servers."""

    def __init__(self, served: Served, inner: torch.optim.Optimizer) -> None:
        self.__dict__.update(inner.__dict__)
        self.__dict__.pop("step", None)  # of a schedule that was made before: it would step without the servers
        self.served, self.inner = served, inner
        self._rates = [group["lr"] for group in inner.param_groups]

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Push the gradient.

        Raises:
            UsageError: a closure; a learning rate that has changed, of which the servers know nothing.
        """
        if closure is not None:
            raise UsageError("a pushed gradient takes no closure: compute the loss and its gradient before")
        if [group["lr"] for group in self.inner.param_groups] != self._rates:
            raise UsageError("the servers step with the first learning rate: leave out the schedule")
        self.served.push()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradient."""
        self.inner.zero_grad(set_to_none)


def maker_like(optimizer: torch.optim.Optimizer) -> Any:
    """Return a function that makes optimizers of this kind, with its settings, of other parameters."""
    kind = type(optimizer)
    accepted = inspect.signature(kind).parameters
    settings = {
        name: value for name, value in optimizer.param_groups[0].items() if name in accepted and name != "params"
    }

    def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return kind(parameters, **settings)

    return make
