"""All roles of a rank, from the division of the keys to the final parameters.

    1  the manager divides the keys among the servers        (broadcast)
    2  the first worker of each application sends the initial parameters to the servers
    3  workers pull, compute and push; servers update; the manager receives reports; the cleaning node cleans
    4  every client has reported to the manager that it has finished, and the manager sends STOP
    5  every rank receives the final parameters

Steps 1, 2 (`deployment`) and 5 (`outcome`) are not part of the run's time and bytes. Document 000's set-up, training
and end.

During step 3 ranks may die, if MPI lets the other ranks live (ULFM) and a `Survivor` is given: a worker at any time, a
server or the manager where another rank can take its place (`chain_replication`). A hung rank is killed
(`recovery.heartbeat`). The live ranks agree on who they are before step 5 (`survivors`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from farandole.parameter_server.application import Application
from farandole.parameter_server.deployment import Deployment
from farandole.parameter_server.header import Header
from farandole.parameter_server.kv_worker import KVWorker
from farandole.parameter_server.options import RoleOptions
from farandole.parameter_server.outcome import Outcome, collect
from farandole.parameter_server.placement import MANAGER, Placement
from farandole.parameter_server.server_manager import ServerManager
from farandole.parameter_server.service import Role, beside, serve
from farandole.parameter_server.survivors import Survivor, note_excluded, regroup
from farandole.parameter_server.tasks import Coordinator, TaskQueue
from farandole.parameter_server.tree import Aggregator
from farandole.recovery.heartbeat import Heart
from farandole.runtime.world import World

Work = Callable[[KVWorker], None]


class Clock(Protocol):
    """Is notified when the run begins and ends on this rank; a `Recorder` is one."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Cluster:
    """All roles of this rank, from the division of the keys on. Collective.

    Args:
        clock: None: nothing is recorded.
        reported: is called on the manager with each report.
        survivor: None: the first failure ends the job.
        tasks: the tasks that the manager assigns; None: each worker has batches of its own share.
        watch: what a second thread of the manager does, until no worker is left.
        left: is called on the manager when a worker will send no more reports.

    Attributes:
        kv: this rank's connection to the servers; None: it is no client, and has to `serve`.
    """

    def __init__(
        self,
        world: World,
        clock: Clock | None,
        options: RoleOptions,
        placement: Placement,
        applications: Sequence[Application],
        reported: Callable[[Header], None],
        survivor: Survivor | None = None,
        tasks: TaskQueue | None = None,
        watch: Work | None = None,
        left: Callable[[int], None] = lambda worker: None,
    ) -> None:
        self.world, self.clock, self.options, self.placement = world, clock, options, placement
        self.survivor, self.tasks, self.watch = survivor, tasks, watch
        self.deployment = deployment = Deployment(world, options, placement, applications, survivor)
        self.server = deployment.server()
        deployment.upload(self.server)
        self.cleaner, self.kv = deployment.cleaner(), deployment.worker()
        world.outlived = survivor is not None
        gone = deployment.replication.lost
        limits = options.hang_after, options.wait_timeout
        self.heart = Heart(world, *limits, survivor.on_hang, gone=gone) if survivor else None
        if clock:
            clock.start()
        if self.heart:
            self.heart.start()
        readers = (*placement.readers, MANAGER) if watch else placement.readers
        self.manager = deployment.manager(readers, reported, left)
        self.server_manager: ServerManager | None = None
        if self.manager and options.server_change:
            self.server_manager = ServerManager(
                deployment.messages, placement.servers, deployment.ring, options.server_change
            )

    def serve(self) -> None:
        """Be server, manager or cleaning node, until every client has finished."""
        deployment = self.deployment
        roles: list[Role | None] = [self.server, self.cleaner, self.manager, self.server_manager]
        if self.manager and self.tasks:
            roles.append(Coordinator(deployment.messages, deployment.replication, self.tasks))
        if self.server and self.options.server_change:
            roles.append(deployment.resharder(self.server))
        watcher = deployment.watcher() if self.watch and self.world.rank == MANAGER else None
        with beside(watcher, self.watch):
            serve(deployment.messages, [role for role in roles if role])

    def finish(self) -> Outcome:
        """Return the final parameters and the statistics, once every client has finished. Collective.

        Raises:
            NoSuccessor: all ranks that had a partition, or a role, are dead.
        """
        if self.clock:
            self.clock.stop()
        if self.survivor and self.heart:
            regroup(self.world, self.deployment.replication, self.survivor, self.heart)
        outcome = collect(self.deployment, self.server, self.cleaner, self.manager, self.server_manager, self.kv)
        for window in self.deployment.windows:
            window.free()
        if not self.survivor:  # else its log of failures has the dead
            training = (*self.placement.workers, *self.placement.aggregators)
            note_excluded([rank for rank in outcome.dead if rank in training], self.options.hang_after)
        return outcome


def run(
    world: World,
    clock: Clock | None,
    options: RoleOptions,
    placement: Placement,
    applications: Sequence[Application],
    work: Work,
    reported: Callable[[Header], None],
    read: Work | None = None,
    survivor: Survivor | None = None,
    tasks: TaskQueue | None = None,
    watch: Work | None = None,
    left: Callable[[int], None] = lambda worker: None,
) -> Outcome:
    """Run this rank's roles to the end. Collective.

    Args:
        work: what a worker does with its connection to the servers, until there is no work left.
        read: what a reader does, until no worker is left; it reads the first application.
        others: those of `Cluster`.

    Raises:
        NoSuccessor: all ranks that had a partition, or a role, are dead.
    """
    cluster = Cluster(world, clock, options, placement, applications, reported, survivor, tasks, watch, left)
    if cluster.kv:
        _run_client(cluster.deployment, cluster.kv, work, read)
    else:
        cluster.serve()
    return cluster.finish()


def _run_client(deployment: Deployment, kv: KVWorker, work: Work, read: Work | None) -> None:
    """Run a worker, an aggregator or a reader, until every client may exit."""
    world, placement = deployment.world, deployment.placement
    with kv:
        if world.rank in placement.aggregators:
            table = np.empty_like(deployment.applications[kv.group].table)
            Aggregator(world, deployment.messages, kv, placement.members(world.rank), table).run()
        elif world.rank in placement.readers:
            assert read is not None
            read(kv)
        else:
            work(kv)
        kv.leave_with_the_others()
