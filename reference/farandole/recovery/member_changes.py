"""When the members of a training change although no rank has died: another worker is wanted, or about to join.

The workers decide together, where they have just exchanged their losses:

    news          the process that the coordinator has spawned is ready, or lost
    failures      too many tries of all workers together have failed (`retry`): one more worker is wanted
    a request     one more worker was requested from outside (`join_request`)

Cost: one all-reduce of three numbers for each exchange of losses.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from farandole.recovery import join_request
from farandole.recovery.membership import Membership
from farandole.recovery.protected_training import MembersChange
from farandole.recovery.retry import Retry
from farandole.recovery.training_record import TrainingRecord


class MemberChanges:
    """One worker's part in it.

    Args:
        failures: number of failed tries, of all workers together, after which one more worker is wanted.
    """

    def __init__(self, record: TrainingRecord, membership: Membership, retry: Retry, failures: int) -> None:
        self.record, self.membership, self.retry, self.failures = record, membership, retry, failures

    def wanted(self) -> MembersChange | None:
        """Return the change that is due, the same on all workers; None: there is none. Collective."""
        world, membership = self.record.world, self.membership
        requested = membership.leads and membership.view.spawned is None and self._is_requested()
        known = np.array([self.retry.failed, membership.has_news, requested])
        with world.comm.waiting("failures of the others", -1):
            world.control.Allreduce(MPI.IN_PLACE, known)
        failed, news, requested = known.tolist()
        too_many = failed >= self.failures and membership.view.can_grow
        return MembersChange(more=too_many, requested=bool(requested)) if news or too_many or requested else None

    def _is_requested(self) -> bool:
        """Return whether a request from outside has not been answered yet."""
        return join_request.next_request(self.record.folder, self.record.event_log) is not None
