"""A pipeline whose stage dies is restored from its buddy's memory.

In a pipeline nobody else knows what a stage knows: its parameters, and what its optimizer remembers. So every
k steps each stage copies all of that, and gives a copy to the next one in the ring (`buddies`; the last
gives it to the first). When a rank dies, what was under way is thrown away, micro-batches, activations and
gradients alike; a spare takes the slot, with the dead one's state from its buddy; all go back to the
step of the copies, and take the same steps again. The run ends bitwise as if nothing had happened.

    lost        at most k steps, done again
    no spare    a stage cannot be done without: the others hold other layers
    two deaths  of a stage and its buddy at once, before they have shared their copies anew: from the disk

What a stage keeps need not be consistent with messages, since between two steps there are none: that is what
the flush is good for. PipeDream never flushes; there the versions of the parameters and the batches
under way would belong to the state, so it is refused.

Cost per backup: a copy in memory, and a message for each tensor, of the stage's parameters and its optimizer's state,
(1 + s) times the parameters' bytes with s numbers remembered for each (`model_parallel.memory`). Memory
for two generations of it, the own and the ward's. Source: Zheng, Shi & Kalé, "FTC-Charm++", 2004; for large
models Wang et al., "GEMINI: fast failure recovery in distributed training with in-memory checkpoints", 2023.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from farandole.errors import UsageError
from farandole.model_parallel.layer_split import Plan
from farandole.model_parallel.parts import Layout, Parts
from farandole.model_parallel.training import Losses, finish, take_step, write_plan
from farandole.models import choices
from farandole.recovery.fault_tolerant_training import FaultTolerantTraining, Unrecoverable
from farandole.recovery.options import PipelineBackupOptions
from farandole.recovery.replica import REMEMBERED
from farandole.recovery.stage_backup import FOR_TWO, StageBackup
from farandole.recovery.state import TrainingState
from farandole.runtime.record import Summary
from farandole.runtime.world import World


class BackedUpPipeline(FaultTolerantTraining):
    """One member's part in it: a stage, or a spare.

    Attributes:
        workers: which rank has which stage.
        parts: the own stage; None for who waits, or is being restored.
    """

    def __init__(self, world: World, scenario: str, options: PipelineBackupOptions, layout: Layout) -> None:
        super().__init__(world, scenario, options)
        self.options, self.layout, self.steps = options, layout, options.steps
        self.workers = self.membership.view.workers
        self.losses = Losses(options.steps, self.recorder)
        self.parts: Parts | None = None
        self.protection = StageBackup(self)

    def _set_up(self) -> None:
        if self.membership.slot is not None:
            self.parts = Parts(self.world, self.options, self.layout)
            write_plan(self.parts, self.recorder)

    def _step(self, step: int) -> None:
        self.world.begin_step(step)
        take_step(self._parts, step, self.losses)

    def _finish(self) -> Summary | None:
        root = self.workers.index(self.membership.view.coordinator)
        faults = self.event_log.faults() if self.membership.leads else ()
        return finish(self._parts, self.recorder, self.losses, root, faults)

    def _regroup(self) -> None:
        """Throw away what was under way, and see that every stage has a rank.

        Raises:
            Unrecoverable: there is a stage without.
        """
        if self.parts:
            self.parts.pipeline.abandon()
            self.parts = None
        self.protection.regroup()
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
        with self.heart.resting():  # a rank that has not had the data loads them
            self.parts = Parts(self.world, self.options, self.layout, Plan.from_json(state.values["plan"]))
        self.parts.shard.go_to(state.step)
        for name, tensor in self.state(state.step).own.items():
            tensor.copy_(state.own[name])

    def _take_over_the_record(self) -> None:
        """All losses are written at the end, by whoever leads then: the last stage has them, and its buddy."""
        if self.membership.leads:
            self.recorder.take_over(self.folder)
            self.recorder.go_on_from(self.protection.first_line(self.step))

    def state(self, step: int) -> TrainingState:
        """All that decides how this stage goes on with `step`; the tensors are the originals.

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


def train(scenario: str, options: PipelineBackupOptions, layout: Callable[[int], Layout]) -> Summary | None:
    """Train to the end, whoever dies; the summary on the rank that leads then, None elsewhere.

    Args:
        layout: number of stages → how the model is spread over them.

    Raises:
        UsageError: a schedule that does not flush, or what `Parts` and `membership.check` refuse.
        Unrecoverable: a stage has died, and no spare is left; or its buddy with it, and no checkpoint is on disk.
    """
    choices.check(options)
    if not layout(1).schedule.flushes:
        raise UsageError(
            f"--schedule {options.schedule}: batches are always under way, each with its own version of the "
            "parameters, so there is no step to go back to: without --spares, --backup-every and "
            "--checkpoint-every, or a schedule that flushes, as 1f1b"
        )
    if options.checkpoint_every and options.spares < FOR_TWO:
        raise UsageError(
            f"--checkpoint-every is for two stages that die together, and --spares {options.spares} has no places for "
            f"them: give {FOR_TWO} or more"
        )
    with World.start(options) as world:
        return BackedUpPipeline(world, scenario, options, layout(world.size - options.spares)).run()
