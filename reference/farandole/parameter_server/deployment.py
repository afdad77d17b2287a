"""The roles of one rank, made from the placement and the options, and the set-up before the training.

The manager divides the keys among the servers (broadcast). The first worker of each application sends the initial
parameters to the servers. Document 000's set-up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from farandole.parameter_server.application import Application
from farandole.parameter_server.chain_replication import ChainReplication
from farandole.parameter_server.cleaning import CleaningNode
from farandole.parameter_server.header import Header
from farandole.parameter_server.keys import ASSIGNMENTS, Assignment, KeyRange, cut
from farandole.parameter_server.kv_server import KVServer, MakeShard
from farandole.parameter_server.kv_worker import KVWorker
from farandole.parameter_server.layout import Layout
from farandole.parameter_server.manager import Manager
from farandole.parameter_server.message_queue import PAYLOAD, REQUEST, MessageQueue
from farandole.parameter_server.options import RoleOptions
from farandole.parameter_server.placement import MANAGER, Placement
from farandole.parameter_server.replicated_server import ReplicatedKVServer
from farandole.parameter_server.resharding import Resharder
from farandole.parameter_server.shard import Shard
from farandole.parameter_server.survivors import Survivor
from farandole.parameter_server.window import Window
from farandole.runtime.communicator import broadcast_text
from farandole.runtime.world import World

AnyServer = KVServer | ReplicatedKVServer


class Deployment:
    """The assignment of the keys, and this rank's roles. Collective.

    Args:
        survivor: None: the first failure ends the job.

    Attributes:
        ring: the servers that have keys at the start.
        assignments: for each application, server → key ranges.
        messages: the requests to this rank's services.
        assign: returns which of the given servers has which ranges of the first application.
    """

    def __init__(
        self,
        world: World,
        options: RoleOptions,
        placement: Placement,
        applications: Sequence[Application],
        survivor: Survivor | None,
    ) -> None:
        self.world, self.options, self.placement, self.applications = world, options, placement, applications
        self.survivor = survivor
        self.replication = ChainReplication(placement, options.replicas)
        self.lost = self.replication.lost if survivor else None
        self.ring = sorted(placement.servers)
        if options.server_change:  # the other servers stand by
            self.ring = self.ring[: options.servers]
        self.assignments = [self._divide_keys(len(application.table)) for application in applications]
        self.messages = MessageQueue(world.comm, REQUEST, self.lost)
        self.windows: list[Window] = []
        if options.transport == "window":
            pairs = zip(applications, self.assignments, strict=True)
            self.windows = [
                Window(world, assigned, app.clients, app.table, in_turns=app.policy().waits_for_all)
                for app, assigned in pairs
            ]
        ranges = sorted(part for parts in self.assignments[0].values() for part in parts)
        self.assign: Callable[[Sequence[int]], Assignment] = partial(ASSIGNMENTS[options.assignment], ranges)

    def server(self) -> AnyServer | None:
        """Return this rank's server, if it is one; its parameters are still to be uploaded."""
        rank, replication = self.world.rank, self.replication
        if rank not in replication.partitions:
            return None
        names = [(part, group) for part in replication.stored_at(rank) for group in range(len(self.applications))]
        make = {name: self._make_shard(*name) for name in names}
        decoder = self.applications[0].decoder()
        if replication.replicated:
            return ReplicatedKVServer(self.world, self.messages, replication, make, decoder)
        return KVServer(self.world, self.messages, replication, make, self.windows, decoder)

    def cleaner(self) -> CleaningNode | None:
        """Return the cleaning node, if this rank is it or may succeed it."""
        if not self.replication.may_clean(self.world.rank):
            return None
        return CleaningNode(self.world, self.messages, self.replication)

    def manager(
        self, readers: Sequence[int], reported: Callable[[Header], None], left: Callable[[int], None]
    ) -> Manager | None:
        """Return the manager, if this rank is it or may succeed it."""
        if self.world.rank not in self.replication.managers:
            return None
        clients = {rank: group for group, app in enumerate(self.applications) for rank in {*app.workers, *app.clients}}
        survivor = self.survivor
        return Manager(
            self.world.rank,
            self.messages,
            self.replication,
            clients | dict.fromkeys(readers, 0),
            services=(MANAGER, self.placement.cleaner, *self.placement.servers),
            reported=reported,
            silence_s=math.inf if survivor else self.options.hang_after,
            readers=readers,
            on_failure=partial(survivor.on_failure, self.replication) if survivor else lambda: None,
            left=left,
        )

    def worker(self) -> KVWorker | None:
        """Return this rank's connection to the servers of its application or to its aggregator; None: no client."""
        rank, placement = self.world.rank, self.placement
        reads = rank in placement.readers
        groups = [n for n, app in enumerate(self.applications) if reads or rank in {*app.workers, *app.clients}]
        if not groups:
            return None
        group = groups[0]
        table, assignment = self.applications[group].table, self.assignments[group]
        aggregator = placement.aggregator_of(rank)
        if aggregator is not None:
            assignment = {aggregator: [KeyRange(0, len(table))]}
        return KVWorker(
            self.world.comm,
            assignment,
            table,
            self.replication,
            lost=self.lost,
            group=group,
            window=self.windows[group] if self.windows and not reads else None,
            assign=self.assign,
        )

    def watcher(self) -> KVWorker:
        """Return a second connection to the servers of the first application, for a thread beside a service."""
        table = self.applications[0].table
        return KVWorker(self.world.comm, self.assignments[0], table, self.replication, lost=self.lost)

    def resharder(self, server: AnyServer) -> Resharder:
        """Return a server's part in the changes of the servers."""
        [app] = self.applications
        part, changes = server.parts[self.world.rank, 0], self.options.server_change
        return Resharder(self.world, self.messages, part, self.ring, changes, self.assign, app.rule, app.correction)

    def upload(self, server: AnyServer | None) -> None:
        """Copy each application's initial parameters from its first worker to the servers. Collective."""
        comm = self.world.comm
        for group, (application, assignment) in enumerate(zip(self.applications, self.assignments, strict=True)):
            source = application.workers[0]
            if self.world.rank == source:
                for partition, ranges in assignment.items():
                    layout = Layout(ranges, application.table.shape, application.table.dtype)
                    for rank in self.replication.chain(partition):
                        self.messages.send_payload(rank, layout.of(application.table), layout.nbytes)
                with comm.waiting("upload of the model", -1):
                    self.messages.flush()
            for part in server.parts.values() if server else ():
                if part.group == group and part.partition in assignment:
                    with comm.waiting("upload of the model", source):
                        comm.take(part.shard.values, source, PAYLOAD)

    def _divide_keys(self, keys: int) -> Assignment:
        """Let the manager determine which server has which keys, and broadcast it. Collective."""
        text, options = "", self.options
        if self.world.rank == MANAGER:
            assigned = ASSIGNMENTS[options.assignment](cut(keys, options.ranges * len(self.ring)), self.ring)
            pairs = {server: [(part.start, part.stop) for part in ranges] for server, ranges in assigned.items()}
            text = json.dumps(pairs)
        assigned_ranges = json.loads(broadcast_text(self.world.control, text, MANAGER))
        return {int(server): [KeyRange(*part) for part in ranges] for server, ranges in assigned_ranges.items()}

    def _make_shard(self, partition: int, group: int) -> MakeShard:
        application, ranges = self.applications[group], self.assignments[group].get(partition, [])

        def make(reply: Callable[[Header], None], before_moving: Callable[[], None]) -> Shard:
            keys = sum(len(part) for part in ranges)
            values, spare = np.zeros((keys, *application.table.shape[1:]), application.table.dtype), None
            if self.windows:
                window = self.windows[group]
                values = window.parameters(self.world.rank)
                spare = window.parameters(self.world.rank, 1) if window.in_turns else None
            counts = partition == min(self.replication.partitions) or application.policy().in_rounds
            limit = application.limit if counts else None
            rule, correction = application.rule(values), application.correction()
            return Shard(values, ranges, application.policy(), rule, correction, limit, reply, before_moving, spare)

        return make
