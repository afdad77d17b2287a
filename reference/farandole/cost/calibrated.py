"""A prediction of a real run from runs of other methods: computing by `straggler_fit`, α and β by `measured_link`.

The slowness of `--slow` is an input of both the real run and the simulated one, so it multiplies the fitted times. What
is slept for a message follows from `--link-mbps`; a run without it is predicted with α alone. Each pass of a pipeline
takes its pace and a little more, the same for all schedules, so a schedule with more passes computes longer:

    computing of a step = 3 · micro-batches · pace + passes · what the calibration's passes took beyond their pace

α of a server's messages is half of what a step of another policy takes beyond its computing, over free links. It
contains the server's updates and threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from farandole.collectives.costs import Link
from farandole.cost.choice import Choice
from farandole.cost.comparison import compared
from farandole.cost.division import divided
from farandole.cost.measured_link import measured_link
from farandole.cost.setting import Setting
from farandole.cost.straggler_fit import fitted
from farandole.cost.stragglers import parse, written
from farandole.cost.validated_runs import (
    CONDITIONS,
    IN_PIPELINE,
    IN_STAGES,
    MBPS,
    MICRO_BATCHES,
    NARROW,
    PACE_MS,
    PIPELINE_STEPS,
    SERVED,
    STEPS,
    WIDE,
    WORKERS,
    Case,
)
from farandole.cost.validation import Recorded, recorded
from farandole.runtime.record import Run

FORWARD_AND_BACKWARD = "forward and backward"
PACED_S = 3 * MICRO_BATCHES * PACE_MS / 1e3  # of a stage's step: forward, backward for inputs, for parameters
AHEAD = 8  # times as many computing times as steps: a fast worker may take the slow ones' iterations


@dataclass(frozen=True)
class Calibration:
    """Runs of one method, from which other methods are predicted.

    Attributes:
        runs: the options of each; the first one has the computing times.
        gives: "α and β", of messages of different lengths; otherwise α alone, "of a pipeline" or "of a server", and β
            is that of "ring".
    """

    method: str
    scenario: str
    runs: Sequence[Mapping[str, Any]]
    steps: int = STEPS
    gives: Literal["α and β", "of a pipeline", "of a server"] = "α and β"
    ranks: int = WORKERS
    mbps: float | None = MBPS

    @property
    def options(self) -> dict[str, Any]:
        """Return the options that all of its runs have."""
        return {"steps": self.steps} | ({"link_mbps": self.mbps} if self.mbps else {})


def _other_schedule(name: str) -> Calibration:
    return Calibration(name, "pipeline", (IN_STAGES | {"schedule": name},), PIPELINE_STEPS, "of a pipeline")


def _other_policy(name: str) -> Calibration:
    return Calibration(name, "parameter_server", (SERVED | {"sync": name},), STEPS, "of a server", WORKERS + 1, None)


CALIBRATIONS: dict[str, Calibration] = {
    "ring": Calibration("ring", "sync_sgd", (WIDE, NARROW)),
    "gossip": Calibration("gossip", "dpsgd", (WIDE, NARROW)),
    "gpipe": _other_schedule("gpipe"),
    "1f1b": _other_schedule("1f1b"),
    "bsp": _other_policy("bsp"),
    "async": _other_policy("async"),
}


@dataclass(frozen=True)
class Calibrated:
    """The calibration from the runs of one method.

    Attributes:
        compute_s: mean of a rank's step, the update included.
        straggler: how it scatters, as of --straggler.
        alpha, beta: of a message, in seconds, and seconds per byte; beta is that of the slow links.
        pass_s: of each pass of a pipeline, beyond its pace; 0 where there are none.
        link_error: the largest relative error of this model over all ranks, as of `measured_link`.
        of: the method whose runs they were.
    """

    compute_s: float
    straggler: str
    alpha: float
    beta: float
    link_error: float
    of: str
    pass_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def calibrated(of: Calibration, runs: Sequence[Run], ring: Calibrated | None = None) -> Calibrated:
    """Return what finished runs give, the first of which has the computing times.

    Args:
        ring: has β, and how computing scatters, where α alone follows from these runs.
    """
    first, method = runs[0], of.method
    busy = [seconds for seconds in first.summary.compute_s if seconds > 0][-WORKERS:]  # a server's rank is before them
    compute_s = float(np.mean(busy)) / of.steps
    if not ring:
        found = measured_link(runs)
        scatter = fitted([each for own in recorded(first, FORWARD_AND_BACKWARD).seconds for each in own])
        return Calibrated(compute_s, written(scatter.straggler), found.link.alpha, found.link.beta, found.error, method)
    if of.gives == "of a server":
        alpha = max(0.0, measured_s(first) - compute_s) / 2  # a pull and a push
        return replace(ring, compute_s=compute_s, alpha=alpha, of=method)
    extra_s = max(0.0, compute_s - PACED_S) / passes(method, IN_PIPELINE)
    alpha = _waited_for_s(first, ring.beta)
    return Calibrated(PACED_S, "constant", alpha, ring.beta, ring.link_error, method, extra_s)


def passes(method: str, choice: Choice) -> int:
    """Return the number of passes of a stage in a step of a pipeline."""
    division = divided(method, WORKERS, choice)
    return division.micro_batches * division.schedule.placement.passes * (3 if division.schedule.halves else 2)


def _waited_for_s(run: Run, beta: float) -> float:
    """Return the median latency of the messages for which a stage of a pipeline waited.

    The trace has their seconds from when the sender began. A stage looks for a message again and again with pauses in
    between, which is a part of α that a ring's messages do not have.
    """
    nbytes = sum(run.summary.bytes_sent or []) / sum(run.summary.messages_sent or [1])
    seconds = []
    for rank in range(run.summary.ranks):
        events = sorted((each for each in run.trace if each["pid"] == rank), key=lambda each: float(each["ts"]))
        seconds += [
            float(after["dur"]) / 1e6
            for before, after in pairwise(events)
            if before["cat"] == "wait" and after["name"].startswith("receive")
        ]
    return max(0.0, float(np.median(seconds)) - nbytes * beta)


def computing_times(given: Calibrated, slow: Mapping[int, float], steps: int, seed: int, more_s: float = 0) -> Recorded:
    """Draw the seconds of each worker's steps, `more_s` longer than the calibration's."""
    times = (given.compute_s + more_s) * parse(given.straggler).sample(
        np.random.default_rng([seed, 0]), AHEAD * steps, WORKERS
    )
    for worker, factor in slow.items():
        times[:, worker] *= factor
    return Recorded(tuple(tuple(own) for own in times.T.tolist()))


def predicted_s(case: Case, condition: str, given: Calibrated, seed: int) -> float:
    """Return the predicted seconds in which each worker gives one gradient, on average."""
    met = CONDITIONS[condition]
    more_s = given.pass_s * passes(case.method, case.choice) if given.pass_s else 0.0
    times = computing_times(given, met.slow, case.steps, seed, more_s)
    link = Link(given.alpha, given.beta if met.mbps else 0.0)
    setting = Setting(WORKERS, case.steps, 1.0, times, case.nbytes, link, servers=1, duplex=False, seed=seed)
    outcome = compared(case.method, setting, case.choice).outcome
    return WORKERS * outcome.wall_s / outcome.gradients


def measured_s(run: Run) -> float:
    """Return the measured seconds in which each worker gave one gradient, on average."""
    summary = run.summary
    counted = sum(summary.staleness.values()) if summary.staleness else summary.steps * WORKERS
    # The scenario measures the loss over all samples between two rounds, which its metrics do not count.
    wall_s = run.metrics[-1]["wall_s"] if summary.scenario == "dynamic_sync" else summary.wall_s
    return WORKERS * float(wall_s) / counted


def encoding_s(run: Run) -> float:
    """Return the seconds that a step of the slowest rank took to encode and decode; 0 without compression."""
    spent = run.summary.compression or {}
    return sum(max(spent.get(name, [0.0])) for name in ("encode_s", "decode_s")) / max(1, run.summary.steps)
