"""Document 000's hybrid: parameters that several workers update on the servers, the others with their worker.

    1  measure   every worker counts over one epoch in how many of its batches each row is updated
    2  divide    the manager gathers the counts and gives each row an owner (`frequency`)
    3  train     as in `sparse`, but only rows on the servers are sent; a worker updates its own rows in place
    4  complete  the workers' rows and the servers' become one table again, for the evaluation

With ``--cold clients`` only hot rows are at the centre, as in the document. A cold row that several workers update then
lives with one of them, from which the others request it in every step (`cold_rows`).

A worker updates its own rows as a server would: by the same rule, with share · gradient, once per step. No other worker
reads them, so training takes the same steps wherever they are stored, and synchronous training equals that of a single
process. Each update of such a row saves 8 + 8K bytes of messages. This pays if similar samples are with one worker.

Cost per step: that of `sparse`, for the rows on the servers only. Steps 1, 2 and 4 are set-up and evaluation, outside
the run's time and bytes: 8 bytes for each row and worker to the manager and as many back, once, and each worker's own
rows to every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import DTypeLike

from farandole.errors import UsageError
from farandole.models.sparse_logistic import touched_rows
from farandole.parameter_server import choices
from farandole.parameter_server.cold_rows import ColdRows
from farandole.parameter_server.frequency import (
    CENTRE,
    Division,
    UpdateCounts,
    count_updates,
    divide,
    predicted_rows_sent,
)
from farandole.parameter_server.kv_worker import KVWorker, Start
from farandole.parameter_server.placement import MANAGER
from farandole.parameter_server.sparse import CLASSES, Array, Rows, SparseTrainee
from farandole.parameter_server.sparse_options import HybridOptions
from farandole.runtime.files import json_text
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


class HybridTrainee(SparseTrainee):
    """Sparse training on one worker that keeps what only it updates. Arguments as there.

    Attributes:
        division: where each row lives, the same on every rank.

    Raises:
        UsageError: as there; or no row is left for the servers.
    """

    def __init__(
        self,
        options: HybridOptions,
        world: World,
        recorder: Recorder,
        groups: Sequence[tuple[int, ...]],
        group: int,
        dtype: DTypeLike = np.float32,
    ) -> None:
        check(options)
        super().__init__(options, world, recorder, groups, group, dtype)
        self.cold_at_clients = options.cold == "clients"
        counts = self._measure()
        self.division = self._divide(counts, options.hot)
        if counts:
            _describe(counts, self.division, recorder)
        own = self._own_rows(world.rank)
        self.table = np.zeros((len(self.division.centre_rows), CLASSES), dtype)  # what the servers have
        self.local = np.zeros((len(own), CLASSES), dtype)
        self.rule = choices.make_rule(options, self.local)
        self._place = np.zeros(options.buckets, dtype=np.int64)  # of a row within the one or the other
        self._place[self.division.centre_rows] = np.arange(len(self.table))
        for worker in self.workers:
            rows = self._own_rows(worker)
            self._place[rows] = np.arange(len(rows))
        self.cold: ColdRows | None = None
        if self.cold_at_clients:
            members = world.comm.split(int(world.rank in self.workers), world.rank)
            self.cold = ColdRows(members, self.division.owner, self._place, self.local, self.rule)

    def pull(self, kv: KVWorker, rows: Rows, values: Array) -> Start | None:
        """Wait for permission and the rows at the centre; the own ones are here."""
        central = self.division.owner[rows] == CENTRE
        pulled = np.empty((int(central.sum()), CLASSES), values.dtype)
        start = super().pull(kv, self._place[rows[central]], pulled)
        values[central] = pulled
        if start is None:
            return None
        if self.cold:
            with self.world.communicate("cold rows"):
                values[~central] = self.cold.pull(rows[~central])
        else:
            values[~central] = self.local[self._place[rows[~central]]]
        return start

    def push(self, kv: KVWorker, rows: Rows, gradients: Array, start: Start, share: float) -> None:
        """Push the gradient of the rows at the centre, and update the own ones."""
        central = self.division.owner[rows] == CENTRE
        super().push(kv, self._place[rows[central]], gradients[central], start, share)
        if self.cold:
            with self.world.communicate("cold rows"):
                self.cold.push(rows[~central], gradients[~central] * gradients.dtype.type(share))
            return
        with self.world.compute("update of own rows"):
            self.rule.begin()
            own = gradients[~central]
            self.rule.apply(self.local, self._place[rows[~central]], own * own.dtype.type(share), share)

    def complete(self, table: Array) -> Array:
        """Return the table of all rows: the servers', and every worker's own. Collective."""
        whole = np.zeros((self.options.buckets, CLASSES), table.dtype)
        whole[self.division.centre_rows] = table
        for worker in self.workers:
            rows = self._own_rows(worker)
            values = self.local if worker == self.world.rank else np.empty((len(rows), CLASSES), table.dtype)
            with self.world.comm.waiting("a worker's own rows", worker):
                self.world.control.Bcast(values, worker)
            whole[rows] = values
        return whole

    def _measure(self) -> UpdateCounts | None:
        """Count one epoch of updates; all workers' counts on the manager, None elsewhere. Collective."""
        buckets, size = self.options.buckets, self.world.size
        batches = islice(self.batches(), self.epoch) if self.shard is not None else []
        counts, taken = count_updates((touched_rows(batch) for batch, _ in batches), buckets)
        gathered = np.empty((size, buckets + 1), dtype=np.int64) if self.world.rank == MANAGER else None
        with self.world.comm.waiting("the counts of updates", -1):
            self.world.control.Gather(np.append(counts, taken), gathered, MANAGER)
        if gathered is None:
            return None
        of_workers = gathered[list(self.workers)]
        return UpdateCounts(of_workers[:, :-1], of_workers[:, -1])

    def _divide(self, counts: UpdateCounts | None, hot: float) -> Division:
        """Let the manager divide the rows, and broadcast the result. Collective."""
        owner = np.empty(self.options.buckets, dtype=np.int64)
        if counts:
            owner[:] = divide(counts, hot, shared_at_clients=self.cold_at_clients).owner
        with self.world.comm.waiting("the division of the rows", MANAGER):
            self.world.control.Bcast(owner, MANAGER)
        if not (owner == CENTRE).any():
            raise UsageError("every row is updated by one worker only, none is left for the servers: add --hot 0.1")
        return Division(owner)

    def _own_rows(self, rank: int) -> Rows:
        """Return the rows that live with a rank; none on one that is no worker."""
        return self.division.local_rows(self.workers.index(rank)) if rank in self.workers else np.empty(0, np.int64)


def check(options: HybridOptions) -> None:
    """Refuse an exchange of rows between workers that do not run in step.

    Raises:
        UsageError: --cold clients is given without --sync bsp.
    """
    if options.cold == "clients" and options.sync != "bsp":
        raise UsageError(f"--cold clients exchanges rows in every step: use --sync bsp, not {options.sync}")


def _describe(counts: UpdateCounts, division: Division, recorder: Recorder) -> None:
    """Write division.json beside the record: how many rows live where, and how many travel in an epoch."""
    updated = counts.counts.sum(axis=0) > 0
    described = {
        "rows_updated": int(updated.sum()),
        "at_the_centre": int(updated[division.centre_rows].sum()),
        "with_each_worker": [len(division.local_rows(worker)) for worker in range(len(counts.batches))],
        "rows_sent_per_epoch": predicted_rows_sent(counts, division),
        "rows_sent_between_clients": predicted_rows_sent(counts, division)
        - 2 * int(counts.counts[:, division.centre_rows].sum()),
        "rows_sent_per_epoch_without": predicted_rows_sent(counts),
    }
    recorder.write_beside("division.json", json_text(described, indent=2))
