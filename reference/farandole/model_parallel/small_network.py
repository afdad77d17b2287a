"""Document 003's example, doing what its text says: a 10-20-1 network, data parallel, then model parallel.

1,000 samples of 10 numbers, batches of 10, SGD with rate 0.01 on the mean squared error, 10 epochs
in each mode, the second going on with what the first has learned. The document's listing cannot
run as it stands (errata 003.8 to 003.10): its data have no targets, and both of its modes are data
parallel. Here the targets come from another network of the same kind, so that there is something
to learn; data parallel is our synchronous SGD; and model parallel cuts the network between its two
linear layers, one on each of two ranks. Other ranks have nothing to do in that half.

Cost per batch: data parallel, one all-reduce of 241 gradients; model parallel, 20 activations of each sample forward
and 20 gradients back.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from mpi4py import MPI
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data.sampler import EpochSampler, batch_size, steps_per_epoch
from farandole.data.shares import equal_shares, slices
from farandole.data_parallel.synchronous import SynchronousSGD
from farandole.errors import UsageError
from farandole.model_parallel import layer_split
from farandole.model_parallel.executor import Pipeline
from farandole.model_parallel.layer_split import Plan
from farandole.model_parallel.schedules.naive import NAIVE
from farandole.model_parallel.stage import Stage
from farandole.models.optimizers import maker
from farandole.runtime.buffers import FlatBuffers, sha256
from farandole.runtime.communicator import Communicator
from farandole.runtime.options import RunOptions
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World
from farandole.tasks import of_pairs

INPUTS, HIDDEN, SAMPLES, BATCH, LR = 10, 20, 1000, 10, 0.01


def train(options: RunOptions, epochs: int) -> Summary | None:
    """Both halves and the record; the summary on rank 0, None elsewhere."""
    with World.start(options) as world:
        if world.size > BATCH:
            raise UsageError(f"{world.size} ranks share batches of {BATCH} samples: use at most {BATCH} ranks")
        recorder = Recorder(world, "small_network", options)
        model = nn.Sequential(*layers()).to(world.device)
        steps = epochs * steps_per_epoch(SAMPLES, BATCH)
        losses: list[tuple[float, float]] = []
        recorder.start()
        for half in (
            data_parallel(world, model, options.seed, steps),
            model_parallel(world, model, options.seed, steps, steps),
        ):
            for loss in half:
                recorder.watch(len(losses), loss)
                losses.append((loss, recorder.elapsed_s))
        recorder.stop()
        summed, wall_s = (np.array(column) for column in zip(*losses, strict=True))
        with world.comm.waiting("sum of losses", -1):
            world.control.Allreduce(MPI.IN_PLACE, summed)
        for step, (loss, wall) in enumerate(zip(summed, wall_s, strict=True)):
            recorder.log(step=step, wall_s=float(wall), loss=float(loss), samples=BATCH)
        return recorder.finish(
            steps=2 * steps,
            samples=2 * steps * BATCH,
            final_loss=float(summed[-1]),
            test_metrics=None,
            params_sha256=sha256(model),
        )


def layers() -> list[nn.Module]:
    """fc1, its bend, fc2."""
    return [nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)]


def samples(seed: int) -> tuple[Tensor, Tensor]:
    """Inputs of shape (1000, 10), normally distributed, and targets of shape (1000, 1)."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(SAMPLES, INPUTS, generator=generator)
    first, second = (torch.randn(shape, generator=generator) for shape in ((INPUTS, HIDDEN), (HIDDEN, 1)))
    return inputs, torch.relu(inputs @ first) @ second / (INPUTS * HIDDEN) ** 0.5


def data_parallel(world: World, model: nn.Sequential, seed: int, steps: int, start: int = 0) -> Iterator[float]:
    """Each rank its share of the samples and of each batch; yields after each step the rank's part of the mean loss."""
    inputs, targets = (tensor.to(world.device) for tensor in samples(seed))
    shares, epoch = equal_shares(SAMPLES, world.size), steps_per_epoch(SAMPLES, BATCH)
    first = slices(shares)[world.rank].start
    sampler = EpochSampler(shares[world.rank], epoch, seed, world.rank)
    strategy = SynchronousSGD(world, model, of_pairs(mse_loss), maker("sgd", LR), ALL_REDUCES["ring"])
    for step in world.steps(start + steps, start):
        rows = torch.from_numpy(first + next(sampler)).to(world.device)
        share = len(rows) / sum(batch_size(each, epoch, step) for each in shares)
        yield strategy.step((inputs[rows], targets[rows]), share) * share


class Batches:
    """The batches of the model-parallel half, uncut; those of one process, since there is one pipeline."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.all_inputs, self.targets = (tensor.to(device) for tensor in samples(seed))
        self.sampler = EpochSampler(SAMPLES, steps_per_epoch(SAMPLES, BATCH), seed, rank=0)
        self.drawn: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self.loss = 0.0

    def draw(self) -> None:
        """Go on to the next batch."""
        self.drawn = next(self.sampler)

    def rows(self, micro_batch: int) -> int:
        return len(self.drawn)

    def inputs(self, micro_batch: int) -> Tensor:
        return self.all_inputs[torch.from_numpy(self.drawn)]

    def weighted_loss(self, micro_batch: int, outputs: Tensor) -> Tensor:
        loss: Tensor = mse_loss(outputs, self.targets[torch.from_numpy(self.drawn)])
        self.loss = loss.item()
        return loss


def model_parallel(world: World, model: nn.Sequential, seed: int, steps: int, start: int = 0) -> Iterator[float]:
    """fc1 on rank 0 and fc2 on rank 1, and in the end both in rank 0's `model` again; one rank alone has both.

    Yields after each step the loss on the rank that knows it, 0 elsewhere.
    """
    stages = min(2, world.size)
    plan = Plan([0, 2, 3], [(INPUTS,), (HIDDEN,)], []) if stages == 2 else Plan([0, 3], [(INPUTS,)], [])
    holders = {stage: [stage] for stage in range(stages)}
    comm = world.comm.split(color=int(world.rank < stages), key=world.rank)
    pieces = layer_split.send_parts(plan, layers, list(model), holders, world)
    batches = Batches(seed, world.device)
    pipeline = _pipeline(world, comm, plan, pieces) if pieces else None
    for step in world.steps(start + steps, start):
        if step % 100 == 0:  # or ranks with nothing to do would wait for a whole training at its end
            world.comm.barrier()
        if pipeline:
            batches.draw()
            pipeline.run(1, batches)
        yield batches.loss
    whole = layer_split.gather(plan, layers, pieces, holders, world)
    if whole:
        model.load_state_dict(whole.state_dict())


def _pipeline(world: World, comm: Communicator, plan: Plan, pieces: dict[int, nn.Sequential]) -> Pipeline:
    flat = FlatBuffers(nn.ModuleList(pieces.values()))

    def update() -> None:
        with world.compute("update"):
            flat.values.add_(flat.gradients, alpha=-LR)
            flat.zero_gradients()

    stage = Stage(pieces, last=len(plan.shapes) - 1)
    return Pipeline(world, comm, NAIVE, stage, dict(enumerate(plan.shapes)), torch.float32, update)
