"""The outcome of a training on every rank: the final parameters, and the statistics of all ranks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI

from farandole.parameter_server.application import Array
from farandole.parameter_server.cleaning import CleaningNode
from farandole.parameter_server.deployment import AnyServer, Deployment
from farandole.parameter_server.keys import Assignment
from farandole.parameter_server.kv_worker import KVWorker
from farandole.parameter_server.layout import Layout
from farandole.parameter_server.manager import Manager
from farandole.parameter_server.server_manager import ServerManager
from farandole.runtime.communicator import broadcast_text, gather_text


@dataclass
class Outcome:
    """The results of a run. `tables` are the same on every rank, the rest is complete on the manager's.

    Attributes:
        tables: each application's final parameters.
        updates: how often the first server has moved each application's parameters.
        lead, staleness: histograms over all workers (`runtime.record`).
        cleaned: what the cleaning node and the servers have removed.
        server_changes: the changes of the servers, in the record's form.
        dead: the ranks that died, and the clients that were silent for too long.
        roles: each live rank's, in words.
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
        """Return the record's entries (`Recorder.finish`)."""
        histograms = {"staleness": self.staleness, "lead": self.lead}
        ordered = {name: {key: counts[key] for key in sorted(counts, key=int)} for name, counts in histograms.items()}
        cleaned, changes = dict(self.cleaned), self.server_changes
        return {**ordered, "cleaned": cleaned, "server_changes": changes, "roles": self.roles}


def collect(
    deployment: Deployment,
    server: AnyServer | None,
    cleaner: CleaningNode | None,
    manager: Manager | None,
    server_manager: ServerManager | None,
    kv: KVWorker | None,
) -> Outcome:
    """Collect the final parameters and the statistics from this rank's roles. Collective."""
    world, replication = deployment.world, deployment.replication
    done = json.dumps(server_manager.done if server_manager else [])
    server_changes: list[dict[str, Any]] = json.loads(broadcast_text(world.control, done, 0))
    assignments: Sequence[Assignment] = deployment.assignments
    if server_changes:
        assignments = [deployment.assign(server_changes[-1]["servers"])]
    tables = [_table(deployment, server, group, assignment) for group, assignment in enumerate(assignments)]
    first = min(replication.partitions)
    own = {
        "updates": [part.shard.updates for part in server.parts.values() if part.partition == first] if server else [],
        "lead": kv.lead if kv else {},
        "staleness": kv.staleness if kv else {},
        "cleaned": {**(cleaner.removed if cleaner else {}), "late pushes": server.late_pushes if server else 0},
    }
    outcome = Outcome(tables, dead=sorted(replication.lost | set(manager.silent)) if manager else [])
    for text in gather_text(world.control, json.dumps(own)):
        of_a_rank = json.loads(text)
        outcome.updates = outcome.updates or of_a_rank["updates"]
        for name in ("lead", "staleness", "cleaned"):
            getattr(outcome, name).update(of_a_rank[name])
    outcome.server_changes = server_changes
    live = sorted(set(range(world.size)) - replication.lost)
    outcome.roles = [", ".join(deployment.placement.roles(rank)) for rank in live]
    return outcome


def _table(deployment: Deployment, server: AnyServer | None, group: int, assignment: Assignment) -> Array:
    """Broadcast one application's final parameters from the heads of its partitions. Collective."""
    world = deployment.world
    table = np.empty_like(deployment.applications[group].table)
    members = world.control.Get_group()
    for partition, ranges in assignment.items():
        head = deployment.replication.head(partition)
        layout = Layout(ranges, table.shape, table.dtype)
        if server and head == world.rank:
            part = server.parts[partition, group].shard.values
        else:
            part = np.empty(layout.local_shape, table.dtype)
        [root] = MPI.COMM_WORLD.Get_group().Translate_ranks([head], members)
        with world.comm.waiting("the final parameters", root):
            world.control.Bcast(part, root)
        start = 0
        for keys in ranges:
            table[keys.start : keys.stop] = part[start : start + len(keys)]
            start += len(keys)
    return table
