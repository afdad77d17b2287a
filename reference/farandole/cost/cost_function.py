"""The synchronisation cost C = T_comm + T_comp of one step, for each method, and what follows from it.

    synchronous         E[max of n] + all-reduce
    overlapped          at least the larger of the two
    partial             E[k-th of n] + all-reduce, if the late are cut short
    parameter server    E[max of n] + 2Pnβ/S: all read and all push, P bytes each, at S servers with a link of β
    local SGD           E[max of the sums of H steps]/H + all-reduce/H

T_comp includes the wait for the slowest worker, so it grows with n. What all-reduces take is counted over the steps of
their schedules, for 10,000 ranks over those of one (`collectives.costs`). The time to an accuracy is the number of
steps times the time of one, and each method changes both.

Amdahl 1967: with a part s of the work that only one can do, n workers are 1/(s + (1 − s)/n) times as fast. Gustafson
1988: a problem that grows with n is done s + (1 − s)n times as fast. Critical batch size: McCandlish et al., "An
empirical model of large-batch training", 2018. Document 002.
"""

from __future__ import annotations

from dataclasses import dataclass

from farandole.collectives.costs import Link, Machine, coefficients, critical_path_s
from farandole.collectives.hierarchical import hierarchical
from farandole.collectives.ring import ALL_GATHER
from farandole.collectives.schedules import SCHEDULES
from farandole.cost.stragglers import Straggler
from farandole.errors import UsageError
from farandole.runtime.record import Run, Summary


@dataclass(frozen=True)
class Cost:
    """Seconds of one step."""

    compute_s: float
    comm_s: float

    @property
    def total_s(self) -> float:
        """C."""
        return self.compute_s + self.comm_s


def synchronous(straggler: Straggler, compute_s: float, workers: int, all_reduce_s: float) -> Cost:
    """Return the cost of a synchronous step: the slowest worker's computing, and then an all-reduce."""
    return Cost(compute_s * straggler.expected_maximum(workers), all_reduce_s)


def all_reduce_s(method: str, ranks: int, nbytes: float, link: Link) -> float:
    """Return the seconds of an all-reduce of `collectives.schedules`, counted over its steps; adding is left out."""
    alphas, betas, _ = coefficients(SCHEDULES[method][0], ranks)
    return alphas * link.alpha + betas * nbytes * link.beta


def all_gather_s(ranks: int, nbytes: float, link: Link) -> float:
    """Return the seconds of a ring all-gather, at the end of which each rank has `nbytes`."""
    alphas, betas, _ = coefficients(ALL_GATHER, ranks)
    return alphas * link.alpha + betas * nbytes * link.beta


def hierarchical_s(ranks: int, per_node: int, nbytes: float, within: Link, across: Link) -> float:
    """Return the seconds of a ring in each node, and of rings across the nodes, each rank with its own link.

    Raises:
        UsageError: the ranks do not fill their nodes.
    """
    if ranks % per_node:
        raise UsageError(f"{ranks} workers do not fill nodes of {per_node}: give a multiple, or another --per-node")
    return critical_path_s(hierarchical(per_node), ranks, nbytes, Machine(within, 0.0, across, per_node))


def amdahl(serial: float, workers: int) -> float:
    """Return the speed-up of a fixed amount of work."""
    return 1 / (serial + (1 - serial) / workers)


def gustafson(serial: float, workers: int) -> float:
    """Return the growth of the work that is done in a fixed time."""
    return serial + (1 - serial) * workers


@dataclass(frozen=True)
class NoiseScale:
    """The noise of gradients: tr Σ, and the squared length of the true gradient, both without bias."""

    variance: float
    squared_gradient: float

    @property
    def critical_batch(self) -> float:
        """B_simple: far below, twice the batch halves the steps; far above, it saves nothing."""
        return self.variance / self.squared_gradient if self.squared_gradient > 0 else float("inf")


def noise_scale(small_batch: int, small_squared: float, big_batch: int, big_squared: float) -> NoiseScale:
    """From the squared lengths of gradients over a small and a large batch, each averaged over many steps.

    |G_B|² is on average |G|² + tr Σ/B; two B give both. Data parallel has the two for nothing: the rank's own gradient,
    and the all-reduced one.

    Raises:
        UsageError: the batches are not a small and a larger one.
    """
    if not 0 < small_batch < big_batch:
        raise UsageError(f"batches of {small_batch} and {big_batch}: the first must be smaller, and above 0")
    squared = (big_batch * big_squared - small_batch * small_squared) / (big_batch - small_batch)
    variance = (small_squared - big_squared) / (1 / small_batch - 1 / big_batch)
    return NoiseScale(variance, squared)


def steps_needed(least_steps: float, critical_batch: float, batch: float) -> float:
    """Return S = S_min(1 + B_crit/B), the steps with this batch that equal `least_steps` with an unlimited one."""
    return least_steps * (1 + critical_batch / batch)


@dataclass(frozen=True)
class Sides:
    """The four sides of document 002, as one record has measured them.

    Attributes:
        communication_s: per step and rank, without waiting.
        computing_share: of all ranks' time, 0 to 1.
        steps_to_loss: the first step with a loss at or below the goal; None: none.
        speed_up: samples per second over those of the run that is compared with; None without one.
    """

    communication_s: float
    computing_share: float
    steps_to_loss: int | None
    speed_up: float | None


def sides(run: Run, goal: float, alone: Summary | None = None) -> Sides:
    """Return what `run` has measured; `goal` is a training loss, `alone` the same training by one rank.

    Raises:
        UsageError: one of them has not taken a step.
    """
    summary = run.summary
    if not summary.steps or (alone and not alone.samples_per_s):
        raise UsageError(f"no step was taken in {run.folder}, or in the run that it is compared with: give others")
    compute, comm, wait = sum(summary.compute_s), sum(summary.comm_s), sum(summary.wait_s)
    reached = (line["step"] for line in run.metrics if line.get("loss") is not None and line["loss"] <= goal)
    return Sides(
        communication_s=comm / summary.steps / summary.ranks,
        computing_share=compute / (compute + comm + wait),
        steps_to_loss=next(reached, None),
        speed_up=summary.samples_per_s / alone.samples_per_s if alone else None,
    )
