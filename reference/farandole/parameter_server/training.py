"""Training with a parameter server, whatever is trained: the run, its reports, and its record.

What is trained is a `Workload`: whole models in `classification`, rows of a table in `sparse`. A
worker's iteration there is document 004's six steps: its part of the data (1) is there; pull (2),
gradient (3), push (4); the servers update (5); again (6).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farandole.data.sampler import EpochSampler, batch_size, steps_per_epoch
from farandole.data.shares import equal_shares, slices
from farandole.errors import UsageError
from farandole.parameter_server import choices, cluster, early_stopping
from farandole.parameter_server.client import Client, Start
from farandole.parameter_server.departures import Departures
from farandole.parameter_server.header import Header
from farandole.parameter_server.options import PolicyOptions, ServerOptions
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.report_lines import ByCount, ByStep, ReportLines
from farandole.parameter_server.server_change import most_servers
from farandole.parameter_server.succession import Succession
from farandole.runtime.progress import bar
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


class Workload(Protocol):
    """What is trained: a model, data, and a worker's way with them.

    Attributes:
        table: the initial parameters, as they come to the servers.
        plain_bytes: what would have been pushed as it is; None where nothing is encoded.
    """

    table: NDArray[Any]
    plain_bytes: int | None

    def work(self, client: Client) -> None:
        """A worker's iterations, until there is no work left."""

    def complete(self, table: NDArray[Any]) -> NDArray[Any]:
        """All of the model's final parameters, given the servers'. Collective."""

    def validation_loss(self, table: NDArray[Any]) -> float:
        """Return the loss of the parameters `table` on samples that no worker trains on; on the manager's rank."""

    def accuracy(self, table: NDArray[Any]) -> float | None:
        """The test accuracy with all these parameters; None on a rank without test data."""


# Given the worker groups, and which of them is this rank's own (0 on a rank that is no worker). Collective.
MakeWorkload = Callable[[World, Recorder, Sequence[tuple[int, ...]], int], Workload]


def train(scenario: str, options: PolicyOptions, make_workload: MakeWorkload) -> Summary | None:
    """Train, evaluate and write the record; the summary on the rank that writes it, None elsewhere."""
    choices.check(options)
    early_stopping.check(options)
    with World.start(options) as world:
        recorder = Recorder(world, scenario, options)
        placement = place(world, options, options.tree)
        groups = worker_groups(placement.workers, options.applications)
        own_group = next((number for number, group in enumerate(groups) if world.rank in group), 0)
        workload = make_workload(world, recorder, groups, own_group)
        departures = Departures.where_possible(world, recorder, options, placement)
        reports = Reports(recorder, report_lines(options, placement.workers), options.steps, departures)
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
            survivor=reports if departures else None,
            watch=watch.work if watch else None,
            left=reports.left,
        )
        tables = [workload.complete(table) for table in outcome.tables]
        accuracies = [accuracy for table in tables if (accuracy := workload.accuracy(table)) is not None]
        reports.close()
        return recorder.finish(
            steps=max(outcome.updates, default=0),
            samples=reports.samples,
            final_loss=reports.loss,
            test_accuracy=min(accuracies, default=None),
            params_sha256=sha256(tables[own_group].tobytes()).hexdigest(),
            faults=departures.faults() if departures else (),
            ring_bytes=workload.plain_bytes,
            stopping=watch.figures() if watch else None,
            **outcome.figures(),
        )


def pull(world: World, client: Client, into: NDArray[Any], rows: NDArray[np.int64] | None = None) -> Start | None:
    """Wait for permission and parameters; in the trace, what the policy held back counts as waiting."""
    begin = time.perf_counter()
    start: Start | None = client.wait(client.start(into, rows), "pull")
    end = time.perf_counter()
    granted = min(end, begin + start.held_s) if start else end
    world.trace.add("wait for others", "wait", begin, granted)
    world.trace.add("push and pull", "communicate", granted, end)
    return start


class Batches:
    """One worker's batches, and each one's share of the whole batch.

    Args:
        shares: samples of each worker.
        own: which of them is this one.
        batch: samples of a whole batch.
    """

    def __init__(self, shares: Sequence[int], own: int, batch: int, seed: int) -> None:
        self.shares = shares
        self.epoch = steps_per_epoch(sum(shares), batch)
        self.sampler = EpochSampler(shares[own], self.epoch, seed, own)
        self.taken = 0

    def __next__(self) -> tuple[Tensor, float]:
        """Rows of the shard, and n_r / N."""
        rows = next(self.sampler)
        whole = sum(batch_size(share, self.epoch, self.taken) for share in self.shares)
        self.taken += 1
        return torch.from_numpy(rows), len(rows) / whole


