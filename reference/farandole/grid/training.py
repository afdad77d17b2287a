"""Training the language model on a grid of six axes. A step, on each rank:

    data, shard, expert   draw the next samples of this rank's share of the training set; cut them into micro-batches
    context               take this rank's positions of them
    pipeline              for each micro-batch, when its turn comes:
      shard                 gather the parameters of a unit, and free them after its pass
      tensor                sum the parts of a layer's outputs, and backward of its inputs' gradient
      context               pass keys and values around
      expert                send tokens to their experts, and the answers back
      shard                 backward: reduce-scatter the unit's gradient
    data, expert, context add up this rank's part of the gradients over all ranks that hold the same parameters
    shard                 each rank moves its part

Ranks of the axes data, shard, expert and context have different tokens, so the gradient of a parameter is the sum over
all of these that hold it: an expert is on one rank of its expert line, and everything else on all. Tensor ranks have
the same tokens, and each the whole gradient of its parameters, divided or not. Each loss counts with its share of the
batch, so that all add up to the loss of the whole, and the training is that of the unsplit model, but for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from farandole import tasks
from farandole.errors import UsageError
from farandole.grid.batches import PositionsShard
from farandole.grid.layers import Groups, divided
from farandole.grid.options import GridOptions
from farandole.grid.units import Units
from farandole.model_parallel.activation_offload import ActivationOffload
from farandole.model_parallel.axes import Axes
from farandole.model_parallel.context.exchange import ContextGroup
from farandole.model_parallel.context.placement import length, zigzag
from farandole.model_parallel.context.split import context_of, share
from farandole.model_parallel.executor import Pipeline
from farandole.model_parallel.expert.exchange import ExpertGroup
from farandole.model_parallel.expert.model import mixtures, with_experts
from farandole.model_parallel.grid import Grid
from farandole.model_parallel.partition import min_max_partition
from farandole.model_parallel.parts import DTYPES
from farandole.model_parallel.schedules import choose
from farandole.model_parallel.stage import Stage
from farandole.model_parallel.tensor.cross_entropy import cross_entropy as divided_cross_entropy
from farandole.model_parallel.tensor.exchange import TensorGroup
from farandole.models.recomputation import recompute, unfuse
from farandole.runtime.world import World

WITH_OTHER_SAMPLES = ("data", "shard", "expert")
WITH_OTHER_TOKENS = (*WITH_OTHER_SAMPLES, "context")


class GridTraining:
    """This rank's part of the model and of the data, and a step.

    Attributes:
        axes: the communicators, and this rank's place.
        context: positions of a sequence.
        groups: the ranks that share a layer with this one.
        experts: the ranks that divide the experts; None without experts.
        parts: virtual stage → the layers of the unsplit model that it has.
        module: this rank's parts of its layers, in order of the virtual stages.
        units: their parameters, gradients and optimizer state.

    Raises:
        UsageError: something cannot be divided over this number of ranks.
    """

    def __init__(self, world: World, options: GridOptions, grid: Grid) -> None:
        self.world, self.options, self.grid = world, options, grid
        self.task = tasks.built_in(options)
        self.criterion = tasks.criterion_of(self.task)
        self.splits = self.task.data(options.seed)
        self.dtype = DTYPES[options.precision]
        self.axes = axes = Axes(world.comm, grid)
        self.schedule = choose(options.schedule, options.chunks)
        self.stages = (axes.place["pipeline"], grid.pipeline)
        list(self.schedule.computations(*self.stages, options.micro_batches))  # says what it cannot do
        everyone = axes.along(*WITH_OTHER_TOKENS)
        self.experts = (
            ExpertGroup(axes.axis("expert"), options.experts, world, everyone, axes.named(*WITH_OTHER_TOKENS))
            if options.experts
            else None
        )
        model = self.unsplit(self.experts)
        self.context = context_of(model)
        placement = zigzag(self.context, grid.context) if grid.context > 1 else [[range(self.context)]]
        context = ContextGroup(axes.axis("context"), placement, world, axes.named("context"))
        self.groups = Groups(TensorGroup(axes.axis("tensor"), world), context)
        self.shard = self._shard()

        self.last = self.schedule.placement.pieces(grid.pipeline) - 1
        self.parts = min_max_partition([1.0] * len(model), self.last + 1)
        pieces = {
            virtual: nn.Sequential(*(divided(layer, self.groups) for layer in list(model)[self.parts[virtual]]))
            for virtual in self.virtual_stages
        }
        self.module = nn.ModuleList(pieces.values()).to(world.device)
        for mixture in mixtures(self.module):
            mixture.balance = options.balance / options.micro_batches
        self.units = Units(world, axes, self.module, options)
        self.stage = Stage(pieces, self.last, recompute=options.recompute == "stage")
        self.stage.meter = self.units.meter
        if options.unfused_attention:
            unfuse(self.module)
        recompute(self.module, options.recomputed(), self.stage.meter.watching)
        if place := options.offload_activations:
            layers = [layer for piece in pieces.values() for layer in piece]
            self.stage.offload = ActivationOffload(place, layers, self.stage.meter)
        shape = (length(context.own), options.hidden)
        self.pipeline = Pipeline(
            world,
            axes.axis("pipeline"),
            self.schedule,
            self.stage,
            dict.fromkeys(range(1, self.last + 1), shape),
            self.dtype,
            self.units.update,
            axes.named("pipeline"),
        )

    def step(self, step: int) -> float:
        """Take one step; return this rank's part of the loss: the sum over all but tensor ranks is the loss."""
        batch = self.shard.cut(step, self.options.micro_batches, self.loss)
        self.units.begin()
        self.pipeline.run(self.options.micro_batches, batch)
        return sum(batch.losses.values(), 0.0)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the task's loss of some samples, times this rank's share of their positions."""
        tensor = self.groups.tensor
        if tensor.size == 1:
            found = self.criterion(outputs, targets)
        else:
            found = divided_cross_entropy(outputs, targets, tasks.number_of_classes(self.task), tensor)
        return found * share(self.groups.context)

    def unsplit(self, experts: ExpertGroup | None) -> nn.Sequential:
        """Return a new model, whole but for its experts, of which it has those of this rank."""
        model = self.task.model().to(self.dtype)
        if not self.options.experts or experts is None:
            assert isinstance(model, nn.Sequential)  # of a built-in task
            return model
        return with_experts(model, self.options, experts)

    def roles(self) -> Sequence[str]:
        """Return where each rank stands, along the axes that are longer than 1."""
        long = [axis for axis, ranks in self.grid.lengths.items() if ranks > 1]
        places = map(self.grid.place, range(self.world.size))
        return [", ".join(f"{axis} {place[axis]}" for axis in long) for place in places] if long else []

    @property
    def virtual_stages(self) -> list[int]:
        """Return the pieces of the model that this rank has, in order of its chunks."""
        stage, stages = self.stages
        return [self.schedule.placement.virtual_stage(stage, chunk, stages) for chunk in range(self.schedule.chunks)]

    def _shard(self) -> PositionsShard:
        copies = self.grid.data * self.grid.shard * self.grid.expert
        train, parts = self.splits.train, self.options.micro_batches
        shard = PositionsShard(
            train,
            len(train),
            batch=self.options.batch,
            pipelines=copies,
            number=self.grid.number(self.world.rank, *WITH_OTHER_SAMPLES),
            seed=self.options.seed,
            dtype=self.dtype,
            device=self.world.device,
        )
        if shard.smallest_batch < parts:
            least = shard.least_batch(parts)
            raise UsageError(
                f"--batch {self.options.batch} for {copies} × {parts} micro-batches leaves some without a sample: "
                f"give {f'at least {least}, or ' if least else ''}fewer --micro-batches"
            )
        if self.grid.context > 1:
            shard.positions = self.groups.context.positions(self.world.device)
        return shard
