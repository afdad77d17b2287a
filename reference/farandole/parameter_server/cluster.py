"""All roles at work: from sharing out the keys to collecting what has been learned.

    1  the manager shares out the keys                       (broadcast)
    2  the first worker of each application brings the initial parameters to the servers
    3  workers pull, compute and push; servers apply; the manager listens; the cleaning node cleans
    4  the manager has heard from everybody that they have finished, and says STOP
    5  the final parameters come to every rank

Steps 1, 2 and 5 are not part of the run's time and bytes. Document 000's set-up, training and end.

During step 3 ranks may die, if MPI lets the others live (ULFM) and they are told to go on: a worker at any
time, a server or the manager where another has what it had (`succession`). Who hangs is made to die
(`recovery.heartbeat`). Who is left finds together before step 5.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from farandole.compression.compressor import Compressor
from farandole.parameter_server.cleaning import CleaningNode
from farandole.parameter_server.client import Client
from farandole.parameter_server.corrections import Correction
from farandole.parameter_server.header import Header
from farandole.parameter_server.keys import ASSIGNMENTS, Assignment, KeyRange, cut
from farandole.parameter_server.layout import Layout
from farandole.parameter_server.mailbox import PAYLOAD, REQUEST, Mailbox
from farandole.parameter_server.manager import Manager
from farandole.parameter_server.options import ServerOptions
from farandole.parameter_server.placement import MANAGER, Placement
from farandole.parameter_server.policies import Policy
from farandole.parameter_server.resharding import Resharder
from farandole.parameter_server.server import MakeShard, Server
from farandole.parameter_server.server_manager import ServerManager
from farandole.parameter_server.service import Role, beside, serve
from farandole.parameter_server.shard import Shard
from farandole.parameter_server.succession import Succession
from farandole.parameter_server.tasks import Coordinator, TaskQueue
from farandole.parameter_server.tree import Aggregator
from farandole.parameter_server.update_rules import UpdateRule
from farandole.parameter_server.window import Window
from farandole.recovery.heartbeat import Heart
from farandole.runtime.communicator import broadcast_text, gather_text, ranks_within
from farandole.runtime.world import World

Array = NDArray[Any]
Work = Callable[[Client], None]


class Clock(Protocol):
    """What is told when the run begins and ends on this rank: a `Recorder`."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Survivor(Protocol):
    """What is told of deaths where the others go on: `training.Reports`."""

    def missed(self, succession: Succession) -> None:
        """On the manager: ranks have died, or this one has become the manager because the one before has."""

    def silent(self, rank: int, step: int) -> None:
        """On every rank, from another thread: this one hangs, and is about to be ended."""


@dataclass
class Application:
    """One model on the servers, and its worker group.

    Attributes:
        table: the parameters, (keys,) or (rows, width); the first worker's are the initial ones, on
            other ranks only shape and type count.
        clients: whom the servers deal with: the workers, or the aggregators before them.
        limit: steps if the policy works in rounds, else gradients, after which the work is done.
        decoder: makes what the servers decode pushes with, the same for all applications; None: they come as they are.
    """

    table: Array
    workers: tuple[int, ...]
    clients: tuple[int, ...]
    policy: Callable[[], Policy]
    rule: Callable[[Array], UpdateRule]
    correction: Callable[[], Correction | None]
    limit: int | None
    decoder: Callable[[], Compressor | None] = lambda: None


@dataclass
class Outcome:
    """What has come of it. `tables` are known everywhere, the rest on the manager's rank.

    Attributes:
        tables: each application's final parameters.
        updates: how often the first server has moved each application's parameters.
        lead, staleness: histograms over all workers (`runtime.record`).
        cleaned: what the cleaning node and the servers have removed.
        server_changes: the changes of the servers, in the record's form.
        dead: the ranks that died, and the clients that were silent for too long.
        roles: each rank's, in words.
    """

    tables: list[Array]
    updates: list[int] = field(default_factory=list)
    lead: Counter[str] = field(default_factory=Counter)
    staleness: Counter[str] = field(default_factory=Counter)
    cleaned: Counter[str] = field(default_factory=Counter)
    server_changes: list[dict[str, Any]] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """What the record has of it (`Recorder.finish`)."""
        histograms = {"staleness": self.staleness, "lead": self.lead}
        ordered = {name: {key: counts[key] for key in sorted(counts, key=int)} for name, counts in histograms.items()}
        cleaned, changes = dict(self.cleaned), self.server_changes
        return {**ordered, "cleaned": cleaned, "server_changes": changes, "roles": self.roles}


