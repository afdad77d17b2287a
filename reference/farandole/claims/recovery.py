"""Claims about failures: the interval between checkpoints, tried in simulated time."""

from __future__ import annotations

import numpy as np

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.recovery.interval import daly, expected_s, young

COST_S, RESTART_S, MTBF_S = 60.0, 120.0, 7200.0
WORK_S = 200 * MTBF_S  # of each simulated training
SEEDS = 8
FACTORS = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0)


def waste(interval_s: float, seed: int) -> float:
    """Simulate a training with failures, and return the share of its time that is not work that lasts.

    A failure strikes after an exponential time, while work, a checkpoint or a restart is under way. What was done since
    the last complete checkpoint is done again.
    """
    rng = np.random.default_rng(seed)
    now = done = 0.0
    next_failure = rng.exponential(MTBF_S)
    while done < WORK_S:
        segment = min(interval_s, WORK_S - done)
        if now + segment + COST_S <= next_failure:
            now, done = now + segment + COST_S, done + segment
            continue
        while True:
            now = next_failure
            next_failure = now + rng.exponential(MTBF_S)
            if now + RESTART_S <= next_failure:
                now += RESTART_S
                break
    return 1 - WORK_S / now


def interval() -> Measured:
    """Simulate trainings for intervals around Young's, and compare their waste with Daly's formula."""
    best = young(COST_S, MTBF_S)
    wastes = {factor: float(np.mean([waste(factor * best, seed) for seed in range(SEEDS)])) for factor in FACTORS}
    formula = {factor: 1 - WORK_S / expected_s(WORK_S, factor * best, COST_S, RESTART_S, MTBF_S) for factor in FACTORS}
    least = min(wastes.values())
    figures = {
        "waste at Young's interval / least waste": wastes[1.0] / least,
        "the best interval / Young's": min(wastes, key=lambda factor: wastes[factor]),
        "waste at half and at twice the interval / at Young's, larger": max(wastes[0.5], wastes[2.0]) / wastes[1.0],
        "waste at an eighth / at Young's": wastes[0.125] / wastes[1.0],
        "Daly's interval / Young's": daly(COST_S, MTBF_S) / best,
        "largest distance from Daly's expected waste": max(abs(wastes[each] - formula[each]) for each in FACTORS),
    }
    lines = {"simulated": [(factor * best, value) for factor, value in wastes.items()],
             "Daly's formula": [(factor * best, value) for factor, value in formula.items()]}  # fmt: skip
    return Measured(figures, Picture("seconds between checkpoints", "share of the time that is lost", lines, log="x"))


CLAIMS = (
    Claim(
        "young-daly",
        Source("Young 1974; Daly", 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps",
               "on the optimum interval"),
        "The waste is least near an interval of √(2·C·μ) between checkpoints, and flat around it; the expected time "
        "is μ·exp(R/μ)·(exp((T + C)/μ) − 1)·work/T.",
        "simulated",
        "a checkpoint of 60 s, a restart of 120 s, exponential failures every two hours on average; trainings of 400 "
        "hours, 8 seeds, for intervals from an eighth to eight times Young's",
        1,
        interval,
        (
            Bound("waste at Young's interval / least waste", "at most 3 % above the least waste", most=1.03, core=True),
            Bound("the best interval / Young's", "the best interval is within half and 1.5 times", 0.5, 1.5, core=True),
            Bound("waste at half and at twice the interval / at Young's, larger", "flat: at most a third more",
                  most=1.34),
            Bound("largest distance from Daly's expected waste", "Daly's expected time, within 1.5 points of waste",
                  most=0.015, core=True),
        ),
        "recovery/interval.py",
    ),
)  # fmt: skip
