"""What every rank of a grid sends in a step, by axis, beside what the simulator counts for a worker of the same grid.

Argument: a JSON list of cases, each the options of a `GridOptions`. The answer: for each case what all ranks have sent.
"""

import json
import sys
from dataclasses import asdict

from farandole import tasks
from farandole.cost.choice import BYTES, GRID, Choice
from farandole.cost.division import divided
from farandole.cost.setting import Setting
from farandole.cost.stage_messages import sent_by
from farandole.grid.options import GridOptions
from farandole.grid.traffic import counted
from farandole.grid.training import GridTraining
from farandole.models.shape import Shape
from farandole.models.transformer import HEAD_WIDTH
from farandole.runtime.communicator import gather_text
from farandole.runtime.devices import seed_everything
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

# A chunk of a vector is then as long as every other, and the simulator's samples per micro-batch are those of the run.
DEFAULTS = {"hidden": 64, "depth": 2, "context": 32, "batch": 16, "micro_batches": 2, "wait_timeout": 60}


def messages(training):
    """The messages that this rank has sent so far, by what they were sent for, as `counted` does their bytes."""
    axes, experts = training.axes, training.experts
    found = {axis: axes.axis(axis).messages_sent for axis in ("tensor", "context", "expert", "pipeline", "shard")}
    found["counts"] = experts.everyone.messages_sent if experts else 0
    found["gradients"] = sum(unit.copies.messages_sent for unit in training.units if unit.copies)
    return found


def choice_of(options, training):
    """The simulator's options for the same grid and model."""
    grid, words = training.grid, tasks.number_of_classes(training.task)
    shape = Shape(options.depth, options.hidden, options.hidden // HEAD_WIDTH, options.context, words, tied=False)
    return Choice(
        model=shape, stages=grid.pipeline, tensor=grid.tensor, shard_ranks=grid.shard, expert_ranks=grid.expert,
        context_ranks=grid.context, experts=options.experts, top_k=options.top_k, schedule=options.schedule,
        micro_batches=options.micro_batches, units=options.depth,
        micro_batch=options.batch // (grid.data * grid.shard * grid.expert * options.micro_batches),
    )  # fmt: skip


def case_of(options):
    seed_everything(options.seed)
    training = GridTraining(world, options, options.grid(world.size))
    before = counted(training), messages(training)
    training.step(0)
    after = counted(training), messages(training)
    sent = {what: [after[1][what] - before[1][what], after[0][what] - before[0][what]] for what in after[0]}

    choice = choice_of(options, training)
    setting = Setting(world.size, 1, nbytes=BYTES * choice.model.parameters)
    division = divided(GRID, world.size, choice)
    assert division.grid == training.grid
    place = training.axes.place
    simulated = sent_by(division, setting, choice, place["pipeline"], place["tensor"])
    for what, found in sent.items():
        volume = asdict(simulated[what]) if what in simulated else {"messages": 0, "nbytes": 0}
        assert found == [volume["messages"], volume["nbytes"]], (str(training.grid), place, what, found, volume)
    training.units.complete()
    return [json.loads(text) for text in gather_text(world.control, json.dumps(sent))]


with World.start(RunOptions(wait_timeout=60)) as world:
    answers = [case_of(GridOptions(**(DEFAULTS | case))) for case in json.loads(sys.argv[1])]
    if world.rank == 0:
        print(json.dumps(answers))
