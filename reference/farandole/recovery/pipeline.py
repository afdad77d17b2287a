"""A pipeline whose stage dies is restored from its buddy's memory; one stage of it, a `Trainable`.

A stage's parameters and its optimizer's state are on no other rank. So every k steps each stage copies them, and sends
a copy to the next stage in the ring (`buddies`; the last sends it to the first).
When a rank dies all work under way is discarded: micro-batches, activations and gradients. A spare takes the slot, with
the dead stage's state from its buddy. All stages go back to the step of the copies, and take the same steps again. The
parameters end bitwise equal to those of an undisturbed run.

    lost        at most k steps, which are repeated
    no spare    the job ends: the other stages hold other layers
    two deaths  of a stage and its buddy at once, before they have exchanged new copies: from the disk

Copies need not be consistent with messages, since the flush leaves no message under way between two steps. PipeDream
never flushes; there the versions of the parameters and the batches under way would belong to the state, so it is
refused.

Cost per backup: a copy in memory, and a message for each tensor, of the stage's parameters and its optimizer's state,
(1 + s) times the parameters' bytes with s numbers remembered for each (`model_parallel.memory`). Memory
for two generations of it, the stage's own and its ward's. Source: Zheng, Shi & Kalé, "FTC-Charm++", 2004; for large
models Wang et al., "GEMINI: fast failure recovery in distributed training with in-memory checkpoints", 2023.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from farandole.model_parallel.layer_split import Plan
from farandole.model_parallel.layout import Layout
from farandole.model_parallel.parts import Parts
from farandole.model_parallel.training import Losses, finish, take_step, write_plan
from farandole.recovery.heartbeat import Heart
from farandole.recovery.membership import Membership
from farandole.recovery.options import PipelineBackupOptions
from farandole.recovery.protection import Unrecoverable
from farandole.recovery.replica import REMEMBERED
from farandole.recovery.state import TrainingState
from farandole.recovery.training_record import TrainingRecord
from farandole.runtime.record import Summary


class PipelineStage:
    """One member's stage, if it is no spare.

    Attributes:
        workers: the rank of each stage.
        parts: this rank's stage; None on a spare, and until it is restored.
    """

    def __init__(
        self,
        record: TrainingRecord,
        options: PipelineBackupOptions,
        layout: Layout,
        membership: Membership,
        heart: Heart,
    ) -> None:
        self.record, self.world, self.options, self.layout = record, record.world, options, layout
        self.membership, self.heart, self.steps = membership, heart, options.steps
        self.workers = membership.view.workers
        self.losses = Losses(options.steps, record.recorder)
        self.parts: Parts | None = None

    def prepare(self) -> None:
        """Cut the model, and send each worker its stage."""
        if self.membership.slot is not None:
            self.parts = Parts(self.world, self.options, self.layout)
            write_plan(self.parts, self.record.recorder)

    def step(self, step: int, secure: Callable[[], None]) -> None:
        """Take all micro-batches of a batch through the pipeline, and update all stages."""
        self.world.begin_step(step)
        secure()
        take_step(self._parts, step, self.losses)

    def account(self, step: int) -> bool:
        """Return False: losses are exchanged at the end only."""
        return False

    def regroup(self) -> None:
        """Discard all work under way, and check that every stage has a rank.

        Raises:
            Unrecoverable: a stage has none.
        """
        if self.parts:
            self.parts.pipeline.abandon()
            self.parts = None
        before, self.workers = self.workers, self.membership.view.workers
        if missing := len(before) - len(self.workers):
            dead = [slot for slot, rank in enumerate(before) if rank in self.membership.lost]
            whose = " and ".join(f"stage {slot} (rank {before[slot]})" for slot in dead[-missing:])
            raise Unrecoverable(
                f"no spare is left for {whose}, and a pipeline cannot do without: "
                f"give --spares {self.options.spares + missing} or more"
            )

    def restore(self, state: TrainingState) -> None:
        """Be the stage that `state` is of, between two steps."""
        with self.heart.resting():  # a rank that has not loaded the data does so now
            self.parts = Parts(self.world, self.options, self.layout, Plan.from_json(state.values["plan"]))
        for name, tensor in self.state(state.step).own.items():
            tensor.copy_(state.own[name])

    def resume(self, step: int, first_line: int) -> None:
        """Go to `step` in the data. The rank that leads at the end writes all lines, from the last stage's losses."""
        self._parts.shard.go_to(step)
        if self.record.leads:
            self.record.recorder.take_over(self.record.folder)
            self.record.recorder.go_on_from(first_line)

    def finish(self) -> Summary | None:
        """Gather the model on the rank that leads, evaluate it, and write the record."""
        root = self.workers.index(self.membership.view.coordinator)
        return finish(self._parts, self.record.recorder, self.losses, root, self.record.faults)

    def state(self, step: int) -> TrainingState:
        """Return all that decides how this stage continues with `step`; the tensors are the originals.

        Nothing in a stage draws random numbers, and its data follows from the step.
        """
        parts = self._parts
        own: dict[str, Tensor] = {"parameters": parts.flat.values}
        own |= {f"{REMEMBERED}{name}": tensor for name, tensor in parts.optimizer.optimizer.state.items()}
        if parts.last in parts.pieces:
            own |= {"losses": torch.from_numpy(self.losses.weighted), "times": torch.from_numpy(self.losses.wall_s)}
        return TrainingState(step, {}, own, {"plan": parts.plan.to_json()})

    @property
    def _parts(self) -> Parts:
        assert self.parts is not None
        return self.parts
