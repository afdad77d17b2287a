"""A training on the grid from start to end: load, all steps, save, evaluate, record."""

from __future__ import annotations

from farandole.data_parallel.evaluation import judged
from farandole.distributed_checkpoint import storage
from farandole.distributed_checkpoint.options import CheckpointOptions
from farandole.grid.memory import memory
from farandole.grid.options import GridOptions
from farandole.grid.pieces import gather, load, save
from farandole.grid.training import GridTraining
from farandole.model_parallel.training import Losses
from farandole.runtime.buffers import sha256
from farandole.runtime.progress import progress
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


def train(scenario: str, options: GridOptions) -> Summary | None:
    """Train, evaluate and write the record; return the summary on rank 0, None elsewhere."""
    with World.start(options) as world:
        training = GridTraining(world, options, options.grid(world.size))
        saved = options if isinstance(options, CheckpointOptions) else None
        if saved and saved.save:
            storage.make(saved.save, world.control)
        if saved and saved.load:
            load(training, saved.load)
        recorder, steps = Recorder(world, scenario, options), options.steps
        losses = Losses(steps, recorder)
        recorder.start()
        for step in progress(world.steps(steps), steps, world.rank):
            losses.add(step, training.step(step))
        recorder.stop()
        if saved and saved.save:
            save(training, saved.save)
        held, model = memory(training), gather(training)
        if training.stage.offload:
            training.stage.offload.close()
        training.units.complete()
        return recorder.finish(
            steps=steps,
            samples=sum(map(training.shard.whole, range(steps))),
            final_loss=losses.add_up(world, training.shard, known_here=training.axes.place["tensor"] == 0),
            test_metrics=judged(model, training.splits.test, world.device, training.task.metrics) if model else None,
            params_sha256=sha256(training.module),
            memory=held,
            roles=training.roles(),
        )
