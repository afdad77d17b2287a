"""Training the language model with its experts divided over all ranks, and everything else replicated.

Each step every rank draws the same batch and takes its own samples of it. Its loss counts with its share of them, so
that the gradients of all ranks add up to that of the whole batch:

    shared parameters     added up by an all-reduce, as in data parallel; every rank takes the same step
    an expert             its rank has computed with the rows of all ranks, and their gradients have come back to it:
                          the sum is there, with nothing to divide. Only this rank moves it

So the training is that of one process with the same batches, but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

import numpy as np
import torch
from mpi4py import MPI
from torch import nn

from farandole import tasks
from farandole.data.shares import equal_shares, slices
from farandole.data_parallel.evaluation import judged
from farandole.distributed_checkpoint import saving
from farandole.distributed_checkpoint.optimizer_state import of_trained
from farandole.distributed_checkpoint.pieces import Local, Piece
from farandole.errors import UsageError
from farandole.model_parallel.batches import Shard
from farandole.model_parallel.expert import traffic
from farandole.model_parallel.expert.exchange import ExpertGroup
from farandole.model_parallel.expert.model import gather, mixtures, named_among_all, parts, with_experts
from farandole.model_parallel.expert.options import ExpertOptions
from farandole.model_parallel.expert.plan import Plan
from farandole.model_parallel.memory import ActivationMeter, Memory
from farandole.model_parallel.parts import DTYPES
from farandole.model_parallel.training import Losses
from farandole.model_parallel.zero import ReplicatedOptimizer
from farandole.models.optimizers import SGD, maker
from farandole.runtime.buffers import FlatBuffers, sha256
from farandole.runtime.progress import progress
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


class ExpertTraining:
    """One rank's part of the model, its samples of each batch, and a step.

    Args:
        world: all ranks divide the experts.

    Attributes:
        model: all but the experts, and this rank's experts.
        mixtures: of the model, in order of the blocks.
        shared, own: the parameters that all ranks have, and those of this rank's experts.
        balance_loss: this rank's part of the last step's balancing loss, over all blocks.

    Raises:
        UsageError: the model has no feed-forward networks, the experts are too few, or the batch is.
    """

    def __init__(self, world: World, options: ExpertOptions) -> None:
        self.world, self.options = world, options
        self.task = tasks.built_in(options)
        self.criterion = tasks.criterion_of(self.task)
        self.splits = self.task.data(options.seed)
        dtype = DTYPES[options.precision]
        self.group = ExpertGroup(world.comm, options.experts, world)
        self.model = with_experts(self._unsplit(), options, self.group).to(world.device)
        self.mixtures = mixtures(self.model)
        self.shared, self.own = (FlatBuffers(each) for each in parts(self.model))
        make = maker(options.optimizer, options.lr)
        self.optimizer = ReplicatedOptimizer(world, world.comm, self.shared, make, "expert group")
        self.experts_optimizer = make(self.own.values, self.own.gradients)
        self.meter = ActivationMeter(self.model.parameters())
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
        if self.shard.smallest_batch < world.size:
            raise UsageError(
                f"--batch {options.batch} leaves some of {world.size} ranks without a sample: "
                f"give at least {world.size + 1}"
            )
        self.balance_loss = 0.0
        self._first: tuple[int, list[Plan]] | None = None  # samples and plans of the step whose memory is counted

    def step(self) -> float:
        """Take one step; return this rank's part of the task's loss, of which the sum over all ranks is the loss."""
        batch = next(self.shard.sampler)
        rows = batch[slices(equal_shares(len(batch), self.world.size))[self.world.rank]]
        inputs, targets = self.shard.batch(rows)
        with self.world.compute("forward"), self.meter.watching():
            self.meter.hold(inputs)
            loss = self.criterion(self.model(inputs), targets) * (len(rows) / len(batch))
            balance = torch.stack([each.balance_loss for each in self.mixtures]).sum()
        with self.world.compute("backward"):
            (loss + self.options.balance * balance).backward()
        with self.world.compute("update of the experts"):
            self.own.collect()
            self.experts_optimizer.step()
            self.own.zero_gradients()
        self.optimizer.step()
        self.meter.active = False  # the first step is the one whose memory is counted
        self._first = self._first or (len(rows), self.plans)
        self.balance_loss = balance.item()
        return loss.item()

    @property
    def plans(self) -> list[Plan]:
        """Of the last batch, in order of the blocks."""
        return [each.plan for each in self.mixtures if each.plan]

    def routed(self) -> dict[str, float]:
        """Return for the record how the last batch was routed: the share of dropped choices, each expert's of all."""
        plans = self.plans
        chosen = sum(int(plan.chosen.sum()) for plan in plans)
        found = {"dropped": sum(plan.dropped for plan in plans) / chosen}
        for block, plan in enumerate(plans):
            found |= {f"load_{block}_{expert}": float(share) for expert, share in enumerate(plan.shares)}
        return found

    def memory(self) -> dict[str, dict[str, int | None]]:
        """Return what this rank has held, in bytes: "measured", and by "formula"."""
        assert self._first
        samples, plans = self._first
        state = [each for optimizer in self.optimizers for each in optimizer.state.values()]
        measured = Memory(
            self.shared.values.nbytes + self.own.values.nbytes,
            self.shared.gradients.nbytes + self.own.gradients.nbytes,
            sum(each.nbytes for each in state if each.dim()),
            self.meter.most,
        )
        inputs = torch.empty((samples, *self.task.shape), dtype=torch.int64, device="meta")
        formula = traffic.memory(self.model, len(self.shared.values), plans, inputs, self.options.optimizer)
        return {"measured": asdict(measured), "formula": asdict(formula)}

    @property
    def optimizers(self) -> list[SGD]:
        """Return the optimizer of the shared parameters, and that of this rank's experts."""
        return [self.optimizer.optimizer, self.experts_optimizer]

    def pieces(self) -> Iterator[Piece]:
        """Return what this rank holds, for a checkpoint: rank 0 saves what all have, and each rank its experts."""
        names = {id(each): name for name, each in named_among_all(self.model)}
        for number, (own, flat, optimizer) in enumerate(
            zip(parts(self.model), (self.shared, self.own), self.optimizers, strict=True)
        ):
            is_saved = number == 1 or self.world.rank == 0
            tensors = [Local.undivided(names[id(each)], each, is_saved) for each in own]
            yield from of_trained(tensors, flat.values, optimizer, slice(0, len(flat.values)))

    def whole(self) -> nn.Sequential | None:
        """Return the model with all experts on rank 0; None elsewhere. Collective."""
        return gather(self.model, self._unsplit() if self.world.rank == 0 else nn.Sequential(), self.options)

    def roles(self) -> list[str]:
        """Return the experts of each rank."""
        return [
            f"experts {own[0]} to {own[-1]}" if len(own) > 1 else f"expert {own[0]}" if own else "no expert"
            for own in self.group.placement
        ]

    def _unsplit(self) -> nn.Sequential:
        model = self.task.model().to(DTYPES[self.options.precision])
        assert isinstance(model, nn.Sequential)  # of a built-in task
        return model


