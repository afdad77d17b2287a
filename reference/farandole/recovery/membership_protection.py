"""Protection by membership alone: nothing is kept, since every rank that lives knows what the dead ranks knew.

All workers of a data-parallel training hold the same parameters. After a change of the members (`membership`)
they compare how far each has come. A step whose all-reduce was interrupted has changed no parameters and is
taken again. Where one worker received its result and another did not, the one behind is sent the state of the
one ahead. So no step is lost and none is done twice. A spare that takes a slot is sent the state as well.

    lost     what was the dead worker's alone: its random numbers, its part of the last losses, its statistics (as
             BatchNorm's: a spare begins with those of the rank that sends it the state)

Cost: nothing while no rank dies; after a death one all-gather of 8 bytes, and the state to each rank that needs it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import torch
from mpi4py import MPI

from farandole.collectives.tree import broadcast
from farandole.recovery import data_parallel
from farandole.recovery.data_parallel import DataParallel
from farandole.recovery.membership import Membership, NoWorkerLeft
from farandole.recovery.options import MembershipOptions
from farandole.recovery.protection import NOT_STARTED
from farandole.recovery.state import TrainingState
from farandole.recovery.training_record import TrainingRecord
from farandole.runtime import devices
from farandole.runtime.buffers import buffers_as_bytes
from farandole.runtime.communicator import Buffer, as_buffer
from farandole.runtime.record import Summary


class MembershipProtection:
    """One worker's `Protection`."""

    def __init__(self, record: TrainingRecord, worker: DataParallel, membership: Membership) -> None:
        self.world, self.worker = record.world, worker

    def protect(self, step: int) -> None:
        """Keep nothing."""

    def secure(self) -> None:
        """Return at once."""

    def protect_now(self, step: int) -> None:
        """Keep nothing."""

    def regroup(self) -> None:
        """Nothing is under way."""

    def first_line(self, step: int) -> int:
        """Return `step`: no line that was written has to be undone."""
        return step

    def close(self) -> None:
        """Nothing was kept."""

    def restore(self, reached: int) -> int:
        """Have all workers be where the foremost of them is; return the step to take next.

        Raises:
            NoWorkerLeft: only spares live, and they have no state.
        """
        replica, rate, comm = self.worker.replica, self.worker.rate, self.world.comm
        with comm.waiting("how far the others have come", -1):
            # Two workers at the same step may differ: one has decided the rate, the other's exchange was interrupted.
            own = np.array([2 * reached + (rate.concluded_at == reached != NOT_STARTED)])
            everyones = np.empty(comm.size, dtype=np.int64)
            comm.mpi.Allgather(own, everyones)
            furthest = int(everyones.max())
            newest, concluded = divmod(furthest, 2)
            if newest == NOT_STARTED:
                raise NoWorkerLeft("every worker has died, and with them what the spares would need to know")
            if behind := np.flatnonzero(everyones != furthest).tolist():
                ours = replica.state(newest)
                ours = replace(ours, shared=ours.shared | buffers_as_bytes(replica.model))
                is_new = reached == NOT_STARTED
                state = send_state(comm.mpi, ours, int(everyones.argmax()), behind, in_place=is_new)
                if own[0] != furthest:
                    replica.adopt(state)
                    rate.concluded_at = newest if concluded else NOT_STARTED
                if is_new:
                    replica.set_statistics(state.shared)  # the others keep their own
                    devices.seed_rank(self.worker.options.seed, self.world.rank, newest)
        replica.rewind(newest)
        return newest


def send_state(
    mpi: MPI.Intracomm, state: TrainingState, source: int, behind: Collection[int], *, in_place: bool
) -> TrainingState:
    """Send the state of rank `source` to the ranks `behind`, down a tree; the others have no part in it.

    Args:
        state: this rank's own, with tensors of the same names and shapes.
        in_place: this rank is new, and what it has in `state` may be overwritten. Else it is not changed: if another
            rank dies meanwhile, it must still be what it was.

    Returns:
        On `source` and the ranks behind its state, without what is each rank's own; on all others `state`.

    Cost: all bytes once to each rank behind, in memory that is new there, unless in place.
    """
    tree = [source, *behind]
    if mpi.rank not in tree:
        return state

    def passed_on(buffer: Buffer) -> Buffer:
        for message in broadcast(tree.index(mpi.rank), len(tree)):
            if message.source is not None:
                mpi.Recv(buffer, tree[message.source])
            if message.to is not None:
                mpi.Send(buffer, tree[message.to])
        return buffer

    text = as_buffer(json.dumps({"step": state.step} | state.values))
    length = passed_on(np.array([text.size]))
    values = json.loads(passed_on(text if mpi.rank == source else np.empty(int(length[0]), dtype=np.uint8)).tobytes())
    shared = {}
    for name, tensor in sorted(state.shared.items()):
        if mpi.rank == source:
            on_host = tensor.detach().cpu().contiguous()
        elif in_place and tensor.device.type == "cpu" and tensor.is_contiguous():
            on_host = tensor.detach()
        else:
            on_host = torch.empty(tensor.shape, dtype=tensor.dtype)
        passed_on(on_host.numpy())
        shared[name] = on_host
    return TrainingState(values.pop("step"), shared, {}, values)


def train(scenario: str, options: MembershipOptions) -> Summary | None:
    """Train to the end, whichever ranks die; the summary on the rank that leads then, None elsewhere.

    Raises:
        NoWorkerLeft: all workers have died.
        UsageError: options that do not fit.
    """
    return data_parallel.train(scenario, options, data_parallel.in_step(options), MembershipProtection)
