"""Backup recovery around a loop of the user's own: when a rank dies, the others continue the loop.

The steps are those of `synchronous`. Every k steps each rank keeps a copy of the state (`recovery.backup`): the model,
what the optimizer and the objects given to `OwnLoop.keep` remember, and in the memory of its buddy what is its alone,
its random numbers and its BatchNorm statistics. When a rank dies:

    in the loop's body     the calls that need the dead rank do nothing, and the body runs to its end
    at the next batch      the ranks left agree on who they are (`recovery.membership`), and go back to the last backup
    from there             the loop sees the batches since then again; a spare has the dead rank's place, or the others
                           divide its work

So the body may run more than once for a step. What it changes outside the model, the optimizer and what is kept stays
changed. With a spare the parameters at the end are bitwise those of an undisturbed run.

    mpirun --with-ft ulfm -n 5 python my_program.py

Cost: that of `recovery.backup`, and a copy of the first state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from cyclopts import Parameter
from mpi4py import MPI
from torch import Tensor, nn

from farandole.data_parallel.loss_log import LossLog
from farandole.errors import UsageError
from farandole.own_loop.loop_method import ENDLESS
from farandole.own_loop.synchronous import DistributedOptimizer, Synchronous
from farandole.own_loop.trees import flatten, unflatten
from farandole.recovery.backup import BackupProtection
from farandole.recovery.checkpoint import Checkpoint
from farandole.recovery.fault_tolerant_training import FaultTolerantSteps, check, form_members
from farandole.recovery.membership import Membership
from farandole.recovery.options import FaultTolerantOptions, KeepingOptions
from farandole.recovery.protected_training import ProtectedSteps
from farandole.recovery.state import TrainingState, copied
from farandole.recovery.training_record import TrainingRecord
from farandole.runtime import devices
from farandole.runtime.buffers import buffers_as_bytes, set_buffers
from farandole.runtime.failure import PeerLost
from farandole.runtime.world import World


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ProtectedOptions(KeepingOptions, FaultTolerantOptions):
    """The steps between two copies of the state, and the spares."""


class Stateful(Protocol):
    """An object with a state that lasts from step to step."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any: ...


class Protected(Synchronous):
    """All ranks take each step together, and those left continue when one has died."""

    name = "backup"
    Options = ProtectedOptions
    passes_on = True

    def __init__(self, world: World, options: ProtectedOptions) -> None:
        super().__init__(world, options)
        self.kept: list[Stateful] = []
        self.membership: Membership | None = None
        self._lost: PeerLost | MPI.Exception | None = None
        self._is_over = False

    def begin(self) -> None:
        check(self.world, self.options)
        self.record = TrainingRecord(self.world, self.scenario, self.options)
        self.recorder = self.record.recorder
        self.losses = LossLog(self.world, self.recorder, ENDLESS)

    @property
    def slot(self) -> tuple[int, int]:
        if self.membership is None:
            return self.world.rank, self.world.size - self.options.spares
        return self.membership.slot or 0, self.world.comm.size

    def keep(self, objects: Sequence[Stateful]) -> None:
        self.kept += objects

    def steps(self, first: int, count: int) -> Iterator[int]:
        """Yield each step, again those that are lost with a rank; on a spare only those that it is needed for."""
        if first:
            raise UsageError("one call of batches with backup: give it epochs=")
        if self.model is None or not self.optimizers:
            raise UsageError("backup needs loop.share(model) and loop.optimizer(…) before the first batch")
        self._check(self.options.backup_every)
        state = OwnState(self.world, self.model, self.optimizers, self.kept, self.options.seed)
        heart, self.membership = form_members(self.record, self.options)
        worker = OwnWorker(self.record, state, self.losses, count)
        protection = BackupProtection(self.record, worker, self.membership, self.options)
        self.secure = protection.secure  # type: ignore[method-assign]
        members = FaultTolerantSteps(heart, self.membership, ProtectedSteps(self.record, worker, protection))
        heart.start()
        try:
            yield from self._steps_with_those_left(members)
        finally:
            heart.stop()

    def together(self, call: Callable[[], None]) -> bool:
        if self._lost is None:
            try:
                call()
            except (PeerLost, MPI.Exception) as error:
                self._lost = error
        return self._lost is None

    def log(self, step: int, loss: float, share: float, samples: int, also: dict[str, float]) -> None:
        self.together(lambda: self.losses.add(step, loss, share, samples, **also))

    def finish(self, following: int) -> dict[str, Any] | None:
        """Write the lines that are left; None on a spare that was not needed."""
        if self.membership is None:
            return self.written(following)
        if self.membership.slot is None:
            return None
        if not self._is_over:  # the loop was left before its end, on all ranks
            self.membership.conclude()
        found = self.written(following)
        return found | {"faults": self.record.faults, "joined": self.record.joined}

    def _steps_with_those_left(self, members: FaultTolerantSteps) -> Iterator[int]:
        while True:
            try:
                if not members.enter():
                    return
                for step in members.training:
                    yield step
                    self.computing(None)
                    if lost := self._lost:
                        self._lost = None
                        raise lost
                members.membership.conclude()
                self._is_over = True
                return
            except (PeerLost, MPI.Exception) as cause:
                self.computing(None)
                members.recover(cause)

    def _check(self, every: int) -> None:
        for optimizer in self.optimizers:
            if every % optimizer.every:
                raise UsageError(
                    f"backup_every={every} is between two steps of an optimizer with every={optimizer.every}: "
                    f"give a multiple of {optimizer.every}"
                )