class Reports:
    """Turns the workers' reports into metrics.jsonl; `report_lines` says which of them make a line.

    Who may have to take the manager's place collects the lines, too, and writes those that the manager has not: it may
    have heard of more iterations, or of fewer.
    """

    def __init__(
        self, recorder: Recorder, grouped: ReportLines, steps: int, departures: Departures | None = None
    ) -> None:
        self.recorder, self.departures = recorder, departures
        self._grouped = grouped
        self.samples = 0
        self.loss: float | None = None
        self._lines: list[dict[str, float]] = []
        self._written = 0  # lines that another manager has written before this one
        self._bar = bar(steps, recorder.world.rank)

    def add(self, report: Header) -> None:
        if self.departures:
            self.departures.reported(report)
        self.recorder.watch(report.clock, report.loss, report.worker)
        self._write(self._grouped.add(report))

    def left(self, worker: int) -> None:
        """A worker reports no more."""
        self._write(self._grouped.leave(worker))

    def missed(self, succession: Succession) -> None:
        """Ranks have died; perhaps the manager, so that this one writes from now on."""
        assert self.departures is not None
        if not self.recorder.writes:
            self._written = self.recorder.take_over(self.departures.folder)
            self.recorder.go_on_from(self._written)
            for line in self._lines[self._written :]:
                self.recorder.log(**line)
        self.departures.missed(succession)

    def silent(self, rank: int, step: int) -> None:
        """A rank hangs, and is about to be ended."""
        assert self.departures is not None
        self.departures.silent(rank, step)

    def close(self) -> None:
        """Write what is left, and end the progress bar."""
        self._write(self._grouped.end())
        self._bar.close()
        if self.departures and self.recorder.writes:
            self.departures.close()

    def _write(self, lines: Sequence[Sequence[Header]]) -> None:
        for reports in lines:
            samples = sum(report.samples for report in reports)
            self.loss = sum(report.loss * report.samples for report in reports) / samples if samples else 0.0
            step, more = len(self._lines), self._more(reports)
            line = {"step": step, "wall_s": self.recorder.elapsed_s, "loss": self.loss, "samples": samples, **more}
            self._lines.append(line)
            if step >= self._written:
                self.recorder.log(**line)
            self.samples += samples
            self._bar.update()
            if self.recorder.writes:
                self.recorder.world.begin_step(step + 1)

    def _more(self, reports: Sequence[Header]) -> dict[str, float]:
        """What else a line says of these reports."""
        return {}


def application(
    options: PolicyOptions, workers: tuple[int, ...], clients: tuple[int, ...], table: NDArray[Any]
) -> cluster.Application:
    """One model on the servers, kept and moved as the options say."""
    in_rounds = choices.make_policy(options, clients).in_rounds
    pulls = 2 * options.steps if options.update == "twice" else -(-options.steps // options.period)  # per worker
    return cluster.Application(
        table=table,
        workers=workers,
        clients=clients,
        policy=partial(choices.make_policy, options, clients),
        rule=partial(choices.make_rule, options),
        correction=partial(choices.make_correction, options),
        limit=pulls * (1 if in_rounds else len(clients)),
        decoder=partial(choices.make_compressor, options),
    )


def report_lines(options: PolicyOptions, workers: Sequence[int]) -> ReportLines:
    """How the workers' reports make the lines of metrics.jsonl, under the policy asked for."""
    if not choices.make_policy(options, workers).in_rounds:
        return ByCount(len(workers))
    return ByStep(workers, waits=options.sync == "bsp" or options.applications > 1)


def place(world: World, options: ServerOptions, fan_in: int | None = None, readers: int | None = None) -> Placement:
    """The placement asked for, or the usual one.

    Args:
        readers: how many there usually are; None: nobody may be one.

    Raises:
        UsageError: no such placement, readers where nobody may be one, or aggregators beside replicas.
    """
    if options.place and fan_in:
        raise UsageError("--tree decides itself who is an aggregator: with --place, name them there (aggregators=…)")
    if options.place is None:
        placement = Placement.usual(
            world.size, most_servers(options.servers, options.server_change), fan_in, readers or 0
        )
    else:
        placement = Placement.parse(options.place, world.size)
    if readers is None and placement.readers:
        raise UsageError(f"--place {options.place}: nothing is served here; readers are for the scenario online")
    if options.replicas > 1 and placement.aggregators:
        where = "--tree" if fan_in else "aggregators=… in --place"
        raise UsageError(f"--replicas keeps no copy of what aggregators know: leave out {where}")
    return placement


def worker_groups(workers: Sequence[int], applications: int) -> list[tuple[int, ...]]:
    """The workers of each application.

    Raises:
        UsageError: more applications than workers.
    """
    if applications > len(workers):
        raise UsageError(f"--applications {applications}: there are only {len(workers)} workers, each needs at least 1")
    return [tuple(workers[part]) for part in slices(equal_shares(len(workers), applications))]
