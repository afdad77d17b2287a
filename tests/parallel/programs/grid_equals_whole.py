"""The language model on grids of six axes, beside the unsplit model: parameters after every step, bytes and memory.

Argument: a JSON list of cases, each the options of a `GridOptions`, and as "loaded_by" those of a grid that loads its
checkpoint. The answer: for each case what was found.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from mpi4py import MPI
from oracle import found_by_one

from farandole.data.sampler import EpochSampler
from farandole.data.shares import equal_shares, slices
from farandole.distributed_checkpoint.reader import Checkpoint
from farandole.distributed_checkpoint.storage import make
from farandole.grid.memory import memory
from farandole.grid.options import GridOptions
from farandole.grid.pieces import gather, load, save
from farandole.grid.traffic import by_formula, counted
from farandole.grid.training import GridTraining
from farandole.model_parallel.expert.exchange import ExpertGroup
from farandole.model_parallel.expert.model import mixtures
from farandole.models.optimizers import maker
from farandole.runtime.buffers import FlatBuffers, sha256
from farandole.runtime.communicator import Communicator, gather_text
from farandole.runtime.devices import seed_everything
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

STEPS = 2
DEFAULTS = {"hidden": 32, "batch": 16, "lr": 0.1, "precision": "float64", "depth": 1, "wait_timeout": 60}


def vector(model):
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).numpy()


def unsplit(training):
    """The parameters of the model in one process, at first and after each step: [parameters, loss, dropped]."""
    options, shard = training.options, training.shard
    seed_everything(options.seed)
    alone = ExpertGroup(Communicator(MPI.COMM_SELF), options.experts) if options.experts else None
    model = training.unsplit(alone)
    flat = FlatBuffers(model)
    optimizer = maker(options.optimizer, options.lr)(flat.values, flat.gradients)
    samplers = [EpochSampler(part, shard.epoch, options.seed, number) for number, part in enumerate(shard.shares)]
    everything = training.splits.train.on(torch.device("cpu"))
    seen = [np.append(vector(model), [0.0, 0.0])]
    for _ in range(STEPS):
        rows = [part.start + next(sampler) for part, sampler in zip(slices(shard.shares), samplers, strict=True)]
        mean, dropped = 0.0, 0
        for number in range(options.micro_batches):
            parts = [own[slices(equal_shares(len(own), options.micro_batches))[number]] for own in rows]
            inputs, targets = everything[np.concatenate(parts)]
            loss = training.criterion(model(inputs), targets) * (len(inputs) / sum(map(len, rows)))
            balance = sum(each.balance_loss for each in mixtures(model)) * options.balance / options.micro_batches
            (loss + balance).backward()
            mean += loss.item()
            dropped += sum(each.plan.dropped for each in mixtures(model))
        optimizer.step()
        flat.zero_gradients()
        seen.append(np.append(vector(model), [mean, dropped]))
    return seen


def goes_on(training, other):
    """A checkpoint of one grid, loaded by another: the same parameters, and after the next step this difference."""
    folder = Path(world.control.bcast(tempfile.mkdtemp() if world.rank == 0 else ""))
    make(folder, world.control)
    save(training, folder)
    its = GridTraining(world, other, other.grid(world.size))
    load(its, folder)
    before, loaded = gather(training), gather(its)
    if world.rank == 0:
        assert (vector(before) == vector(loaded)).all(), "to the bit"
        assert set(dict(before.named_parameters())) < set(Checkpoint(folder).shapes), (
            "by the names of the unsplit model"
        )
        shutil.rmtree(folder)
    its.shard.go_to(STEPS)
    training.step(STEPS)
    its.step(STEPS)
    after, found = gather(training), gather(its)
    if world.rank:
        return None
    assert np.abs(vector(after) - vector(before)).max() > 1e-4
    return np.abs(vector(after) - vector(found)).max()


def case_of(options, other=None):
    grid = options.grid(world.size)
    seed_everything(options.seed)
    training = GridTraining(world, options, grid)
    expected = found_by_one(world, lambda: unsplit(training))
    difference = loss_difference = 0.0
    plans, rows = [], []
    for mixture in mixtures(training.module):
        mixture.register_forward_hook(lambda module, _inputs, _outputs: plans.append(module.plan))
    cut = training.shard.cut

    def watched(*arguments):
        batch = cut(*arguments)
        rows[:] = map(len, batch.parts)
        return batch

    training.shard.cut = watched
    for step in range(STEPS):
        plans.clear()
        before = counted(training)
        loss = np.array([training.step(step) if training.axes.place["tensor"] == 0 else 0 * training.step(step)])
        sent = {what: nbytes - before[what] for what, nbytes in counted(training).items()}
        formula = by_formula(training, rows, plans)
        assert sent == formula, (step, sent, formula)
        world.control.Allreduce(loss.copy(), loss)
        loss_difference = max(loss_difference, abs(loss[0] - expected[step + 1][-2]))
        if whole := gather(training):
            difference = max(difference, np.abs(vector(whole) - expected[step + 1][:-2]).max())
    held = memory(training)
    for kind in ("parameters", "gradients", "optimizer_state"):
        assert held["measured"][kind] == held["formula"][kind], (kind, held)
    resumed = goes_on(training, other) if other else None
    training.units.complete()
    digests = gather_text(world.control, sha256(training.module))
    if world.rank == 0:
        along = ("data", "shard", "context")  # where all hold the same layers and the same experts
        assert all(len({digests[other] for other in grid.line(rank, *along)}) == 1 for rank in range(world.size))
    texts = gather_text(world.control, json.dumps({"sent": sent, **held}))
    return {
        "grid": str(grid),
        "parameters": difference,
        "loss": loss_difference,
        "moved": np.abs(expected[-1][:-2] - expected[0][:-2]).max(),
        "dropped": expected[-1][-1],
        "resumed": resumed,
        "ranks": [json.loads(text) for text in texts],
    }


with World.start(RunOptions(wait_timeout=60)) as world:
    answers = []
    for case in json.loads(sys.argv[1]):
        other = case.pop("loaded_by", None)
        both = [GridOptions(**(DEFAULTS | each)) if each is not None else None for each in (case, other)]
        answers.append(case_of(*both))
    if world.rank == 0:
        print(json.dumps(answers))
