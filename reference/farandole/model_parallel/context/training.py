"""Training the language model with every sequence divided over all ranks.

Each step every rank draws the same samples and takes its own positions of them, forward and backward. The gradients are
added up as in data parallel, and every rank takes the same step: the parameters stay the same bits on all ranks, and
are those of the unsplit model, but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import torch
from torch import nn

from farandole import tasks
from farandole.data_parallel.evaluation import judged
from farandole.distributed_checkpoint import saving
from farandole.distributed_checkpoint.optimizer_state import of_trained
from farandole.distributed_checkpoint.pieces import Local, Piece
from farandole.model_parallel.batches import Shard
from farandole.model_parallel.context.exchange import ContextGroup
from farandole.model_parallel.context.options import ContextOptions
from farandole.model_parallel.context.placement import PLACEMENTS
from farandole.model_parallel.context.split import context_of, share, split_model
from farandole.model_parallel.context.traffic import activation_bytes
from farandole.model_parallel.context.ulysses import check_heads
from farandole.model_parallel.memory import ActivationMeter, Memory
from farandole.model_parallel.parts import DTYPES
from farandole.model_parallel.training import Losses
from farandole.model_parallel.zero import ReplicatedOptimizer
from farandole.models.optimizers import maker
from farandole.models.training_state import STATE_PER_PARAMETER
from farandole.models.transformer import heads_of
from farandole.runtime.buffers import FlatBuffers, sha256
from farandole.runtime.progress import progress
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


class ContextTraining:
    """One rank's model, its positions of the data, and a step.

    Args:
        world: all ranks share each sequence.

    Attributes:
        whole: the unsplit model, whose parameters are trained.
        model: what this rank computes with; it has the same parameters.

    Raises:
        UsageError: the model has no sequence, or its positions or heads cannot be divided.
    """

    def __init__(self, world: World, options: ContextOptions) -> None:
        self.world, self.options = world, options
        self.task = tasks.built_in(options)
        self.criterion = tasks.criterion_of(self.task)
        self.splits = self.task.data(options.seed)
        dtype = DTYPES[options.precision]
        self.whole = self._whole(dtype).to(world.device)
        context = context_of(self.whole)
        if options.attention == "ulysses":
            check_heads(heads_of(options.hidden), world.size)
        by_position = "contiguous" if options.attention == "ulysses" else options.placement
        placement = PLACEMENTS[by_position](context, world.size)
        self.group = ContextGroup(world.comm, placement, world)
        self.model = split_model(self.whole, self.group, options.attention)
        self.flat = FlatBuffers(self.whole)
        self.optimizer = ReplicatedOptimizer(
            world, world.comm, self.flat, maker(options.optimizer, options.lr), "context group"
        )
        self.meter = ActivationMeter(self.whole.parameters())
        self.shard = Shard(
            self.splits.train,
            len(self.splits.train),
            batch=options.batch,
            pipelines=1,
            number=0,
            seed=options.seed,
            dtype=dtype,
            device=world.device,
        )

    def step(self) -> float:
        """Take one step; return this rank's part of the loss, of which the sum over all ranks is the loss."""
        positions = self.group.positions(self.world.device)
        inputs, targets = (each[:, positions] for each in self.shard.batch(next(self.shard.sampler)))
        with self.world.compute("forward"), self.meter.watching():
            self.meter.hold(inputs)
            loss = self.criterion(self.model(inputs), targets) * share(self.group)
        with self.world.compute("backward"):
            loss.backward()
        self.optimizer.step()
        self.meter.active = False  # every step holds as much as the first
        return loss.item()

    def memory(self) -> dict[str, dict[str, int | None]]:
        """Return what this rank has held, in bytes: "measured", and by "formula"."""
        size = self.flat.values.nbytes
        measured = Memory(size, self.flat.gradients.nbytes, self.optimizer.state_bytes(), self.meter.most)
        with torch.device("meta"):
            unsplit = self._whole(self.flat.values.dtype)
        activations = activation_bytes(
            self.options.attention, unsplit, self.shard.largest_batch, self.group.placement, self.group.rank
        )
        formula = Memory(size, size, STATE_PER_PARAMETER[self.options.optimizer] * size, activations)
        return {"measured": asdict(measured), "formula": asdict(formula)}

    def pieces(self) -> Iterator[Piece]:
        """Return what this rank holds, for a checkpoint: all of the unsplit model, which rank 0 saves."""
        everything, is_first = slice(0, len(self.flat.values)), self.world.rank == 0
        tensors = [Local.undivided(name, each, is_first) for name, each in self.whole.named_parameters()]
        return of_trained(tensors, self.flat.values, self.optimizer.optimizer, everything)

    def roles(self) -> list[str]:
        """Return the positions of each rank."""
        return [
            "positions " + " and ".join(f"{part.start} to {part.stop - 1}" for part in parts)
            for parts in self.group.placement
        ]

    def _whole(self, dtype: torch.dtype) -> nn.Sequential:
        model = self.task.model().to(dtype)
        assert isinstance(model, nn.Sequential)  # of a built-in task
        return model


def train(scenario: str, options: ContextOptions) -> Summary | None:
    """Train, evaluate and write the record; return the summary on rank 0, None elsewhere."""
    with World.start(options) as world:
        training = ContextTraining(world, options)
        saving.begin(options, training.pieces, [training.optimizer.optimizer], world.control)
        recorder, steps = Recorder(world, scenario, options), options.steps
        losses = Losses(steps, recorder)
        recorder.start()
        for step in progress(world.steps(steps), steps, world.rank):
            losses.add(step, training.step())
        recorder.stop()
        saving.end(options, training.pieces, training.optimizer.optimizer, world.control)
        test, first = training.splits.test, world.rank == 0
        return recorder.finish(
            steps=steps,
            samples=sum(map(training.shard.whole, range(steps))),
            final_loss=losses.add_up(world, training.shard),
            test_metrics=judged(training.whole, test, world.device, training.task.metrics) if first else None,
            params_sha256=sha256(training.whole),
            memory=training.memory(),
            roles=training.roles() if world.size > 1 else [],
        )
