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

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from farandole.errors import UsageError
from farandole.model_parallel.layer_split import Plan
from farandole.model_parallel.parts import Layout, Parts
from farandole.model_parallel.training import Losses, finish, take_step, write_plan
from farandole.models import choices
from farandole.recovery.buddies import Buddies
from farandole.recovery.fault_tolerant_training import FaultTolerantTraining, Unrecoverable
from farandole.recovery.on_disk import OnDisk
from farandole.recovery.options import PipelineBackupOptions
from farandole.recovery.replica import REMEMBERED
from farandole.recovery.state import TrainingState
from farandole.runtime.record import Summary
from farandole.runtime.world import World

BACKUP_EVERY, CHECKPOINT_EVERY = 5, 50  # steps, where only spares are asked for
FOR_TWO = 2  # spares that a stage and its buddy take when they come back from the disk


class BackedUpPipeline(FaultTolerantTraining):
    """One member's part in it: a stage, or a spare.

    Attributes:
        workers: which rank has which stage.
        parts: the own stage; None for who waits, or is being restored.
    """

    def __init__(self, world: World, scenario: str, options: PipelineBackupOptions, layout: Layout) -> None:
        super().__init__(world, scenario, options)
        self.options, self.layout = options, layout
        self.workers = self.membership.view.workers
        self.buddies = Buddies(options.backup_every or BACKUP_EVERY)
        usual = CHECKPOINT_EVERY if options.spares >= FOR_TWO else 0
        every = usual if options.checkpoint_every is None else options.checkpoint_every
        self.on_disk = OnDisk(world, self.folder, every)
        self.losses = Losses(options.steps, self.recorder)
        self.parts: Parts | None = None

    def _set_up(self) -> None:
        if self.membership.slot is not None:
            self.parts = Parts(self.world, self.options, self.layout)
            write_plan(self.parts, self.recorder)

    def _train(self) -> None:
        first = self.step
        for step in range(first, self.options.steps):
            if self.buddies.due(self.world.comm, step):
                with self.world.communicate("backup"):
                    self.buddies.save(self.world.comm, self._state(step))
            if self.on_disk.due(step):
                self.on_disk.save(self._state(step), self.membership.view.number)
            self.world.begin_step(step)
            take_step(self._parts, step, self.losses)
            self.step = step + 1
            if step == first:
                self._note_first(step)

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
        self.on_disk.abandon()
        before, self.workers = self.workers, self.membership.view.workers
        if missing := len(before) - len(self.workers):
            dead = [slot for slot, rank in enumerate(before) if rank in self.membership.lost]
            whose = " and ".join(f"stage {slot} (rank {before[slot]})" for slot in dead[-missing:])
            raise Unrecoverable(
                f"no spare is left for {whose}, and a pipeline cannot do without: "
                f"give --spares {self.options.spares + missing} or more"
            )

    def _be_alike(self) -> int:
        """Go back to the last backup of which every part is alive, or to the last one on disk; returns its step."""
        state = self.buddies.recover_own(self.world.comm)
        if state is None:
            state = self._from_disk()
        with self.heart.resting():  # who has not had the data loads them
            self.parts = Parts(self.world, self.options, self.layout, Plan.from_json(state.values["plan"]))
        self.parts.shard.go_to(state.step)
        for name, tensor in self._state(state.step).own.items():
            tensor.copy_(state.own[name])
        return state.step

    def _take_over_the_record(self) -> None:
        """All losses are written at the end, by whoever leads then: the last stage has them, and its buddy."""
        if self.membership.leads:
            self.recorder.take_over(self.folder)
            self.recorder.go_on_from(0)

    def _state(self, step: int) -> TrainingState:
        """All that decides how this stage goes on with `step`; the tensors are the originals.

        Nothing in a stage draws random numbers, and its data follows from the step.
        """
        parts = self._parts
        own: dict[str, Tensor] = {"parameters": parts.flat.values}
        own |= {f"{REMEMBERED}{name}": tensor for name, tensor in parts.optimizer.optimizer.state.items()}
        if parts.last in parts.pieces:
            own |= {"losses": torch.from_numpy(self.losses.weighted), "times": torch.from_numpy(self.losses.wall_s)}
        return TrainingState(step, {}, own, {"plan": parts.plan.to_json()})

    def _from_disk(self) -> TrainingState:
        """This stage's state in the newest whole checkpoint.

        Raises:
            Unrecoverable: there is none.
        """
        found = self.on_disk.newest()
        if found is None:
            raise Unrecoverable(f"{self._what_is_gone()}, and no whole checkpoint is on disk: start again")
        self.buddies.forget_after(found.step)
        if self.membership.leads:
            print(f"{self._what_is_gone()}: back to the checkpoint of step {found.step}", file=sys.stderr)
        return found.of_rank(self.world.comm.rank)

    def _what_is_gone(self) -> str:
        stages = len(self.workers)
        if not self.buddies.gone:
            return "nobody who is left has a copy of any stage"
        copies = (f"stage {slot}, which its buddy, stage {(slot + 1) % stages}," for slot in self.buddies.gone)
        return f"no copy is left of {' and of '.join(copies)} would have had"

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
