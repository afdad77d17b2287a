"""Methods in rounds: all workers take their own steps, wait for the slowest, and all-reduce the results.

    synchronous        a step each
    local SGD          H steps each
    dynamic rounds     as many steps as the controller of `data_parallel.controller` plans from the simulated times of
                       earlier rounds; and an all-reduce of 2n measured numbers, by doubling

A round takes the time of the slowest worker's steps and that of the all-reduce, so no events are needed.

On the quadratic that stands for learning, local SGD's mean moves as synchronous SGD's does, because all workers'
curvatures are equal; what going apart costs with real data is not shown here. Where worker r takes τ_r steps and H is
their mean, the normalised rule of `data_parallel.agnostic` is, with the learning rate γ, noise σ and q = 1 − γh,

    x ← x − H/n·Σ_r (x − x_r)/τ_r        x_r = q^τ_r·x + noise of variance γ²σ²·Σ_{k<τ_r} q^2k

so that one draw does for the noise of all workers. Source of the rule: Wang et al., 2020 (FedNova).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from farandole.cost.quadratic import CURVATURES, Quadratic
from farandole.cost.setting import Draws, Outcome, Setting, Vector
from farandole.data_parallel.controller import Controller


def simulated(setting: Setting, period: int, all_reduce_s: float | Callable[[float], float]) -> Outcome:
    """Simulate local SGD with `period` steps from one all-reduce to the next; 1: synchronous SGD.

    Args:
        all_reduce_s: seconds of the messages; or a function of the slowest worker's computing time, where messages and
            computing overlap, which returns how much longer the round takes.
    """
    outcome = Outcome()
    times = Draws(setting).block() * setting.compute_s
    quadratic, rng = Quadratic(shared(setting), outcome), np.random.default_rng([setting.seed, 1])
    scale = setting.noise / setting.workers**0.5  # of the mean of all workers' gradients
    for first in range(0, setting.steps, period):
        own = times[first : first + period].sum(axis=0)
        _add_round(outcome, own, all_reduce_s(float(own.max())) if callable(all_reduce_s) else all_reduce_s)
        outcome.computed += setting.workers * len(times[first : first + period])
        for _ in range(min(period, setting.steps - first)):
            gradient = CURVATURES * quadratic.x + rng.normal(scale=scale, size=len(CURVATURES))
            quadratic.move(gradient, 1, outcome.wall_s)
    return finished(outcome, quadratic, setting.steps * setting.workers)


def planned(setting: Setting, controller: Controller, all_reduce_s: float, telling_s: float) -> Outcome:
    """Simulate rounds as `controller` plans them; as in a real training the last may have more steps than are left.

    Args:
        telling_s: how long an all-reduce of all workers' measurements takes.
    """
    outcome = Outcome()
    steps, rng = OwnSteps(setting), np.random.default_rng([setting.seed, 1])
    quadratic = Quadratic(shared(setting), outcome)
    done = 0
    while done < setting.steps:
        period, taken = controller.plan.period, np.array(controller.plan.steps)
        own = steps.take(taken)
        controller.observe((own / taken).tolist(), (own.max() - own + all_reduce_s).tolist())
        _add_round(outcome, own, all_reduce_s + telling_s)
        outcome.computed += int(taken.sum())
        quadratic.move(period * _mean_move(setting, quadratic.x, taken, rng) / setting.lr, 1, outcome.wall_s)
        done += period
    return finished(outcome, quadratic, done * setting.workers)


class OwnSteps:
    """Each worker's computing times, of which it uses as many as it takes steps."""

    def __init__(self, setting: Setting) -> None:
        self._draws, self._compute_s = Draws(setting), setting.compute_s
        self._until = np.zeros((1, setting.workers))  # what each worker's first 0, 1, 2, … steps take together
        self._done = np.zeros(setting.workers, dtype=np.intp)

    def take(self, steps: NDArray[np.intp]) -> Vector:
        """Return the seconds that each worker takes for its next `steps` steps."""
        first, self._done = self._done, self._done + steps
        while self._done.max() >= len(self._until):
            more = self._until[-1] + np.cumsum(self._draws.block() * self._compute_s, axis=0)
            self._until = np.concatenate([self._until, more])
        workers = np.arange(len(steps))
        took: Vector = self._until[self._done, workers] - self._until[first, workers]
        return took


def _mean_move(setting: Setting, x: Vector, taken: NDArray[np.intp], rng: np.random.Generator) -> Vector:
    """Return the mean of the workers' moves, each divided by the worker's number of steps."""
    powers = (1 - setting.lr * CURVATURES) ** np.arange(int(taken.max()) + 1)[:, None]
    squares = np.cumsum(powers**2, axis=0)
    straight = ((1 - powers[taken]) / taken[:, None]).mean(axis=0) * x
    variance = (squares[taken - 1] / taken[:, None] ** 2).sum(axis=0) / len(taken) ** 2
    noise = setting.lr * setting.noise * np.sqrt(variance)
    move: Vector = straight + noise * rng.normal(size=len(x))
    return move


def shared(setting: Setting) -> Setting:
    """Return the setting for one vector that moves by the mean of all workers' gradients."""
    return replace(setting, workers=1)


def _add_round(outcome: Outcome, own: Vector, all_reduce_s: float) -> None:
    """`own`: for how long each worker has computed."""
    outcome.wall_s += float(own.max()) + all_reduce_s
    outcome.compute_s += float(own.sum())
    outcome.wait_s += float((own.max() - own).sum())
    outcome.comm_s += all_reduce_s * len(own)


def finished(outcome: Outcome, quadratic: Quadratic, gradients: int) -> Outcome:
    """Note what all methods in rounds have in common at the end."""
    outcome.gradients = outcome.staleness[0] = outcome.lead[0] = gradients
    outcome.final_loss = quadratic.loss
    return outcome
