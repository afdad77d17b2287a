"""A checkpoint saved under one layout of four ranks and loaded under another, for pairs of layouts of a model.

Each layout trains two steps on all samples, saves, and takes a third one. Every layout, begun anew, loads what each of
them has saved, and saves it again; then it takes the third step, too. The answer: how far the files are from the model
that has saved them; of all pairs, how far what was saved again is from what was saved; of all layouts, how far the
third step after a checkpoint is from the one without; and how far a step moves the model.

A perceptron knows eleven layouts, the transformer four more, and five are for a transformer with experts.

Arguments: the folder; then for each model a JSON object of its options, and "all" pairs, or one for "each" layout. The
option "layouts" names those of the eleven that are tried.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.tasks import letters
from torch import Tensor, nn

from farandole import tasks
from farandole.distributed_checkpoint.optimizer_state import counters, set_counters
from farandole.distributed_checkpoint.reader import Checkpoint
from farandole.distributed_checkpoint.storage import make, write
from farandole.grid.options import GridOptions
from farandole.grid.pieces import gather
from farandole.grid.pieces import pieces as of_six_axes
from farandole.grid.training import GridTraining
from farandole.model_parallel.context.options import ContextOptions
from farandole.model_parallel.context.training import ContextTraining
from farandole.model_parallel.expert.options import ExpertOptions
from farandole.model_parallel.expert.training import ExpertTraining
from farandole.model_parallel.layout import Layout
from farandole.model_parallel.options import ModelParallelOptions
from farandole.model_parallel.parts import Parts
from farandole.model_parallel.pieces import pieces as of_layers
from farandole.model_parallel.schedules import choose
from farandole.models.optimizers import maker
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.sharded.checkpoint import pieces as of_sharded
from farandole.sharded.optimizers import on_parts
from farandole.sharded.options import Sharding
from farandole.sharded.training import ShardedSGD

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
OF_SEQUENCES: dict[str, GridOptions | ContextOptions] = {
    "six axes: context × tensor": GridOptions(context_ranks=2, tensor_ranks=2, micro_batches=1),
    "six axes: shard × pipeline": GridOptions(shard_ranks=2, pipeline_ranks=2, micro_batches=2),
    "six axes: data × context": GridOptions(context_ranks=2, micro_batches=1),
    "context": ContextOptions(attention="ulysses"),
}
SIX: dict[str, Any] = {"experts": 5, "micro_batches": 1}
OF_EXPERTS: dict[str, GridOptions | ExpertOptions] = {
    "experts": ExpertOptions(experts=5, capacity=0.0),
    "six axes: expert × shard": GridOptions(**SIX, expert_ranks=2, shard_ranks=2),
    "six axes: expert × tensor": GridOptions(**SIX, expert_ranks=2, tensor_ranks=2),
    "six axes: expert × context": GridOptions(**SIX, expert_ranks=2, context_ranks=2),
    "six axes: expert × pipeline": GridOptions(**SIX, expert_ranks=2, pipeline_ranks=2),
}
BEFORE = 2
SAME: dict[str, Any] = {"optimizer": "adam", "lr": 0.01, "precision": "float64"}


class Layers:
    """A training under a layout of the layers: data × pipeline × tensor."""

    def __init__(self, world: World, options: ModelParallelOptions, layout: Layout) -> None:
        torch.manual_seed(options.seed)
        self.parts = Parts(world, options, layout)
        self.optimizer = self.parts.optimizer.optimizer

    def step(self) -> None:
        micro_batches = self.parts.layout.micro_batches
        self.parts.pipeline.run(micro_batches, self.parts.shard.cut(0, micro_batches, self.parts.loss))

    def pieces(self) -> list[Any]:
        return list(of_layers(self.parts))

    def loaded(self) -> None:
        pass

    def model(self) -> nn.Module | None:
        return self.parts.gather()


class SixAxes:
    """A training on the grid of six axes."""

    def __init__(self, world: World, options: GridOptions) -> None:
        torch.manual_seed(options.seed)
        self.training = GridTraining(world, options, options.grid(world.size))
        self.optimizer = next(iter(self.training.units)).optimizer

    def step(self) -> None:
        self.training.step(0)

    def pieces(self) -> list[Any]:
        return list(of_six_axes(self.training))

    def loaded(self) -> None:
        for unit in self.training.units:
            set_counters(unit.optimizer, counters(self.optimizer))

    def model(self) -> nn.Module | None:
        return gather(self.training)


class Sequences:
    """A training with divided sequences, or with divided experts."""

    def __init__(self, world: World, options: ContextOptions | ExpertOptions) -> None:
        torch.manual_seed(options.seed)
        kind = ContextTraining if isinstance(options, ContextOptions) else ExpertTraining
        self.training: Any = kind(world, options)  # type: ignore[arg-type]
        self.optimizer = self.training.optimizer.optimizer

    def step(self) -> None:
        self.training.step()

    def pieces(self) -> list[Any]:
        return list(self.training.pieces())

    def loaded(self) -> None:
        for optimizer in getattr(self.training, "optimizers", []):
            set_counters(optimizer, counters(self.optimizer))

    def model(self) -> nn.Module | None:
        whole = self.training.whole
        return whole() if isinstance(self.training, ExpertTraining) else whole


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


Layered = Layout | Sharding | GridOptions | ContextOptions | ExpertOptions
Training = Layers | Sharded | SixAxes | Sequences


def begun(world: World, options: ModelParallelOptions, layout: Layered) -> Training:
    if isinstance(layout, Layout):
        return Layers(world, options, replace(layout, balance="layers"))  # times of few samples mean nothing
    if isinstance(layout, Sharding):
        return Sharded(world, options, layout)
    its = replace(layout, model="transformer", hidden=letters.WIDTH, **SAME, batch=letters.SAMPLES)
    return SixAxes(world, its) if isinstance(its, GridOptions) else Sequences(world, its)


def state(model: nn.Module | None) -> dict[str, Tensor]:
    """Return tensors by their names in the unsplit model; units of tensor ranks have several layers."""
    if not model:
        return {}
    layers = [layer for unit in model for layer in (unit if isinstance(unit, nn.Sequential) else [unit])]
    return {name: each.detach().clone() for name, each in nn.Sequential(*layers).state_dict().items()}


def apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max((float((one[name] - other[name]).abs().max()) for name in one), default=0.0)


def difference(folder: Path, other: Path) -> float:
    """Return the largest difference of all tensors of two checkpoints."""
    return apart(dict(Checkpoint(folder).tensors()), dict(Checkpoint(other).tensors()))


def pairs_of(
    world: World, folder: Path, options: ModelParallelOptions, layouts: Mapping[str, Layered], all_pairs: bool
) -> dict[str, Any]:
    places = {name: folder / f"{number}" for number, name in enumerate(layouts)}
    in_files, ends, copied, continued, moved = 0.0, {}, {}, {}, 0.0
    for name, place in places.items():
        training = begun(world, options, layouts[name])
        for _ in range(BEFORE):
            training.step()
        make(place, world.control)
        write(place, training.pieces(), {"optimizer": counters(training.optimizer)}, world.control)
        saved = {} if isinstance(training, Sharded) else state(training.model())
        if saved and world.rank == 0:
            found = dict(Checkpoint(place).tensors())
            in_files = max(in_files, apart(saved, {key: found[key] for key in saved}))
        training.step()
        ends[name] = state(training.model())
        if saved and world.rank == 0:
            moved = apart(saved, ends[name])
    for number, loader in enumerate(layouts):
        training = begun(world, options, layouts[loader])
        savers = list(layouts) if all_pairs else [list(layouts)[number - 3]]
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
    return {"layouts": len(layouts), "in_files": in_files, "copied": copied, "continued": continued, "moved": moved}


with World.start(RunOptions(wait_timeout=60)) as world:
    answer = []
    for number, (text, pairs) in enumerate(zip(sys.argv[2::2], sys.argv[3::2], strict=True)):
        given = json.loads(text)
        if "data" not in given:
            tasks.built_in = lambda _options: letters.task()  # type: ignore[assignment,return-value]
        layouts: Mapping[str, Layered] = {name: LAYOUTS[name] for name in given.pop("layouts", LAYOUTS)}
        if given.pop("experts", False):
            layouts = OF_EXPERTS
        elif "task" in given:
            layouts = {**layouts, **OF_SEQUENCES}
        options = ModelParallelOptions(**SAME, **given)
        folder = Path(sys.argv[1]) / str(number)
        if world.rank == 0:
            folder.mkdir()
        world.control.Barrier()
        answer.append(pairs_of(world, folder, options, layouts, pairs == "all"))
    if world.rank == 0:
        print(json.dumps(answer))