def run(
    world: World,
    clock: Clock | None,
    options: ServerOptions,
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
    """Carry out this rank's roles. Collective.

    Args:
        clock: None: nothing is recorded.
        work: what a worker does with its client, until there is no work left.
        reported: what the manager does with each report.
        read: what a reader does with its client, until no worker is left; it reads the first application.
        survivor: None: the first death is the end.
        tasks: the tasks that the manager hands out; None: each worker has batches of its own share.
        watch: what a second thread of the manager does with its own client, until no worker is left.
        left: what the manager does once a worker reports no more.

    Raises:
        NobodyToSucceed: with a rank something has died that nobody else has.
    """
    succession = Succession(placement, options.replicas)
    lost = succession.lost if survivor else None
    ring = sorted(placement.servers)
    if options.server_change:  # the other servers stand by
        ring = ring[: options.servers]
    assignments = [_share_out(world, options, ring, len(application.table)) for application in applications]
    mailbox = Mailbox(world.comm, REQUEST, lost)
    windows = []
    if options.transport == "window":
        pairs = zip(applications, assignments, strict=True)
        windows = [Window(world, assigned, app.clients, app.table) for app, assigned in pairs]
    server = _server(world, mailbox, succession, applications, assignments, windows)
    _upload(world, mailbox, succession, applications, assignments, server)
    cleaner = CleaningNode(world, mailbox, succession) if succession.may_clean(world.rank) else None
    assign = _assigner(options, assignments[0])
    client = _client(world, succession, placement, applications, assignments, windows, lost, assign)
    world.outlived = survivor is not None
    heart = Heart(world, options.hang_after, survivor.silent, gone=succession.lost) if survivor else None
    if clock:
        clock.start()
    if heart:
        heart.start()
    readers = (*placement.readers, MANAGER) if watch else placement.readers
    manager = _manager(world, mailbox, succession, options, placement, readers, applications, reported, survivor, left)
    server_manager: ServerManager | None = None
    if client:
        with client:
            if world.rank in placement.aggregators:
                table = np.empty_like(applications[client.group].table)
                Aggregator(world, mailbox, client, placement.members(world.rank), table).run()
            elif world.rank in placement.readers:
                assert read is not None
                read(client)
            else:
                work(client)
            client.leave_with_the_others()
    else:
        roles: list[Role | None] = [server, cleaner, manager]
        if manager and tasks:
            roles.append(Coordinator(mailbox, succession, tasks))
        if manager and options.server_change:
            server_manager = ServerManager(mailbox, placement.servers, ring, options.server_change)
            roles.append(server_manager)
        if server and options.server_change:
            [app] = applications
            changes = options.server_change
            roles.append(Resharder(world, mailbox, server, ring, changes, assign, app.rule, app.correction))
        watcher: Client | None = None
        if watch and world.rank == MANAGER:
            watcher = Client(world.comm, assignments[0], applications[0].table, succession, lost=lost)
        with beside(watcher, watch):
            serve(mailbox, [role for role in roles if role])
    if clock:
        clock.stop()
    if survivor and heart:
        _find_together(world, succession, survivor, heart)
    server_changes = _tell_changes(world, server_manager)
    if server_changes:
        assignments = [assign(server_changes[-1]["servers"])]
    tables = [
        _collect(world, succession, *pair, group=number, server=server)
        for number, pair in enumerate(zip(applications, assignments, strict=True))
    ]
    for window in windows:
        window.free()
    outcome = _outcome(world, succession, tables, server, cleaner, manager, client)
    outcome.server_changes = server_changes
    outcome.roles = [", ".join(placement.roles(rank)) for rank in sorted(set(range(world.size)) - succession.lost)]
    return outcome


def _find_together(world: World, succession: Succession, survivor: Survivor, heart: Heart) -> None:
    """Those who are left agree on who that is; the manager among them leads. Collective.

    As in `recovery.membership`, whose source it has: shrink, form the groups, agree that all have come so far; if
    not, once more. Cost: four collective calls of a few bytes, and as many for each death meanwhile.
    """
    with world.comm.waiting("the others, at the end", -1):
        left = world.control
        formed = False
        while not formed:
            left = MPI.Intracomm(left.Shrink())
            succession.lost |= set(range(world.size)) - set(ranks_within(left, MPI.COMM_WORLD))
            leads = world.rank == succession.manager
            try:
                workers = MPI.Intracomm(left.Split(0, world.rank))
                control = MPI.Intracomm(left.Split(0, -1 if leads else world.rank))
                formed = True
            except MPI.Exception:
                left.Revoke()  # others may still wait for whoever has died
            try:
                formed = bool(left.Agree(int(formed)))
            except MPI.Exception:  # somebody has died; the same on all
                formed = False
        heart.stop()  # on all, before one has more to do than others
        if succession.lost:
            if leads:
                survivor.missed(succession)
            world.regroup(workers, control, number=1)


def _assigner(options: ServerOptions, assignment: Assignment) -> Callable[[Sequence[int]], Assignment]:
    """Return a function of a list of servers: which of them has which of the assignment's ranges."""
    ranges = sorted(part for parts in assignment.values() for part in parts)
    return partial(ASSIGNMENTS[options.assignment], ranges)


def _tell_changes(world: World, server_manager: ServerManager | None) -> list[dict[str, Any]]:
    """Broadcast, from the manager, how the servers have changed. Collective."""
    changes: list[dict[str, Any]] = json.loads(
        broadcast_text(world.control, json.dumps(server_manager.done if server_manager else []), 0)
    )
    return changes


def _share_out(world: World, options: ServerOptions, servers: Sequence[int], keys: int) -> Assignment:
    """The manager decides which server has which keys, and tells everybody. Collective."""
    text = ""
    if world.rank == MANAGER:
        assigned = ASSIGNMENTS[options.assignment](cut(keys, options.ranges * len(servers)), servers)
        text = json.dumps({server: [(part.start, part.stop) for part in ranges] for server, ranges in assigned.items()})
    told = json.loads(broadcast_text(world.control, text, MANAGER))
    return {int(server): [KeyRange(*part) for part in ranges] for server, ranges in told.items()}


def _client(
    world: World,
    succession: Succession,
    placement: Placement,
    applications: Sequence[Application],
    assignments: Sequence[Assignment],
    windows: Sequence[Window],
    lost: set[int] | None,
    assign: Callable[[Sequence[int]], Assignment],
) -> Client | None:
    """This rank's connection to the servers of its application, or to its aggregator; None if it is no client."""
    reads = world.rank in placement.readers
    groups = [n for n, app in enumerate(applications) if reads or world.rank in {*app.workers, *app.clients}]
    if not groups:
        return None
    group = groups[0]
    table, assignment = applications[group].table, assignments[group]
    aggregator = placement.aggregator_of(world.rank)
    if aggregator is not None:
        assignment = {aggregator: [KeyRange(0, len(table))]}
    window = windows[group] if windows and not reads else None
    return Client(world.comm, assignment, table, succession, lost=lost, group=group, window=window, assign=assign)


def _manager(
    world: World,
    mailbox: Mailbox,
    succession: Succession,
    options: ServerOptions,
    placement: Placement,
    readers: Sequence[int],
    applications: Sequence[Application],
    reported: Callable[[Header], None],
    survivor: Survivor | None,
    left: Callable[[int], None],
) -> Manager | None:
    """The manager's part, if this rank has it or may have to take it over."""
    if world.rank not in succession.managers:
        return None
    clients = {rank: number for number, app in enumerate(applications) for rank in {*app.workers, *app.clients}}
    return Manager(
        world.rank,
        mailbox,
        succession,
        clients | dict.fromkeys(readers, 0),
        services=(MANAGER, placement.cleaner, *placement.servers),
        reported=reported,
        silence_s=math.inf if survivor else options.hang_after,
        readers=readers,
        missed=partial(survivor.missed, succession) if survivor else lambda: None,
        left=left,
    )


def _server(
    world: World,
    mailbox: Mailbox,
    succession: Succession,
    applications: Sequence[Application],
    assignments: Sequence[Assignment],
    windows: Sequence[Window],
) -> Server | None:
    """This rank's server, if it is one; its values are still to be uploaded."""
    if world.rank not in succession.homes:
        return None

    def maker(home: int, number: int) -> MakeShard:
        application, ranges = applications[number], assignments[number].get(home, [])

        def make(reply: Callable[[Header], None], before_moving: Callable[[], None]) -> Shard:
            keys = sum(len(part) for part in ranges)
            values = np.zeros((keys, *application.table.shape[1:]), application.table.dtype)
            if windows:
                values = windows[number].of(world.rank)
            counts = home == min(succession.homes) or application.policy().in_rounds
            limit = application.limit if counts else None
            rule, correction = application.rule(values), application.correction()
            return Shard(values, ranges, application.policy(), rule, correction, limit, reply, before_moving)

        return make

    homes = [home for home in succession.homes if world.rank in succession.chain(home)]
    makers = {(home, number): maker(home, number) for home in homes for number in range(len(applications))}
    return Server(world, mailbox, succession, makers, windows, applications[0].decoder())


def _upload(
    world: World,
    mailbox: Mailbox,
    succession: Succession,
    applications: Sequence[Application],
    assignments: Sequence[Assignment],
    server: Server | None,
) -> None:
    """The first worker of each application copies its model to the servers. Collective."""
    for number, (application, assignment) in enumerate(zip(applications, assignments, strict=True)):
        source = application.workers[0]
        if world.rank == source:
            for home, ranges in assignment.items():
                layout = Layout(ranges, application.table.shape, application.table.dtype)
                for rank in succession.chain(home):
                    mailbox.send_payload(rank, layout.of(application.table), layout.nbytes)
            with world.comm.waiting("upload of the model", -1):
                mailbox.flush()
        for part in server.parts.values() if server else ():
            if part.group == number and part.home in assignment:
                with world.comm.waiting("upload of the model", source):
                    world.comm.take(part.shard.values, source, PAYLOAD)


def _collect(
    world: World,
    succession: Succession,
    application: Application,
    assignment: Assignment,
    *,
    group: int,
    server: Server | None,
) -> Array:
    """The final parameters, from all servers to everybody. Collective."""
    table = np.empty_like(application.table)
    members = world.control.Get_group()
    for home, ranges in assignment.items():
        rank = succession.head(home)
        layout = Layout(ranges, table.shape, table.dtype)
        if server and rank == world.rank:
            part = server.parts[home, group].shard.values
        else:
            part = np.empty(layout.local_shape, table.dtype)
        [root] = MPI.COMM_WORLD.Get_group().Translate_ranks([rank], members)
        with world.comm.waiting("the final parameters", root):
            world.control.Bcast(part, root)
        start = 0
        for keys in ranges:
            table[keys.start : keys.stop] = part[start : start + len(keys)]
            start += len(keys)
    return table


def _outcome(
    world: World,
    succession: Succession,
    tables: list[Array],
    server: Server | None,
    cleaner: CleaningNode | None,
    manager: Manager | None,
    client: Client | None,
) -> Outcome:
    """Bring together what each rank has counted. Collective."""
    first = min(succession.homes)
    own = {
        "updates": [part.shard.updates for part in server.parts.values() if part.home == first] if server else [],
        "lead": client.lead if client else {},
        "staleness": client.staleness if client else {},
        "cleaned": {**(cleaner.removed if cleaner else {}), "late pushes": server.late_pushes if server else 0},
    }
    outcome = Outcome(tables, dead=sorted(succession.lost | set(manager.silent)) if manager else [])
    for text in gather_text(world.control, json.dumps(own)):
        told = json.loads(text)
        outcome.updates = outcome.updates or told["updates"]
        for name in ("lead", "staleness", "cleaned"):
            getattr(outcome, name).update(told[name])
    return outcome
