"""DiLoCo whose ranks may die or join: the survivors' outer step goes on, with whatever each of them has moved.

    each step        θ_r ← θ_r − inner optimizer, on worker r's part of the batch
    every H steps    Δ = θ − Σ_r s_r·θ_r / Σ_r s_r      s_r: worker r's mean share of the batches of the round
                     v ← μv + Δ;  θ ← θ − η(Δ + μv);  θ_r ← θ       the outer step, as in `data_parallel.diloco`

Workers hear of each other once a round only, so a death is noticed at the next outer step. What a worker alone knows is
what it has moved in this round, and that is all a death costs: the mean is over the workers that are there, and its
weights are divided by their sum. A worker that has come meanwhile receives θ, v and the state of an inner optimizer,
and has a share of 0 in the round that it has missed.

    all have taken as many outer steps      they keep what they have moved, and take the outer step once more
    some have received the result, and      the others are sent θ and v, and all begin the next round from θ: the
    others were interrupted                 foremost give up the steps that they have taken in it

Cost: as DiLoCo, one number more for each outer step; after a death a round of the dead worker's part of the batches,
and in the second case up to H steps of all. Memory: θ and v, as there.
Source: Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023, where the number of
workers changes during the training ("adaptive compute pool"), and outer gradients are lost.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from farandole.collectives.executor import run
from farandole.collectives.ring import RING
from farandole.data_parallel.loss_log import LossLog
from farandole.data_parallel.outer_step import Outer
from farandole.errors import UsageError
from farandole.recovery import data_parallel
from farandole.recovery.batches import Batches
from farandole.recovery.data_parallel import DataParallel
from farandole.recovery.membership import NoWorkerLeft
from farandole.recovery.membership_protection import MembershipProtection, send_state
from farandole.recovery.options import ElasticDiLoCoOptions
from farandole.recovery.protection import NOT_STARTED
from farandole.recovery.retry import Retry
from farandole.recovery.state import TrainingState
from farandole.recovery.training_record import TrainingRecord
from farandole.runtime import devices
from farandole.runtime.buffers import buffers_as_bytes
from farandole.runtime.record import Summary

REMEMBERED = "inner optimizer/"  # prefix of the names of its state


class DiLoCoWorker(DataParallel):
    """One worker, which trains alone for a round, and then takes the outer step with the others.

    Attributes:
        common, velocity: θ and v, the same on all workers that have taken as many outer steps.
        outer_steps: how many those are.
        moved: the step up to which this worker has moved its own parameters.
    """

    def __init__(
        self, record: TrainingRecord, options: ElasticDiLoCoOptions, batches: Batches, retry: Retry | None = None
    ) -> None:
        super().__init__(record, options, batches, retry)
        self.outer = Outer(options.period, options.outer_lr, options.outer_momentum)
        self.losses = LossLog(self.world, record.recorder, options.steps, window=options.period)
        self.replica.flat.values_to_host()
        self.common: NDArray[np.floating] = self.replica.flat.values_np.copy()
        self.velocity = np.zeros_like(self.common)
        self.outer_steps = self.moved = 0
        self._own = 0.0, 0.0, 0  # loss, share and samples of the step that was taken last
        self._shares: list[float] = []  # of this round

    def step(self, step: int, secure: Callable[[], None]) -> None:
        """Take the inner step, unless that was done before a death; at the end of a round, also the outer one."""
        if self.moved == step:
            self._own = self._own_part(step)
            with self.world.compute("update"):
                self.replica.optimizer.optimizer.step()
            self._shares.append(self._own[1])
            self.moved = step + 1
        if self.moved == self.round_ends:
            self.outer_step()

    @property
    def round_begins(self) -> int:
        """Return the first step of the round."""
        return self.outer_steps * self.outer.period

    @property
    def round_ends(self) -> int:
        """Return the step that follows the round."""
        return min(self.round_begins + self.outer.period, self.steps)

    def outer_step(self) -> None:
        """Move θ by the mean of what the workers have moved, and continue from there. Collective."""
        flat, share = self.replica.flat, sum(self._shares) / max(1, len(self._shares))
        flat.values_to_host()
        moved = np.append((self.common - flat.values_np) * share, self.common.dtype.type(share))
        with self.world.communicate("average"):
            run(RING, self.world.comm, moved)
        with self.world.compute("outer step"):
            if moved[-1]:  # else all who have moved in this round have died
                self.outer.move(self.common, self.velocity, moved[:-1] / moved[-1])
            self.outer_steps += 1
            self.continue_from_common()

    def continue_from_common(self) -> None:
        """Begin the round: from θ."""
        self.replica.flat.values_np[:] = self.common
        self.replica.flat.values_from_host()
        self._shares, self.moved = [], min(self.round_begins, self.steps)

    def miss_the_round(self) -> None:
        """As a worker that has just joined, have no share in the steps that the others have taken in this round."""
        self._shares, self.moved, self._own = [], self.round_ends, (0.0, 0.0, 0)

    def resume(self, step: int, first_line: int) -> None:
        super().resume(step, first_line)
        self.batches.go_to(self.moved)

    def shared(self) -> TrainingState:
        """Return what another worker needs to continue with this one; the tensors are the originals."""
        inner = self.replica.optimizer.optimizer.state
        remembered = {f"{REMEMBERED}{name}": tensor for name, tensor in inner.items()}
        common = {"common": torch.from_numpy(self.common), "velocity": torch.from_numpy(self.velocity)}
        return TrainingState(self.outer_steps, common | remembered | buffers_as_bytes(self.replica.model))

    def adopt(self, state: TrainingState, *, is_new: bool) -> None:
        """Have the θ and v of another worker, and begin its round; as a new one, have its inner state, too."""
        self.common[:], self.velocity[:] = (state.shared[name].numpy() for name in ("common", "velocity"))
        self.outer_steps = state.step
        self.continue_from_common()
        if is_new:
            for name, tensor in self.replica.optimizer.optimizer.state.items():
                tensor.copy_(state.shared[f"{REMEMBERED}{name}"])
            self.replica.set_statistics(state.shared)

    def _gradient(self, step: int) -> tuple[float, float, int]:
        """Of the mean loss of this worker's part of the batch, alone."""
        self.world.begin_step(step)
        batch, share, whole = self.batches.next_part(self.world.comm.rank, self.world.comm.size)
        self.replica.flat.zero_gradients()
        return self.replica.gradient(batch, 1.0), share, whole


