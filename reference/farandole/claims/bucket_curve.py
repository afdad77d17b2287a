"""A claim about the size of a bucket, measured on real ranks: the curve that `bucket_size` computes.

Each of 4 ranks computes by sleeping, layer by layer, and sends over a link of a given speed and latency, so that the
cores of this machine hardly matter. Every point is predicted before any of them is measured:

    1. calibration     two trainings without buckets give α, β and the computing time of a step
    2. prediction      the timeline of `ddp-buckets`: a ring for each bucket, as soon as backward has filled it
    3. measurement     `sync_sgd --overlap` with each size; the median step
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.claims.scaling import Layers, finished, ready
from farandole.claims.trainings import TIMEOUT_S, Trained, trained
from farandole.collectives.costs import Link
from farandole.cost.measured_link import measured_link
from farandole.cost.paced_task import DEEP_LAYERS, DEEP_WIDE
from farandole.launching import launch
from farandole.runtime import rank_starter

RANKS, STEPS = 4, 12
SIZES_KB = (1, 62, 124, 248, 496, 992)  # each tensor; 1, 2, 4 and 8 layers; all 16
TRAINING: dict[str, Any] = {"batch": 12 * RANKS, "steps": STEPS, "link_mbps": 150, "link_latency_ms": 1}
WIDE, NARROW = "farandole.cost.paced_task:deep_wide", "farandole.cost.paced_task:deep_narrow"


def paced_layers() -> Layers:
    """Return the task's parameter tensors: a weight and a bias of each layer, which are ready at the same time.

    A layer's operations stand with its bias, which is the later tensor and so the first one in backward's order.
    """
    return [(DEEP_WIDE**2, 0.0), (DEEP_WIDE, 1.0)] * DEEP_LAYERS


def predicted(kilobytes: int, step_s: float, link: Link) -> float:
    """Return the predicted seconds of a step with buckets of this size.

    Args:
        step_s: the computing of a step.
    """
    return finished(ready(paced_layers(), step_s, kilobytes * 250), RANKS, link)


def calibrated() -> tuple[Link, float]:
    """Measure α and β, and the computing time of a step, by trainings that reduce the whole gradient after backward."""
    rank_starter.prepare()
    with TemporaryDirectory(prefix="farandole-claim-") as folder:
        runs = [
            launch("sync_sgd", RANKS, timeout_s=TIMEOUT_S, out=Path(folder) / f"run-{number}", task=task, **TRAINING)
            for number, task in enumerate((WIDE, NARROW))
        ]
        return measured_link(runs).link, fmean(runs[0].summary.compute_s) / STEPS


def step_s(run: Trained) -> float:
    """Return the median time from one step's end to the next one's."""
    return float(median(after["wall_s"] - before["wall_s"] for before, after in pairwise(run.metrics)))


def curve() -> Measured:
    """Predict a step for each bucket size, and then measure each."""
    link, compute_s = calibrated()
    expected = {size: predicted(size, compute_s, link) for size in SIZES_KB}

    def measure(size: int, overlap: bool = True) -> float:
        return step_s(trained("sync_sgd", RANKS, task=WIDE, bucket_kb=size, overlap=overlap, **TRAINING)[0])

    found = {size: measure(size) for size in SIZES_KB}
    best, foreseen = min(found, key=lambda size: found[size]), min(expected, key=lambda size: expected[size])
    figures: dict[str, float | None] = {
        "one bucket / the best size": found[SIZES_KB[-1]] / found[best],
        "each tensor by itself / the best size": found[SIZES_KB[0]] / found[best],
        "the same buckets after backward / beside it": measure(best, overlap=False) / found[best],
        "the size predicted to be best / the best size": found[foreseen] / found[best],
        "largest error of a prediction, percent": 100 * max(abs(expected[size] / found[size] - 1) for size in SIZES_KB),
        "the best size, kB": best,
        "α, ms": 1e3 * link.alpha,
        "β, of 150 Mbit/s": link.beta * TRAINING["link_mbps"] * 1e6 / 8,
        "computing of a step, ms": 1e3 * compute_s,
    }
    lines = {
        "measured": [(float(size), 1e3 * seconds) for size, seconds in found.items()],
        "predicted": [(float(size), 1e3 * seconds) for size, seconds in expected.items()],
    }
    return Measured(figures, Picture("bucket, kB (1: each tensor by itself)", "ms of a step, 4 ranks", lines, log="x"))


CLAIMS = (
    Claim(
        "ddp-buckets-measured",
        Source("Li et al.", 2020, "PyTorch distributed: experiences on accelerating data parallel training",
               "section 3.2.3 and experiments"),
        "Gradients that are reduced in buckets beside backward take less time than all at the end, and than each by "
        "itself: a size between is best.",
        "paced ranks",
        "4 ranks that sleep 12 ms for each of 16 layers, a third of it forward; 992 kB of parameters in 32 tensors; "
        "links of 150 Mbit/s and 1 ms; a ring for each bucket of 1, 2, 4, 8 or 16 layers, or of a tensor. α, β and the "
        "computing come from trainings without buckets, and all steps are predicted from them before one is measured",
        60,
        curve,
        (
            Bound("one bucket / the best size", "one bucket is at least 10 % slower", least=1.1, core=True),
            Bound("each tensor by itself / the best size", "so is each tensor by itself", least=1.1, core=True),
            Bound("the same buckets after backward / beside it", "so are the best buckets after backward", least=1.1),
            Bound("the size predicted to be best / the best size", "the size that is predicted to be best is at most "
                  "5 % slower than the best", most=1.05,
                  otherwise="two sizes beside each other differ by less than the error of a prediction"),
            Bound("largest error of a prediction, percent", "each step is predicted within 10 %", most=10,
                  otherwise="the calibration knows what a message takes after backward. Beside it, the thread that "
                  "reduces shares the interpreter with backward, and every bucket is passed to it"),
        ),
        "data_parallel/overlapped.py",
    ),
)  # fmt: skip
