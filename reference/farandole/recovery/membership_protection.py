"""Protection by membership alone: nothing is kept, since every rank that lives knows what the dead ranks knew.

All workers of a data-parallel training hold the same parameters. After a change of the members (`membership`)
they compare how far each has come. A step whose all-reduce was interrupted has changed no parameters and is
taken again. Where one worker received its result and another did not, the one behind is sent the state of the
one ahead. So no step is lost and none is done twice. A spare that takes a slot is sent the state as well.

    lost     what was the dead worker's alone: its random numbers, its part of the last losses, its statistics (as
             BatchNorm's: a spare begins with those of the rank that sends it the state)

Cost: nothing while no rank dies; after a death one all-gather of 8 bytes, and a broadcast of the state if it is needed.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from farandole.recovery import data_parallel
from farandole.recovery.data_parallel import DataParallel
from farandole.recovery.membership import Membership, NoWorkerLeft
from farandole.recovery.options import MembershipOptions
from farandole.recovery.protection import NOT_STARTED
from farandole.recovery.state import TrainingState
from farandole.recovery.training_record import TrainingRecord
from farandole.runtime import devices
from farandole.runtime.buffers import buffers_as_bytes
from farandole.runtime.communicator import broadcast_text
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
            if (everyones != furthest).any():
                ours = replica.state(newest)
                ours = replace(ours, shared=ours.shared | buffers_as_bytes(replica.model))
                state = send_state(comm.mpi, ours, int(everyones.argmax()))
                if own[0] != furthest:
                    replica.adopt(state)
                    rate.concluded_at = newest if concluded else NOT_STARTED
                if reached == NOT_STARTED:
                    replica.set_statistics(state.shared)  # the others keep their own
                    devices.seed_rank(self.worker.options.seed, self.world.rank, newest)
        replica.rewind(newest)
        return newest


def send_state(mpi: MPI.Intracomm, state: TrainingState, source: int) -> TrainingState:
    """Return the state of rank `source` on all ranks, without what is each rank's own. Collective.

    Args:
        state: this rank's own, with tensors of the same names and shapes, which are not changed.

    Cost: one broadcast of all its bytes.
    """
    values = json.loads(broadcast_text(mpi, json.dumps({"step": state.step} | state.values), source))
    shared = {}
    for name in sorted(state.shared):
        shared[name] = state.shared[name].detach().cpu().clone()
        mpi.Bcast(shared[name].numpy(), source)
    return TrainingState(values.pop("step"), shared, {}, values)


def train(scenario: str, options: MembershipOptions) -> Summary | None:
    """Train to the end, whichever ranks die; the summary on the rank that leads then, None elsewhere.

    Raises:
        NoWorkerLeft: all workers have died.
        UsageError: options that do not fit.
    """
    return data_parallel.train(scenario, options, data_parallel.in_step(options), MembershipProtection)
