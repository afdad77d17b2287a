"""The scenario downpour: replicas on real data, and servers with Adagrad.

With --label-sets and --no-align each worker interprets the model's outputs in its own numbering (`replica_data`). So
the accuracy is the mean over the workers: how often the name that a worker reads from an output is the right one, on
all classes. A worker that knows the common numbering can read every output.
"""

from __future__ import annotations

from farandole import tasks
from farandole.data.batch import Batch
from farandole.data.datasets import Dataset
from farandole.data_parallel.evaluation import accuracy, judged, mean_of_statistics
from farandole.errors import UsageError
from farandole.parameter_server import cluster
from farandole.parameter_server.application import Application
from farandole.parameter_server.batches import Batches
from farandole.parameter_server.core.policies import Asynchronous
from farandole.parameter_server.core.update_rules import Adagrad
from farandole.parameter_server.downpour import Replica
from farandole.parameter_server.downpour_options import DownpourOptions
from farandole.parameter_server.failure_log import FailureLog
from farandole.parameter_server.groups import place
from farandole.parameter_server.local_labels import numbered
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.replica_data import Material, everything, known_labels, share
from farandole.parameter_server.report_lines import ByCount
from farandole.parameter_server.reports import Reports
from farandole.parameter_server.task_replica import MiniBatches, TaskReplica
from farandole.parameter_server.tasks import TaskQueue
from farandole.runtime.buffers import sha256
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


def train(scenario: str, options: DownpourOptions) -> Summary | None:
    """Train, evaluate and write the record; return the summary on the rank that writes it, None elsewhere."""
    task = tasks.of(options)
    if options.tasks:
        _check_tasks(options)
    with World.start(options) as world:
        placement = _place(world, options)
        known = known_labels(options, len(placement.workers))
        recorder = Recorder(world, scenario, options)
        replica: Replica
        queue: TaskQueue | None = None
        if options.tasks:
            material = everything(world, options, task, placement)
            replica, queue = _task_replica(world, options, material)
        else:
            material = share(world, recorder, options, task, placement, known)
            replica = _replica(world, options, material)
        failure_log = FailureLog.where_possible(world, recorder, options, placement)
        reports = Reports(recorder, ByCount(len(placement.workers)), options.steps, failure_log)
        application = Application(
            table=replica.flat.values_np,
            workers=placement.workers,
            clients=placement.workers,
            policy=lambda: Asynchronous(placement.workers),
            rule=lambda values: Adagrad(values, options.lr),
            correction=lambda: None,
            limit=None if queue else -(-options.steps * len(placement.workers) // options.n_fetch),
        )
        outcome = cluster.run(
            world,
            recorder,
            options,
            placement,
            [application],
            work=replica.work,
            reported=reports.add,
            survivor=reports if failure_log else None,
            tasks=queue,
        )
        replica.flat.values_np[:] = outcome.tables[0]
        replica.flat.values_from_host()
        reports.close()
        return recorder.finish(
            steps=max(outcome.updates, default=0),
            samples=reports.samples,
            final_loss=reports.loss,
            test_metrics=_judged(world, replica, material, options),
            params_sha256=sha256(replica.model),
            faults=failure_log.faults() if failure_log else (),
            tasks=queue.figures() if queue else None,
            **outcome.figures(),
        )


def _place(world: World, options: DownpourOptions) -> Placement:
    placement = place(world, options)
    if placement.aggregators:
        raise UsageError("downpour has no aggregators, since replicas do not go in step: leave them out of --place")
    return placement


def _replica(world: World, options: DownpourOptions, material: Material) -> Replica:
    """Return this rank's copy of the model, which only a worker trains."""
    shard, workers = material.shard, list(material.shares)
    number = workers.index(world.rank) if world.rank in workers else 0
    batches = Batches(list(material.shares.values()), number, options.batch, options.seed)
    reader = batches.read_by(shard, world.device)

    def next_batch() -> tuple[Batch, float]:
        rows, share = next(batches)
        return reader[rows], share

    return Replica(
        world,
        material.task.model().to(world.device),
        material.task.loss,
        next_batch,
        n_fetch=options.n_fetch,
        n_push=options.n_push,
        local_lr=options.local_lr,
        overlap=options.overlap,
    )


def _check_tasks(options: DownpourOptions) -> None:
    """Refuse options that do not go with --tasks.

    Raises:
        UsageError: it names the option and the reason.
    """
    for given, what in (
        (
            options.n_fetch != options.n_push,
            f"--n-fetch {options.n_fetch}: a worker fetches and pushes once per task",
        ),
        (options.label_sets, "--label-sets: any worker may receive any sample"),
        (options.capabilities, "--capabilities: a fast worker receives more tasks anyway"),
        (options.loading == "files", "--loading files: every worker has all the data"),
        (options.replicas > 1, "--replicas: a successor of the manager would not know which tasks are done"),
    ):
        if given:
            remedy = f"give --n-fetch {options.n_push} too" if options.n_fetch != options.n_push else "leave it out"
            raise UsageError(f"--tasks does not go with {what}; {remedy}")


def _task_replica(world: World, options: DownpourOptions, material: Material) -> tuple[TaskReplica, TaskQueue]:
    """Return this rank's copy of the model, and the queue of tasks: steps times workers mini-batches in all."""
    workers = len(material.shares)
    total = options.steps * workers
    batches = MiniBatches(len(material.shard), options.batch, workers, options.seed)
    model, loss = material.task.model().to(world.device), material.task.loss
    replica = TaskReplica(world, model, loss, material.shard, batches, total, options.n_push, options.local_lr)
    return replica, TaskQueue(-(-total // options.n_push))


def _judged(world: World, replica: Replica, material: Material, options: DownpourOptions) -> dict[str, float] | None:
    """Return the task's metrics; if workers interpret outputs differently, their mean accuracy. Collective."""
    mean_of_statistics(replica.model, world, trains=world.rank in material.shares)
    if world.control.rank:
        return None
    task = material.task
    test = material.test or task.data(options.seed).test  # the rank that had it may have died
    if not material.meanings:
        return judged(replica.model, test, world.device, task.metrics)
    assert isinstance(test, Dataset)
    inputs, digits = test.inputs, test.targets
    named = [Dataset(inputs, numbered(digits, names)) for names in material.meanings]
    return {"accuracy": sum(accuracy(replica.model, test, world.device) for test in named) / len(named)}