class OwnState:
    """The state of a loop of the user's own: a `Restorable`."""

    def __init__(
        self,
        world: World,
        model: nn.Module,
        optimizers: Sequence[DistributedOptimizer],
        kept: Sequence[Stateful],
        seed: int,
    ) -> None:
        self.world, self.model, self.optimizers, self.seed = world, model, optimizers, seed
        self.stateful: list[Stateful] = [*optimizers, *kept]
        first = self.state(0)
        self._first = Checkpoint(0, 0, 0, copied(first.shared, {}), {}, first.values)

    def state(self, step: int) -> TrainingState:
        """Return all that decides how the loop continues with `step`; the tensors are the originals."""
        shared: dict[str, Tensor] = {f"model/{name}": each.data for name, each in self.model.named_parameters()}
        forms = [flatten(each.state_dict(), f"kept/{n}", shared) for n, each in enumerate(self.stateful)]
        return TrainingState(step, shared, self._own(), {"forms": forms})

    def restore(self, saved: Checkpoint) -> None:
        """Load the state `saved`, also if another number of ranks has saved it."""
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(saved.shared[f"model/{name}"])
        for each, form in zip(self.stateful, saved.values["forms"], strict=True):
            each.load_state_dict(unflatten(form, saved.shared))
        slot, is_same = self.world.comm.rank, saved.ranks == self.world.comm.size
        set_buffers(self.model, saved.own.get(slot % max(1, saved.ranks), {}))
        if is_same:
            devices.set_random_states(saved.own[slot], self.world.device)
        else:
            devices.seed_rank(self.seed, self.world.rank, saved.step)

    def rewind(self, step: int) -> None:
        """Forget the gradients of steps that do not count."""
        for optimizer in self.optimizers:
            optimizer.forget()

    def begin_anew(self) -> None:
        """Be as before the first step."""
        self.restore(self._first)
        self.rewind(0)
        devices.seed_rank(self.seed, self.world.comm.rank, 0)

    def _own(self) -> dict[str, Tensor]:
        """Return what is this rank's alone: random numbers, and the model's buffers as bytes."""
        return devices.random_states(self.world.device) | buffers_as_bytes(self.model)


class OwnWorker:
    """One rank's part of the loop: a `Resumable` whose steps the user takes, and a `Worker` of `recovery.backup`."""

    def __init__(self, record: TrainingRecord, replica: OwnState, losses: LossLog, steps: int) -> None:
        self.record, self.replica, self.losses, self.steps = record, replica, losses, steps

    def prepare(self) -> None:
        """Do nothing: all is prepared."""

    def account(self, step: int) -> bool:
        """Return that nothing was exchanged but losses, which the loop itself logs."""
        return False

    def regroup(self) -> None:
        """Do nothing: the optimizers reduce over the ranks that are there."""

    def resume(self, step: int, first_line: int) -> None:
        """Have the leading rank write the record's next lines."""
        with self.record.world.comm.waiting("how far the others have come", -1):
            self.record.take_over(self.losses, step, first_line)

    def begin_anew(self) -> None:
        """Be as before the first step."""
        self.replica.begin_anew()
        self.losses.adopt(0, [])
