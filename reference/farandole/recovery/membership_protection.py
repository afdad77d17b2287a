"""Protection by membership alone: nothing is kept, since every rank that lives knows what the dead ranks knew.

All workers of a data-parallel training hold the same parameters. After a change of the members (`membership`)
they compare how far each has come. A step whose all-reduce was interrupted has changed no parameters and is
taken again. Where one worker received its result and another did not, the one behind is sent the state of the
one ahead. So no step is lost and none is done twice. A spare that takes a slot is sent the state as well.

    lost     what was the dead worker's alone: its random numbers, its part of the last losses

Cost: nothing while no rank dies; after a death one all-gather of 8 bytes, and a broadcast of the state if it is needed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from farandole.recovery.fault_tolerant_training import NOT_STARTED
from farandole.recovery.membership import NobodyLeft
from farandole.recovery.replica import seed_random
from farandole.recovery.state import TrainingState
from farandole.runtime.communicator import broadcast_text

if TYPE_CHECKING:
    from farandole.recovery.data_parallel import DataParallelTraining


class MembershipProtection:
    """One worker's `Protection`."""

    def __init__(self, training: DataParallelTraining) -> None:
        self.training = training

    def protect(self, step: int) -> None:
        """Keep nothing."""

    def secure(self) -> None:
        """Return at once."""

    def protect_now(self) -> None:
        """Keep nothing."""

    def regroup(self) -> None:
        """Nothing is under way."""

    def first_line(self, step: int) -> int:
        """Return `step`: no line that was written has to be undone."""
        return step

    def restore(self) -> int:
        """Have all workers be where the foremost of them is; return the step to take next.

        Raises:
            NobodyLeft: only spares live, and they have no state.
        """
        training, comm = self.training, self.training.world.comm
        # Two workers at the same step may differ: one has decided the rate, the other's exchange was interrupted.
        own = np.array([2 * training.step + (training.concluded_at == training.step != NOT_STARTED)])
        reached = np.empty(comm.size, dtype=np.int64)
        comm.mpi.Allgather(own, reached)
        furthest = int(reached.max())
        newest, concluded = divmod(furthest, 2)
        if newest == NOT_STARTED:
            raise NobodyLeft("every worker has died, and with them what the spares would need to know")
        if (reached != furthest).any():
            source = int(reached.argmax())
            state = send_state(comm.mpi, training.replica.state(newest), source)
            if own[0] != furthest:
                training.replica.adopt(state)
                training.concluded_at = newest if concluded else NOT_STARTED
            if training.step == NOT_STARTED:
                seed_random(training.options.seed, training.world.rank, newest)
        training.replica.rewind(newest)
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
