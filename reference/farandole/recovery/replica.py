"""A copy of the model that can be restored to any step of its training.

One step is that of synchronous SGD (`data_parallel.synchronous`), with an optimizer that has a state
and a dropout that draws random numbers. Both belong to the training's state, or it would continue differently.
With float16 (`data_parallel.mixed_precision`) the loss scale does as well. Only the parameters in float32 are kept,
since the others are made from them at each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from farandole import tasks
from farandole.data.batch import Batch
from farandole.data_parallel.accumulation import backward
from farandole.data_parallel.gradient_agreement import GradientAgreement
from farandole.data_parallel.mixed_precision import HalfCopy
from farandole.data_parallel.options import check_precision
from farandole.errors import UsageError
from farandole.model_parallel.zero import ReplicatedOptimizer, ShardedOptimizer
from farandole.models.optimizers import maker
from farandole.recovery.checkpoint import Checkpoint
from farandole.recovery.options import ReplicaOptions
from farandole.recovery.state import TrainingState, misfit_of
from farandole.runtime import devices
from farandole.runtime.buffers import FlatBuffers, buffers_as_bytes, set_buffers
from farandole.runtime.world import World

REMEMBERED = "optimizer/"  # prefix of the names of the optimizer's state
AGREEMENT = "agreement of gradients"
SCALE = "loss scale"


class Replica:
    """This rank's copy, trained in step with those of all other ranks.

    Args:
        sharded: divide the optimizer; in float32 only, for no rank would see whether the whole gradient is finite.
        adapts: the quantity that the learning rate follows: "loss", "gradients", or "" for a fixed rate.

    Attributes:
        model: what is evaluated.
        half: the copy that computes in 16 bits; None in float32.
        agreement: agreement of successive mean gradients, if the learning rate follows them; else None.
    """

    def __init__(self, world: World, options: ReplicaOptions, sharded: bool = False, adapts: str = "") -> None:
        self.world, self.options, self.sharded = world, options, sharded
        self.task = tasks.of(options)
        self.model = self.task.model().to(world.device)
        self.dropout = nn.Dropout(options.input_dropout)
        self.flat = FlatBuffers(self.model)
        check_precision(options)
        half = options.precision != "float32"
        layers = options.float32_layers
        self.half = HalfCopy(self.model, self.task.loss, self.flat, options.precision, None, layers) if half else None
        self.agreement = GradientAgreement(self.flat.values) if adapts == "gradients" else None
        self._accepted = self.flat.values.clone() if adapts == "loss" else None
        self.optimizer = self._make_optimizer()
        devices.seed_rank(options.seed, world.rank, 0)
        self.values: dict[str, Any] = {"lr": options.lr}  # kept beside the tensors
        self._before: tuple[int, dict[str, Tensor]] = -1, {}

    def regroup(self) -> None:
        """Reduce over the ranks of `world.comm`, which have changed. A divided optimizer is void until `restore`."""
        if self.sharded:
            self.optimizer = self._make_optimizer()
        self.optimizer.comm = self.world.comm

    def begin(self, step: int) -> None:
        """Begin `step`; if it is taken again after `rewind`, it draws the same random numbers."""
        self._before = step, self._own()

    def rewind(self, step: int) -> None:
        """Be ready to take `step`, which may have begun but has not changed the parameters."""
        self.flat.zero_gradients()
        begun, own = self._before
        if begun == step:
            self._set_own(own)

    def step(self, batch: Batch, share: float) -> float:
        """Take one step on this rank's part of the batch; return its mean loss."""
        loss = self.gradient(batch, share)
        self.optimizer.step()
        return loss

    def gradient(self, batch: Batch, share: float) -> float:
        """Compute the gradient of this rank's part of the batch, for `optimizer` to add up; return its mean loss.

        Args:
            share: this part's share of the whole batch.
        """
        with self.world.compute("forward and backward"):
            batch = without_some_inputs(batch, self.dropout)
            if self.half:
                return self.half.gradient(batch, share, self.options.accumulate).item()
            loss = backward(partial(self.task.loss, self.model), batch, share, self.options.accumulate)
            return loss.item()

    def state(self, step: int) -> TrainingState:
        """Return all that decides how the training goes on with `step`; the tensors are the originals."""
        remembered = {f"{REMEMBERED}{name}": tensor for name, tensor in self.optimizer.optimizer.state.items()}
        shared, own = {"parameters": self.flat.values}, self._own()
        (own if self.sharded else shared).update(remembered)
        return TrainingState(step, shared | self._kept_for_the_rate(), own, self.values | self._scale() | self._sums())

    def restore(self, saved: Checkpoint) -> None:
        """Load the checkpoint `saved`, also if another number of ranks has saved it.

        Raises:
            UsageError: the checkpoint belongs to another training.
        """
        same = saved.ranks == self.world.comm.size
        own = saved.own.get(self.world.comm.rank, {}) if same else {}
        shared = saved.shared | self._remembered(saved)
        state = TrainingState(saved.step, shared, own, saved.values)
        ours = self.state(saved.step)
        all_shared = ours.shared | {name: tensor for name, tensor in ours.own.items() if name.startswith(REMEMBERED)}
        misfit = misfit_of(state, replace(ours, shared=all_shared, own=self._own()), with_own=same)
        if misfit:
            raise UsageError(
                f"the checkpoint in slot-{saved.slot} belongs to another training ({misfit}): "
                "put back the folder's own checkpoints, or give another --out"
            )
        self.adopt(state)
        if same:
            self._set_own(own)
        else:
            self.set_statistics(saved.own.get(self.world.comm.rank % max(1, saved.ranks), {}))
            devices.seed_rank(self.options.seed, self.world.rank, saved.step)

    def adopt(self, state: TrainingState) -> None:
        """Copy what all ranks have in common from `state`, and keep what is this rank's own."""
        self.flat.values.copy_(state.shared["parameters"])
        for name, tensor in self.optimizer.optimizer.state.items():
            tensor.copy_(state.shared[f"{REMEMBERED}{name}"])
        for name, tensor in self._kept_for_the_rate().items():
            tensor.copy_(state.shared[name])
        self.values = dict(state.values)
        if self.agreement:
            self.agreement.restore(self.values[AGREEMENT])
        if self.half and self.half.scale:
            self.half.scale.restore(self.values[SCALE])
        self.set_rate(self.values["lr"])

    def set_rate(self, lr: float) -> None:
        """Learn with this rate from now on."""
        self.values["lr"] = self.optimizer.optimizer.lr = lr

    def accept(self) -> None:
        """Keep the present parameters as those to which `undo` returns."""
        if self._accepted is not None:
            self._accepted.copy_(self.flat.values)

    def undo(self) -> None:
        """Return to the parameters that were accepted last, and clear the optimizer's memory."""
        assert self._accepted is not None
        self.flat.values.copy_(self._accepted)
        for tensor in self.optimizer.optimizer.state.values():
            tensor.zero_()

    def _kept_for_the_rate(self) -> dict[str, Tensor]:
        if self.agreement:
            return {"past gradient": self.agreement.past}
        return {} if self._accepted is None else {"accepted": self._accepted}

    def _sums(self) -> dict[str, Any]:
        return {AGREEMENT: self.agreement.state()} if self.agreement else {}

    def _look_at_the_gradient(self) -> bool:
        """Decide from the gradient, already summed over the ranks, whether to take the step."""
        taken = self.half.accept() if self.half else True
        if taken and self.agreement:
            self.agreement.note(self.flat.gradients)
        return taken

    def _remembered(self, saved: Checkpoint) -> dict[str, Tensor]:
        """Return a divided optimizer's state, joined from all ranks' parts and cut for this rank."""
        if not self.sharded:
            return {}
        count = len(self.flat.values)
        order = sorted(saved.own, key=lambda rank: ShardedOptimizer.part_of(count, rank, saved.ranks).start)
        remembered = {}
        for name, ours in ((f"{REMEMBERED}{name}", ours) for name, ours in self.optimizer.optimizer.state.items()):
            pieces = [saved.own[rank][name] for rank in order if name in saved.own[rank]]
            if len(pieces) < saved.ranks or any(piece.dim() != ours.dim() for piece in pieces):
                continue
            is_count = ours.dim() == 0  # of steps: the same for all parts
            whole = pieces[0] if is_count else torch.cat(pieces)
            if is_count or len(whole) == count:
                remembered[name] = whole if is_count else whole[self.optimizer.part(count)]
        return remembered

    def _make_optimizer(self) -> ReplicatedOptimizer:
        kind = ShardedOptimizer if self.sharded else ReplicatedOptimizer
        make = maker(self.options.optimizer, self.options.lr)
        return kind(self.world, self.world.comm, self.flat, make, accept=self._look_at_the_gradient)

    def _scale(self) -> dict[str, Any]:
        return {SCALE: self.half.scale.state()} if self.half and self.half.scale else {}

    def _own(self) -> dict[str, Tensor]:
        """Return what is this rank's alone: its random generators, and its statistics, as BatchNorm's."""
        return devices.random_states(self.world.device) | buffers_as_bytes(self.model)

    def set_statistics(self, states: Mapping[str, Tensor]) -> None:
        """Set the model's buffers, as BatchNorm's statistics, to those in `states`, of `buffers_as_bytes`."""
        set_buffers(self.model, states)
        if self.half:
            self.half.adopt_statistics()

    def _set_own(self, states: Mapping[str, Tensor]) -> None:
        self.set_statistics(states)
        devices.set_random_states(states, self.world.device)


def without_some_inputs(batch: Batch, dropout: nn.Dropout) -> Batch:
    """Return a batch (inputs, targets) with dropout applied to the inputs; numbers of characters cannot be scaled."""
    if not dropout.p:
        return batch
    inputs, targets = batch
    return (dropout(inputs) if inputs.is_floating_point() else inputs), targets
