"""Twelve methods by their names, on one axis: the policies through events, the collective ones through their formulas.

A collective method needs no events: a step is over when the slowest has come and the all-reduce is done, so all steps
are computed at once. On the quadratic that stands for learning, local SGD's mean moves as synchronous SGD's does,
because all workers' curvatures are equal; what going apart costs with real data is not shown here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from farandole.collectives.costs import Link
from farandole.cost.cost_function import all_reduce_s, hierarchical_s
from farandole.cost.simulator import CURVATURES, Draws, Outcome, Quadratic, Setting, Simulation
from farandole.parameter_server.policies import (
    Asynchronous,
    Dynamic,
    Half,
    History,
    Minibatch,
    Partial,
    Policy,
    Stale,
)

POLICIES = ("minibatch", "stale", "async", "half", "partial", "dynamic", "history")
ALL_REDUCES = ("ring", "tree", "halving-doubling", "hierarchical")
LOCAL = "local-sgd"
METHODS = (*POLICIES, *ALL_REDUCES, LOCAL)
IN_A_NODE = 0.1  # what a message costs within a node, as a part of what it costs between two
MOST_IN_A_NODE = 8


@dataclass(frozen=True)
class Choice:
    """The methods' own options.

    Attributes:
        enough: partial and history: which share of the workers makes a step; always one at least.
        period: steps that local SGD takes apart.
        per_node: workers of a node, for hierarchical; None: as many, up to 8, as divide the workers.
    """

    staleness: int = 4
    least_staleness: int = 1
    longest_wait: float = 0.02
    enough: float = 0.9
    patience: float = 0.5
    period: int = 8
    per_node: int | None = None


@dataclass(frozen=True)
class Row:
    """One method with one number of workers.

    Attributes:
        step_s: time in which each worker gives one gradient, on average.
        efficiency: of a training where nobody waits and nothing is sent, the part of the speed that is left.
    """

    method: str
    setting: Setting = field(repr=False)
    outcome: Outcome = field(repr=False)

    @property
    def step_s(self) -> float:
        return self.outcome.wall_s / self.setting.steps

    @property
    def gradients_per_s(self) -> float:
        return self.outcome.gradients / self.outcome.wall_s

    @property
    def efficiency(self) -> float:
        ideal = self.setting.workers / (self.setting.compute_s * self.setting.straggler.mean)
        return self.gradients_per_s / ideal

    def to_dict(self) -> dict[str, object]:
        outcome = self.outcome
        return {
            "method": self.method,
            "workers": self.setting.workers,
            "step_s": self.step_s,
            "gradients_per_s": self.gradients_per_s,
            "efficiency": self.efficiency,
            "wait_share": outcome.wait_share,
            "staleness_mean": mean_of(outcome.staleness),
            "staleness_max": max(outcome.staleness, default=0),
            "lead_max": max(outcome.lead, default=0),
            "dropped": outcome.dropped,
            "to_loss_s": outcome.to_loss_s,
            "final_loss": outcome.final_loss,
        }


def mean_of(histogram: dict[int, int]) -> float:
    total = sum(histogram.values())
    return sum(value * count for value, count in histogram.items()) / total if total else 0.0


def compared(method: str, setting: Setting, choice: Choice) -> Row:
    """Simulate one of `METHODS`."""
    if method in POLICIES:
        policy = _policy(method, setting, choice)
        return Row(method, setting, Simulation(policy, setting).run())
    period = choice.period if method == LOCAL else 1
    return Row(method, setting, _collective(setting, period, _all_reduce_s(method, setting, choice)))


def _policy(method: str, setting: Setting, choice: Choice) -> Policy:
    enough = max(1, round(choice.enough * setting.workers))
    make: dict[str, Callable[[range], Policy]] = {
        "minibatch": Minibatch,
        "stale": lambda workers: Stale(workers, choice.staleness),
        "async": Asynchronous,
        "half": lambda workers: Half(workers, choice.staleness, choice.longest_wait, setting.seed),
        "partial": lambda workers: Partial(workers, enough),
        "dynamic": lambda workers: Dynamic(workers, min(choice.least_staleness, choice.staleness), choice.staleness),
        "history": lambda workers: History(workers, enough, choice.patience),
    }
    return make[method](range(setting.workers))


def _all_reduce_s(method: str, setting: Setting, choice: Choice) -> float:
    link = setting.link
    if method == "hierarchical":
        within = Link(link.alpha * IN_A_NODE, link.beta * IN_A_NODE)
        fitting = max(count for count in range(1, MOST_IN_A_NODE + 1) if setting.workers % count == 0)
        per_node = min(choice.per_node or fitting, setting.workers)
        return hierarchical_s(setting.workers, per_node, setting.nbytes, within, link)
    return all_reduce_s("ring" if method == LOCAL else method, setting.workers, setting.nbytes, link)


def _collective(setting: Setting, period: int, all_reduce: float) -> Outcome:
    outcome = Outcome()
    times = Draws(setting).block() * setting.compute_s
    quadratic, rng = Quadratic(replace(setting, workers=1), outcome), np.random.default_rng([setting.seed, 1])
    scale = setting.noise / setting.workers**0.5  # of the mean of all workers' gradients
    for first in range(0, setting.steps, period):
        own = times[first : first + period].sum(axis=0)
        outcome.wall_s += float(own.max()) + all_reduce
        outcome.wait_s += float((own.max() - own).sum())
        outcome.comm_s += all_reduce * setting.workers
        steps = min(period, setting.steps - first)
        for _ in range(steps):
            gradient = CURVATURES * quadratic.x + rng.normal(scale=scale, size=len(CURVATURES))
            quadratic.move(gradient, 1, outcome.wall_s)
    outcome.compute_s = float(times.sum())
    outcome.gradients = setting.steps * setting.workers
    outcome.staleness[0] = outcome.lead[0] = outcome.gradients
    outcome.final_loss = quadratic.loss
    return outcome
