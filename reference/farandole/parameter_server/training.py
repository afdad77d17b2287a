"""Training with a parameter server, for any workload: the run and its record.

A `Workload` is a whole model in `classification`, and rows of a table in `sparse`. Its iteration is document 004's six
steps: the worker has its part of the data (1); it pulls (2), computes the gradient (3) and pushes it (4); the servers
update (5); repeat (6).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server import choices, cluster, early_stopping
from farandole.parameter_server.application import Application
from farandole.parameter_server.core.updates import UPDATES
from farandole.parameter_server.failure_log import FailureLog
from farandole.parameter_server.groups import place, worker_groups
from farandole.parameter_server.kv_worker import KVWorker, Start
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.reports import Reports, report_lines
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


class Workload(Protocol):
    """A model, its data, and a worker's iterations.

    Attributes:
        table: the initial parameters, as the servers receive them.
        plain_bytes: the bytes of all pushes before their encoding; None where nothing is encoded.
    """

    table: NDArray[Any]
    plain_bytes: int | None

    def work(self, kv: KVWorker) -> None:
        """A worker's iterations, until there is no work left."""

    def complete(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return all of the model's final parameters, given the servers'. Collective."""

    def validation_loss(self, table: NDArray[Any]) -> float:
        """Return the loss of the parameters `table` on samples that no worker trains on; on the manager's rank."""

    def judged(self, table: NDArray[Any], trained: bool) -> dict[str, float] | None:
        """Return the metrics of these parameters on the test data; None on a rank without these. Collective.

        Args:
            trained: whether this rank is one of the workers that trained them.
        """


# Given the worker groups, and which of them is this rank's own (0 on a rank that is no worker). Collective.
MakeWorkload = Callable[[World, Recorder, Sequence[tuple[int, ...]], int], Workload]


def train(scenario: str, options: PolicyOptions, make_workload: MakeWorkload) -> Summary | None:
    """Train, evaluate and write the record; return the summary on the rank that writes it, None elsewhere."""
    choices.check(options)
    early_stopping.check(options)
    with World.start(options) as world:
        recorder = Recorder(world, scenario, options)
        placement = place(world, options)
        groups = worker_groups(placement.workers, options.applications)
        own_group = next((number for number, group in enumerate(groups) if world.rank in group), 0)
        workload = make_workload(world, recorder, groups, own_group)
        failure_log = FailureLog.where_possible(world, recorder, options, placement)
        reports = Reports(recorder, report_lines(options, placement.workers), options.steps, failure_log)
        watch: early_stopping.Watch | None = None
        if early_stopping.is_asked_for(options):
            rule = early_stopping.StoppingRule(options.stop_below, options.stop_stalled)
            watch = early_stopping.Watch(
                workload.table, workload.validation_loss, rule, options.check_every, lambda: recorder.elapsed_s
            )
        outcome = cluster.run(
            world,
            recorder,
            options,
            placement,
            [application(options, group, placement.aggregators or group, workload.table) for group in groups],
            work=workload.work,
            reported=reports.add,
            survivor=reports if failure_log else None,
            watch=watch.work if watch else None,
            left=reports.left,
        )
        tables = [workload.complete(table) for table in outcome.tables]
        found = [workload.judged(table, world.rank in group) for table, group in zip(tables, groups, strict=True)]
        judged = [metrics for metrics in found if metrics is not None]
        reports.close()
        return recorder.finish(
            steps=max(outcome.updates, default=0),
            samples=reports.samples,
            final_loss=reports.loss,
            test_metrics={name: min(each[name] for each in judged) for name in judged[0]} if judged else None,
            params_sha256=sha256(tables[own_group].tobytes()).hexdigest(),
            faults=failure_log.faults() if failure_log else (),
            ring_bytes=workload.plain_bytes,
            stopping=watch.figures() if watch else None,
            **outcome.figures(),
        )


def pull(world: World, kv: KVWorker, into: NDArray[Any] | None, rows: NDArray[np.int64] | None = None) -> Start | None:
    """Wait for permission and parameters; in the trace, the time for which the policy held the pull is waiting time."""
    begin = time.perf_counter()
    start: Start | None = kv.wait(kv.pull(into, rows), "pull")
    end = time.perf_counter()
    granted = min(end, begin + start.held_s) if start else end
    world.trace.add("wait for others", "wait", begin, granted)
    world.trace.add("push and pull", "communicate", granted, end)
    return start


def application(
    options: PolicyOptions, workers: tuple[int, ...], clients: tuple[int, ...], table: NDArray[Any]
) -> Application:
    """Return one model on the servers, with the policy and the update rule of the options."""
    in_rounds = choices.make_policy(options, clients).in_rounds
    pulls = UPDATES[options.update].rounds * -(-options.steps // options.period)  # per worker
    return Application(
        table=table,
        workers=workers,
        clients=clients,
        policy=partial(choices.make_policy, options, clients),
        rule=partial(choices.make_rule, options),
        correction=partial(choices.make_correction, options),
        limit=pulls * (1 if in_rounds else len(clients)),
        decoder=partial(choices.make_compressor, options),
    )
