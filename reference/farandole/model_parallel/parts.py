"""A rank's part of the model and of the data, wherever it stands in the grid of data × pipeline × tensor.

Rank 0 builds the model, cuts it into stages, and sends each to the ranks of that stage; these divide
its layers among them. The first and the last stage of each pipeline read its share of the data
themselves. A scenario that uses one axis of the grid has length 1 on the others.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from farandole import tasks
from farandole.data.datasets import Splits
from farandole.data.samples import Samples
from farandole.errors import UsageError
from farandole.model_parallel import layer_split
from farandole.model_parallel.activation_offload import ActivationOffload
from farandole.model_parallel.axes import Axes
from farandole.model_parallel.batches import Shard
from farandole.model_parallel.executor import Pipeline
from farandole.model_parallel.layer_split import Plan
from farandole.model_parallel.layout import Layout
from farandole.model_parallel.options import ModelParallelOptions
from farandole.model_parallel.stage import Stage
from farandole.model_parallel.tensor.cross_entropy import cross_entropy as divided_cross_entropy
from farandole.model_parallel.tensor.exchange import TensorGroup
from farandole.model_parallel.tensor.sequence import add_up_replicated
from farandole.model_parallel.tensor.split import split, whole
from farandole.model_parallel.tensor.units import opened, units
from farandole.model_parallel.versions import StashingStage, SynchronisedStage
from farandole.model_parallel.zero import ReplicatedOptimizer, ShardedOptimizer, add_up_gradients
from farandole.models.optimizers import maker
from farandole.models.recomputation import recompute, unfuse
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.communicator import Communicator
from farandole.runtime.world import World
from farandole.tasks import Task

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@lru_cache(maxsize=1)  # a training that outlives its ranks makes its parts anew
def _splits(task: Task, seed: int) -> Splits[Samples]:
    return task.data(seed)


class Parts:
    """This rank's part of the model and of the data, and what is needed to train it.

    Args:
        plan: of a model that has been cut before. Its parameters then have no values yet: they are to be restored.

    Raises:
        UsageError: axes that do not multiply to the number of ranks, more stages than layers, more
            micro-batches than samples, more ranks than a layer can be divided into.
    """

    def __init__(self, world: World, options: ModelParallelOptions, layout: Layout, plan: Plan | None = None) -> None:
        self.world, self.options, self.layout = world, options, layout
        self.axes = Axes(world.comm, layout.grid)
        self.place = self.axes.place
        self.task = tasks.of(options)
        self.criterion = tasks.criterion_of(self.task)
        if layout.vertical_sync and layout.schedule.flushes:
            raise UsageError(
                f"--vertical-sync is for --schedule pipedream: stages of {layout.schedule.name} always use one version"
            )
        self.tensor = TensorGroup(self.axes.axis("tensor"), world)
        self.schedule = layout.schedule
        list(self.schedule.computations(0, layout.pipeline, layout.micro_batches))  # says what it cannot do
        self.last = layout.last
        self.dtype = self._type()
        self.shard = self._shard()
        self._check_micro_batches()

        self.holders = {virtual: layout.holders(virtual) for virtual in range(self.last + 1)}
        if plan:
            self.plan, empty = plan, layer_split.empty_parts(plan, self.layers, self.holders, world)
            pieces = {virtual: piece.to(world.device) for virtual, piece in empty.items()}
        else:
            root = world.comm.rank == 0
            layers = self.layers() if root else []
            self.plan = layer_split.agree(self._cut(layers) if root else None, world)
            pieces = layer_split.send_parts(self.plan, self.layers, layers, self.holders, world)
        if layout.tensor > 1:
            pieces = {v: self._split(piece) for v, piece in pieces.items()}
        self.pieces = pieces
        self.module = nn.ModuleList(pieces.values())
        self.flat = FlatBuffers(self.module)
        self.stage = self._stage()
        if layout.unfused:
            unfuse(self.module)
        recompute(self.module, layout.recompute, self.stage.meter.watching)
        if layout.offload:
            layers = [layer for piece in self.pieces.values() for layer in opened(piece)]
            self.stage.offload = ActivationOffload(layout.offload, layers, self.stage.meter)
        self.copies = self._copies()
        make = maker(options.optimizer, options.lr)
        divided = ShardedOptimizer if layout.shard_optimizer else ReplicatedOptimizer
        self.optimizer = divided(world, self.axes.axis("data"), self.flat, make, self._name("data"))
        self.pipeline = Pipeline(
            world,
            self.axes.axis("pipeline"),
            self.schedule,
            self.stage,
            dict(enumerate(self.plan.shapes)),
            self.dtype,
            self.update,
            self._name("pipeline"),
            layout.pace,
        )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the task's loss, of logits that tensor ranks may have divided among them."""
        if self.tensor.size == 1:
            return self.criterion(outputs, targets)
        return divided_cross_entropy(outputs, targets, tasks.number_of_classes(self.task), self.tensor)

    def update(self) -> None:
        """Move the parameters by the gradients of all micro-batches."""
        if self.layout.sequence and self.tensor.size > 1:
            add_up_replicated(self.pieces.values(), self.tensor)
        if self.copies:
            add_up_gradients(self.world, self.copies, self.flat, self._name("pipeline"))
        self.optimizer.step()

    @property
    def splits(self) -> Splits[Samples]:
        """Return all samples, loaded at the first use."""
        return _splits(self.task, self.options.seed)

    def gather(self, root: int = 0) -> nn.Sequential | None:
        """Return the whole model on rank `root` of `world.comm`; None elsewhere. Collective."""
        unsplit = self.pieces
        if self.tensor.size > 1:
            unsplit = {v: nn.Sequential(*(whole(unit, self.tensor) for unit in piece)) for v, piece in unsplit.items()}
        return layer_split.gather(self.plan, self.layers, unsplit, self.holders, self.world, root)

    def roles(self) -> list[str]:
        """Return each rank's place along the axes that are longer than 1, in order of the ranks' numbers among all."""
        grid = self.layout.grid
        axes = [name for name, length in grid.lengths.items() if length > 1]
        words = {"data": "pipeline", "pipeline": "stage", "tensor": "part"}
        ranks = sorted(range(self.world.comm.size), key=self.world.comm.members.__getitem__)
        places = map(grid.place, ranks)
        return [", ".join(f"{words[axis]} {place[axis]}" for axis in axes) for place in places] if axes else []

    def layers(self) -> list[nn.Module]:
        """Return all layers of the model, unsplit; between them activations are whole on all tensor ranks."""
        model = self.task.model().to(self.dtype)
        if not isinstance(model, nn.Sequential):
            raise UsageError(
                f"{self.task.name}: its model is a {type(model).__name__}, which cannot be cut into stages: "
                "have model() return nn.Sequential of its layers"
            )
        return units(model) if self.layout.tensor > 1 else list(model)

    def _split(self, piece: nn.Sequential) -> nn.Sequential:
        """Return this rank's part of every unit of a piece; of a sequence too, where the layout says so."""
        context = self.plan.shapes[0][0] if self.layout.sequence else None
        return nn.Sequential(*(split(unit, self.tensor, context) for unit in piece))

    def _type(self) -> torch.dtype:
        """Return the type that is computed in: of --precision, or float64 if that is the type of the user's model."""
        asked = DTYPES[self.options.precision]
        if self.task.is_sent:
            return asked
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            own = {parameter.dtype for parameter in self.task.model().parameters()}
        return torch.float64 if own == {torch.float64} else asked

    def _cut(self, layers: list[nn.Module]) -> Plan:
        count = self.shard.smallest_batch // self.layout.parts_of_a_batch
        samples, _ = self.splits.train.on(torch.device("cpu"))[np.arange(count)]
        samples = (samples.to(self.dtype) if samples.is_floating_point() else samples).to(self.world.device)
        return layer_split.cut(layers, samples, self.last + 1, self.layout.balance)

    def _shard(self) -> Shard:
        at_an_end = self.world.comm.rank == 0 or self.place["pipeline"] in (0, self.layout.pipeline - 1)
        train = self.splits.train if at_an_end else None
        count = np.array([len(train) if train else 0])
        with self.world.comm.waiting("size of the training set", 0):
            self.world.comm.mpi.Bcast(count)
        return Shard(
            train,
            int(count[0]),
            batch=self.options.batch,
            pipelines=self.layout.data,
            number=self.place["data"],
            seed=self.options.seed,
            dtype=self.dtype,
            device=self.world.device,
        )

    def _check_micro_batches(self) -> None:
        smallest, layout = self.shard.smallest_batch, self.layout
        if smallest == 0:
            raise UsageError(
                f"--batch {self.options.batch} leaves some of {layout.data} pipelines without a sample: "
                f"give at least {2 * layout.data}"
            )
        if layout.parts_of_a_batch > smallest:
            raise UsageError(
                f"--micro-batches {layout.micro_batches}: a pipeline's smallest batch has {smallest} samples; "
                "give at most that number, or a larger --batch"
            )

    def _copies(self) -> Communicator | None:
        """Return the ranks of this pipeline that hold the same pieces; None if no other rank does. Collective."""
        placement, stage, stages = self.schedule.placement, self.place["pipeline"], self.layout.pipeline
        holders = placement.stages_with(placement.virtual_stage(stage, 0, stages), stages)
        return self.axes.axis("pipeline").split(holders[0], key=stage) if len(holders) > 1 else None

    def _stage(self) -> Stage:
        again = self.layout.recompute == "stage"
        if self.layout.vertical_sync:
            return SynchronisedStage(self.pieces, self.last, recompute=again)
        if not self.schedule.flushes:
            return StashingStage(self.pieces, self.last, recompute=again)
        return Stage(self.pieces, self.last, recompute=again, halves=self.schedule.halves)

    def _name(self, axis: str) -> str:
        """Return a name for the ranks along `axis` that this one is among."""
        others = (f"{name} {self.place[name]}" for name in ("data", "pipeline", "tensor") if name != axis)
        return f"{axis} axis at {', '.join(others)}"
