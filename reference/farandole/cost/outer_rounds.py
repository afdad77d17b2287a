"""DiLoCo and streaming DiLoCo at many workers: when each worker waits for a sum, by `data_parallel.outer_step`.

Worker i has computed its first s steps at t_i. The ranks add up a fragment of n/F bytes in a ring, which takes m:

    begins at b = max(all t_i, the end of the ring before)      needed after step s + τ: t_i ← max(t_i, b + m)

With τ = 0 it is local SGD's round, in F parts. On the quadratic that stands for learning all workers' curvatures are
equal, so the mean of their parameters moves by the mean gradient, as in `rounds`; the outer steps and the mixing are
linear, so they move this mean as they move every worker.
"""

from __future__ import annotations

import numpy as np

from farandole.collectives.steps import chunk_slices
from farandole.cost.quadratic import CURVATURES, Quadratic
from farandole.cost.rounds import finished, shared
from farandole.cost.setting import Draws, Outcome, Setting
from farandole.data_parallel.outer_step import Outer


class OuterRounds:
    """A simulation of DiLoCo.

    Args:
        reduce_s: seconds in which the workers add up one fragment.
    """

    def __init__(self, setting: Setting, outer: Outer, reduce_s: float) -> None:
        self.setting, self.outer, self.reduce_s = setting, outer, reduce_s
        self.outcome = Outcome()
        self.done = np.zeros(setting.workers)  # until when each worker has worked
        self.quadratic = Quadratic(shared(setting), self.outcome)
        self.common, self.velocity = self.quadratic.x.copy(), np.zeros(len(CURVATURES))
        self.parts = chunk_slices(len(CURVATURES), outer.fragments)
        self._free = 0.0  # when the ring before is complete
        self._sums: list[tuple[int, int, float, np.ndarray]] = []  # fragment, due, begun, moved

    def run(self) -> Outcome:
        """Take all steps, and the outer steps that are left at the end."""
        setting, outcome = self.setting, self.outcome
        times = Draws(setting).block() * setting.compute_s
        rng, scale = np.random.default_rng([setting.seed, 1]), setting.noise / setting.workers**0.5
        for step, own in enumerate(times, 1):
            self.done = self.done + own
            outcome.compute_s += float(own.sum())
            gradient = CURVATURES * self.quadratic.x + rng.normal(scale=scale, size=len(CURVATURES))
            self.quadratic.move(gradient, 1, float(self.done.max()))
            for fragment in range(self.outer.fragments):
                if self.outer.sends(fragment, step):
                    self._send(fragment, step + self.outer.delay)
            self._take(step)
        self._take(setting.steps + self.outer.delay)
        for fragment in self.outer.left(setting.steps):
            self._send(fragment, setting.steps)
            self._take(setting.steps)
        self.quadratic.x = self.common
        outcome.wall_s, outcome.computed = float(self.done.max()), setting.steps * setting.workers
        return finished(outcome, self.quadratic, outcome.computed)

    def _send(self, fragment: int, due: int) -> None:
        begun = max(self._free, float(self.done.max()))
        self._free = begun + self.reduce_s
        part = self.parts[fragment]
        self._sums.append((fragment, due, begun, self.common[part] - self.quadratic.x[part]))

    def _take(self, step: int) -> None:
        """Take the outer steps that are due after this step."""
        while self._sums and self._sums[0][1] <= step:
            fragment, _, begun, moved = self._sums.pop(0)
            ends, part = begun + self.reduce_s, self.parts[fragment]
            self.outcome.wait_s += float(np.clip(begun - self.done, 0, None).sum())
            self.outcome.comm_s += float(np.clip(ends - np.maximum(self.done, begun), 0, None).sum())
            self.done = np.maximum(self.done, ends)
            self.outer.move(self.common[part], self.velocity[part], moved)
            self.quadratic.x[part] = self.outer.continued(self.quadratic.x[part], self.common[part])
