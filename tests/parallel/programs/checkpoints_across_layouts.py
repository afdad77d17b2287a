"""A checkpoint saved under one layout of four ranks and loaded under another, for every pair of eleven layouts.

Each layout trains two steps on all samples, saves, and takes a third one. Every layout, begun anew, loads what each of
them has saved, and saves it again; then it takes the third step, too. The answer: how far the files are from the model
that has saved them; of all pairs, how far what was saved again is from what was saved; of all layouts, how far the
third step after a checkpoint is from the one without; and how far a step moves the model.

Arguments: the folder; a JSON object of options for the model; "all" pairs, or one for "each" layout.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from farandole.distributed_checkpoint.optimizer_state import counters, set_counters
from farandole.distributed_checkpoint.reader import Checkpoint
from farandole.distributed_checkpoint.storage import make, write
from farandole.model_parallel.layout import Layout
from farandole.model_parallel.options import ModelParallelOptions
from farandole.model_parallel.parts import Parts
from farandole.model_parallel.pieces import pieces as of_grid
from farandole.model_parallel.schedules import choose
from farandole.models.optimizers import maker
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.sharded.checkpoint import pieces as of_sharded
from farandole.sharded.options import Sharding
from farandole.sharded.training import ShardedSGD
from farandole.sharded.unit import on_parts

LAYOUTS: dict[str, Layout | Sharding] = {
    "data": Layout(data=4),
    "data, ZeRO-1": Layout(data=4, shard_optimizer=True),
    "pipeline": Layout(pipeline=4, schedule=choose("1f1b"), micro_batches=4),
    "pipeline, interleaved": Layout(data=2, pipeline=2, schedule=choose("interleaved"), micro_batches=2),
    "pipeline, DualPipe": Layout(pipeline=4, schedule=choose("dualpipe"), micro_batches=8),
    "tensor": Layout(tensor=4),
    "data × tensor, ZeRO-1": Layout(data=2, tensor=2, shard_optimizer=True),
    "pipeline × tensor": Layout(pipeline=2, tensor=2, schedule=choose("gpipe"), micro_batches=2),
    "ZeRO-1": Sharding(1),
    "ZeRO-3": Sharding(3, prefetch=True),
    "ZeRO-3 in groups": Sharding(3, over=2),
}
BEFORE = 2
ALL_PAIRS = sys.argv[3] == "all"


class Grid:
    """A training under a layout of the grid."""

    def __init__(self, world: World, options: ModelParallelOptions, layout: Layout) -> None:
        torch.manual_seed(options.seed)
        self.parts = Parts(world, options, layout)
        self.optimizer = self.parts.optimizer.optimizer

    def step(self) -> None:
        micro_batches = self.parts.layout.micro_batches
        self.parts.pipeline.run(micro_batches, self.parts.shard.cut(0, micro_batches, self.parts.loss))

    def pieces(self) -> list[Any]:
        return list(of_grid(self.parts))

    def loaded(self) -> None:
        pass

    def model(self) -> nn.Module | None:
        return self.parts.gather()


class Sharded:
    """A divided training."""

    def __init__(self, world: World, options: ModelParallelOptions, sharding: Sharding) -> None:
        self.parts = Parts(world, options, Layout(data=world.size))  # only for its share of the data
        torch.manual_seed(options.seed)  # the same model on all ranks
        model = nn.Sequential(*self.parts.layers())
        make = on_parts(maker(options.optimizer, options.lr))
        loss = lambda model, batch: self.parts.loss(model(batch[0]), batch[1])  # noqa: E731
        self.strategy = ShardedSGD(world, model, loss, make, sharding, options.optimizer)
        self.optimizer = self.strategy.units[0].optimizer

    def step(self) -> None:
        cut = self.parts.shard.cut(0, 1, self.parts.loss)
        self.strategy.step(self.parts.shard.batch(cut.parts[0]), cut.rows(0) / cut.wholes[0])

    def pieces(self) -> list[Any]:
        return list(of_sharded(self.strategy))

    def loaded(self) -> None:
        for unit in self.strategy.units:
            set_counters(unit.optimizer, counters(self.optimizer))
        self.strategy.loaded()

    def model(self) -> nn.Module:
        self.strategy.finish()
        return self.strategy.model


def begun(world: World, options: ModelParallelOptions, name: str) -> Grid | Sharded:
    layout = LAYOUTS[name]
    return Grid(world, options, layout) if isinstance(layout, Layout) else Sharded(world, options, layout)


def state(model: nn.Module | None) -> dict[str, Tensor]:
    """By the names in the unsplit model; what tensor ranks gather has several layers in a unit."""
    if not model:
        return {}
    layers = [layer for unit in model for layer in (unit if isinstance(unit, nn.Sequential) else [unit])]
    return {name: each.detach().clone() for name, each in nn.Sequential(*layers).state_dict().items()}


def apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max((float((one[name] - other[name]).abs().max()) for name in one), default=0.0)


def difference(folder: Path, other: Path) -> float:
    """Of all tensors of two checkpoints, the largest."""
    return apart(dict(Checkpoint(folder).tensors()), dict(Checkpoint(other).tensors()))


with World.start(RunOptions(wait_timeout=60)) as world:
    folder, given = Path(sys.argv[1]), json.loads(sys.argv[2])
    options = ModelParallelOptions(optimizer="adam", lr=0.01, precision="float64", **given)
    places = {name: folder / f"{number}" for number, name in enumerate(LAYOUTS)}
    in_files, ends, copied, continued = 0.0, {}, {}, {}
    for name, place in places.items():
        training = begun(world, options, name)
        for _ in range(BEFORE):
            training.step()
        make(place, world.control)
        write(place, training.pieces(), {"optimizer": counters(training.optimizer)}, world.control)
        if isinstance(training, Grid):
            saved = state(training.model())
            if world.rank == 0:
                found = dict(Checkpoint(place).tensors())
                in_files = max(in_files, apart(saved, {key: found[key] for key in saved}))
        training.step()
        ends[name] = state(training.model())
    for number, loader in enumerate(LAYOUTS):
        training = begun(world, options, loader)
        savers = list(LAYOUTS) if ALL_PAIRS else [list(LAYOUTS)[number - 3]]
        for saver in savers:
            place = places[saver]
            checkpoint = Checkpoint(place)
            checkpoint.load(training.pieces())
            again = folder / f"{saver} to {loader}"
            make(again, world.control)
            write(again, training.pieces(), {}, world.control)
            if world.rank == 0:
                copied[again.name] = difference(place, again)
        set_counters(training.optimizer, checkpoint.values["optimizer"])
        training.loaded()
        training.step()
        end = state(training.model())
        if world.rank == 0:
            continued[loader] = apart(end, ends[saver])
    if world.rank == 0:
        last = ends["pipeline × tensor"]
        moved = apart(saved, last)
        print(json.dumps({"in_files": in_files, "copied": copied, "continued": continued, "moved": moved}))
