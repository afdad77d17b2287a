"""Pipelines and grids at many workers: the schedules' own steps in simulated time, by stage, copy and step.

A worker's step has the computing time that every other method gives it, t, whatever it computes of the model. Of a
pipeline of p stages and m micro-batches, with `division`'s share of a piece (1/v where a stage holds v equal ones):

    forward, backward for the inputs, backward for the parameters     t/3m · share each
    activations and gradients at a border     nβ on the sender's link, one after the other, and α until they arrive;
                                              sending does not stop the computation, as in `model_parallel.executor`
    tensor ranks                              the slowest sets the pace; of each layer two ring all-reduces of the
                                              activations forward and two backward, within a node
    shard, expert and context ranks           the slowest sets the pace, with experts the slowest of all copies; of each
                                              pass the collectives of `grid_messages`
    update                                    a stage waits for its copies in all pipelines, and they all-reduce the
                                              parameters of one worker in a ring; then it begins the next step

So a stage waits for its neighbours and its copies, never for all workers. A slow worker slows its stage, that its
pipeline, and the all-reduce the others. Over a network messages share its links (`stage_messages`). With one stage it
is the ring, whatever the schedule. With equal workers and free messages the idle time is that of the schedule's
docstring. Between steps nothing is drained.

Cost: O(steps of a schedule × steps of the training), all copies at once.
"""

from __future__ import annotations

from dataclasses import astuple
from statistics import fmean

import numpy as np

from farandole.cost.choice import Choice
from farandole.cost.division import divided
from farandole.cost.quadratic import CURVATURES, Quadratic
from farandole.cost.rounds import finished, shared
from farandole.cost.setting import Draws, Outcome, Setting
from farandole.cost.stage_clock import Clock
from farandole.cost.stage_messages import messages
from farandole.errors import UsageError

MOST_PASSES = 20_000_000  # of all stages of one pipeline, in all steps


def simulated(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """Simulate a pipeline by its schedule's name, or a "grid".

    Raises:
        UsageError: the workers or the layers cannot be divided so, or there are more passes than one would wait for.
    """
    division = divided(method, setting.workers, choice)
    passes = (
        setting.steps * division.micro_batches * sum(map(len, division.share)) * (3 if division.schedule.halves else 2)
    )
    if passes > MOST_PASSES:
        raise UsageError(
            f"{method}: {passes:,} passes of micro-batches are more than {MOST_PASSES:,}, which takes too long: give "
            "fewer --steps, --micro-batches or --stages"
        )
    takes = messages(method, setting, choice)
    times = Draws(setting).block() * setting.compute_s
    by_place = times.reshape(setting.steps, *astuple(division.grid))  # data, shard, pipeline, expert, context, tensor
    paces = by_place.max(axis=(2, 4, 5, 6)).transpose(0, 2, 1)
    if choice.experts:  # in each of their layers all copies exchange how many tokens have chosen whom
        paces = paces.max(axis=2, keepdims=True)
    if (paces == paces[:, :, :1]).all() and not takes.by_copy:
        paces = paces[:, :, :1]  # all copies do the same at the same time
    clock, outcome = Clock(division, takes, paces.shape[2], choice.sends_block), Outcome()
    quadratic, rng = Quadratic(shared(setting), outcome), np.random.default_rng([setting.seed, 1])
    for pace in paces:
        clock.step(pace)
        noise = rng.normal(scale=setting.noise / setting.workers**0.5, size=len(CURVATURES))
        quadratic.move(CURVATURES * quadratic.x + noise, 1, clock.latest)
        if setting.progress:
            setting.progress(setting.workers)
    outcome.wall_s, outcome.computed = clock.latest, setting.steps * setting.workers
    outcome.compute_s = float(by_place.sum(axis=(0, 1, 2, 4, 5, 6)) @ np.array([sum(own) for own in division.share]))
    outcome.comm_s = outcome.computed * (fmean(clock.exchanging_s) + fmean(takes.update_s))
    outcome.comm_s += clock.uncovered_s * setting.workers / (division.stages * clock.copies)
    outcome.wait_s = max(0.0, setting.workers * outcome.wall_s - outcome.compute_s - outcome.comm_s)
    return setting, finished(outcome, quadratic, outcome.computed)