def train(scenario: str, options: ExpertOptions) -> Summary | None:
    """Train, evaluate and write the record; return the summary on rank 0, None elsewhere."""
    with World.start(options) as world:
        training = ExpertTraining(world, options)
        saving.begin(options, training.pieces, training.optimizers, world.control)
        recorder, steps = Recorder(world, scenario, options), options.steps
        losses, balance = Losses(steps, recorder), np.zeros(steps)
        routed: list[Mapping[str, float]] = []
        recorder.start()
        for step in progress(world.steps(steps), steps, world.rank):
            losses.add(step, training.step())
            balance[step] = training.balance_loss
            routed.append(training.routed())
        recorder.stop()
        saving.end(options, training.pieces, training.optimizers[0], world.control)
        with world.comm.waiting("sum of losses", -1):
            world.control.Allreduce(MPI.IN_PLACE, balance)
        beside = [{**each, "balance_loss": float(balance[step])} for step, each in enumerate(routed)]
        model = training.whole()
        test = training.splits.test
        return recorder.finish(
            steps=steps,
            samples=sum(map(training.shard.whole, range(steps))),
            final_loss=losses.add_up(world, training.shard, beside=beside),
            test_metrics=judged(model, test, world.device, training.task.metrics) if model else None,
            params_sha256=sha256(training.model),
            memory=training.memory(),
            roles=training.roles() if world.size > 1 else [],
        )