class OuterStepProtection(MembershipProtection):
    """One worker's `Protection`: every worker that lives knows θ and v, and what it has moved itself."""

    worker: DiLoCoWorker

    def restore(self, reached: int) -> int:
        """Have all workers be in the same round, at the same step; return the step to take next.

        Raises:
            NoWorkerLeft: only spares live, and they have no state.
        """
        worker, comm = self.worker, self.world.comm
        is_new = reached == NOT_STARTED
        with comm.waiting("how far the others have come", -1):
            own = np.array([NOT_STARTED, NOT_STARTED] if is_new else [worker.outer_steps, worker.moved])
            everyones = np.empty((comm.size, 2), dtype=np.int64)
            comm.mpi.Allgather(own, everyones)
            furthest, moved = max(map(tuple, everyones.tolist()))
            if furthest == NOT_STARTED:
                raise NoWorkerLeft("every worker has died, and with them what the spares would need to know")
            places = {tuple(each) for each in everyones.tolist()}
            if behind := np.flatnonzero(everyones[:, 0] < furthest).tolist():
                source = everyones.tolist().index([furthest, moved])
                state = send_state(comm.mpi, worker.shared(), source, behind, in_place=is_new)
                if is_new or worker.outer_steps < furthest:
                    worker.adopt(state, is_new=is_new)
                if is_new:
                    devices.seed_rank(worker.options.seed, self.world.rank, moved)
        if places - {(furthest, moved), (NOT_STARTED, NOT_STARTED)}:  # some were interrupted, and others were not
            worker.continue_from_common()
        elif is_new and moved > worker.round_begins:
            worker.miss_the_round()
        return worker.moved - (worker.moved == worker.round_ends > worker.round_begins)


def train(scenario: str, options: ElasticDiLoCoOptions) -> Summary | None:
    """Train to the end, whichever ranks die; the summary on the rank that leads then, None elsewhere.

    Raises:
        NoWorkerLeft: all workers have died.
        UsageError: options that do not fit.
    """
    if options.precision != "float32":
        raise UsageError(f"--precision {options.precision} is not supported here: leave it out")

    def make_worker(record: TrainingRecord, batches: Batches, retry: Retry) -> DiLoCoWorker:
        return DiLoCoWorker(record, options, batches, retry)

    return data_parallel.train(scenario, options, make_worker, OuterStepProtection)
