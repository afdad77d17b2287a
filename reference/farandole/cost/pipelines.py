"""Pipelines and grids at many workers: the schedules' own steps in simulated time, by stage, copy and step.

A worker's step has the computing time that every other method gives it, t, whatever it computes of the model. Of a
pipeline of p stages and m micro-batches, with `division`'s share of a piece (1/v where a stage holds v equal ones):

    forward, backward for the inputs, backward for the parameters     t/3m · share each
    activations and gradients at a border     nβ on the sender's link, one after the other, and α until they arrive;
                                              sending does not stop the computation, as in `model_parallel.executor`
    tensor ranks                              the slowest sets the pace; of each layer two ring all-reduces of the
                                              activations forward and two backward, within a node
    update                                    a stage waits for its copies in all pipelines, and they all-reduce the
                                              parameters of one worker in a ring; then it begins the next step

So a stage waits for its neighbours and its copies, never for all workers. A slow worker slows its stage, that its
pipeline, and the all-reduce the others. With one stage it is the ring, whatever the schedule. With equal workers and
free messages the idle time is that of the schedule's docstring. Between steps nothing is drained.

Cost: O(steps of a schedule × steps of the training), all copies at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from farandole.collectives.costs import Link
from farandole.collectives.ring import RING
from farandole.cost.choice import Choice
from farandole.cost.division import Division, divided
from farandole.cost.messages import IN_A_NODE, collective_s
from farandole.cost.quadratic import CURVATURES, Quadratic
from farandole.cost.rounds import finished, shared
from farandole.cost.setting import Draws, Outcome, Setting, Vector
from farandole.errors import UsageError
from farandole.model_parallel.step_costs import duration
from farandole.model_parallel.step_order import SHIPMENTS, Sent, in_order
from farandole.model_parallel.steps import BackwardWeight, Computation, Times, Update

THIRDS = Times(1 / 3, 1 / 3, 1 / 3)  # of the computing of a step: forward, backward for inputs, for parameters
MOST_PASSES = 20_000_000  # of all stages of one pipeline, in all steps
EXCHANGES = 2  # of a layer's tensor ranks in a pass forward, and in one backward


@dataclass(frozen=True)
class Communication:
    """The seconds of messages.

    Attributes:
        border: from one stage to the next.
        exchange_s: of a layer's tensor ranks, one all-reduce.
        update_s: of the gradients of one worker, with its copies.
    """

    border: Link
    exchange_s: float
    update_s: float


def communication(division: Division, setting: Setting) -> Communication:
    """Return what the messages take; those of tensor ranks stay within a node."""
    link = setting.link
    near = Link(link.alpha * IN_A_NODE, link.beta * IN_A_NODE)
    tensor = replace(setting, workers=division.tensor, network=None, link=near)
    copies = replace(setting, workers=division.data, network=None)
    return Communication(
        link,
        collective_s(RING, tensor, division.activation),
        collective_s(RING, copies, setting.nbytes / (division.stages * division.tensor)),
    )


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
    takes = communication(division, setting)
    times = Draws(setting).block() * setting.compute_s
    by_place = times.reshape(setting.steps, division.data, division.stages, division.tensor)
    paces = by_place.max(axis=3).transpose(0, 2, 1)
    if (paces == paces[:, :, :1]).all():
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
    outcome.compute_s = float(by_place.sum(axis=(0, 1, 3)) @ np.array([sum(own) for own in division.share]))
    layers = sum(map(sum, division.layers)) / division.stages
    exchanging_s = 2 * EXCHANGES * layers * division.micro_batches * takes.exchange_s
    outcome.comm_s = outcome.computed * (exchanging_s + takes.update_s)
    outcome.wait_s = max(0.0, setting.workers * outcome.wall_s - outcome.compute_s - outcome.comm_s)
    return setting, finished(outcome, quadratic, outcome.computed)


class Clock:
    """Until when each stage of each copy of the pipeline has worked.

    Args:
        copies: how many are followed. One is followed in plain numbers, which are faster than arrays of length 1.
        sends_block: a stage waits until its link has carried what it sends.

    Attributes:
        now: by stage, the seconds of each copy, or one number for all.
    """

    def __init__(self, division: Division, takes: Communication, copies: int, sends_block: bool = False) -> None:
        self.takes, self.copies, self._sends_block = takes, copies, sends_block
        self.now: list[Any] = [0.0] * division.stages
        self._free: list[Any] = [0.0] * division.stages  # when the link has carried what was sent
        self._busy_s = division.activation * takes.border.beta
        self._program = list(_program(division, takes.exchange_s))

    @property
    def latest(self) -> float:
        """Return when the last stage of all is done."""
        return max(float(np.max(each)) for each in self.now)

    def step(self, pace: Vector) -> None:
        """Take one step of the training.

        Args:
            pace: the computing time of an average stage's step, of shape (stages, copies).
        """
        own: Any = pace[:, 0].tolist() if self.copies == 1 else pace
        later: Any = max if self.copies == 1 else np.maximum
        now, free, alpha = self.now, self._free, self.takes.border.alpha
        arrivals: dict[Sent, Any] = {}
        for stage, part, exchange_s, sent, received in self._program:
            if received:
                now[stage] = later(now[stage], arrivals.pop(received))
            elif sent:
                free[stage] = later(now[stage], free[stage]) + self._busy_s
                arrivals[sent] = free[stage] + alpha
                if self._sends_block:
                    now[stage] = free[stage]
            elif part:
                now[stage] = now[stage] + own[stage] * part + exchange_s
            else:
                now[stage] = float(np.max(now[stage])) + self.takes.update_s


def _program(division: Division, exchange_s: float) -> Iterator[tuple[int, float, float, Sent | None, Sent | None]]:
    """Yield (stage, part of its computing, seconds of its exchanges, message sent, message received), in order.

    An update has none of these. Messages from a stage to itself take no time and are left out.
    """
    m = division.micro_batches
    for stage, step, message in in_order(division.schedule, division.stages, m):
        if isinstance(step, Update):
            yield stage, 0.0, 0.0, None, None
        elif isinstance(step, Computation):
            exchanges = 0 if isinstance(step, BackwardWeight) else EXCHANGES * division.layers[stage][step.chunk]
            part = duration(step, THIRDS, 1) * division.share[stage][step.chunk] / m
            yield stage, part, exchanges * exchange_s, None, None
        elif message and message[-1] != message[-2]:
            sends = isinstance(step, SHIPMENTS)
            yield stage, 0.0, 0.0, message if sends else None, None if sends else message
