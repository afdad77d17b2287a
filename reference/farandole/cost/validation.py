"""Is the simulator right? A run of the parameter server is predicted from its own computing times, and compared.

The i-th computation of each worker takes in the simulation what it took in the run, injected slowness included. The
policy is the run's. What remains to be predicted is the synchronisation: which worker waits for which, and for how
long. The prediction leaves out what messages and updates take on this machine, so it fits where computing is long.

It includes a link of `--link-mbps`, of that speed and with messages of the record's mean length. A server has one
thread, which sends or receives, so both queue for one link, as in the simulator without `duplex`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from farandole.collectives.costs import Link
from farandole.cost.comparison import Choice, compared
from farandole.cost.setting import NO_NETWORK, Setting
from farandole.cost.stragglers import Straggler, Times
from farandole.errors import UsageError
from farandole.parameter_server.core.policies import POLICIES, named
from farandole.runtime.record import Run


@dataclass(frozen=True)
class Recorded(Straggler):
    """Recorded computing times: each worker's in order, and then from the beginning again."""

    seconds: tuple[tuple[float, ...], ...]

    @property
    def recorded(self) -> tuple[tuple[float, ...], ...]:  # type: ignore[override]  # elsewhere there is none
        return self.seconds

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        return np.stack([np.resize(own, steps) for own in self.seconds[:workers]], axis=1)


@dataclass(frozen=True)
class Verdict:
    """Seconds in which as many gradients count as there are workers.

    Attributes:
        error: predicted over measured, less 1.
    """

    sync: str
    workers: int
    measured_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1

    def to_dict(self) -> dict[str, object]:
        return {
            "sync": self.sync,
            "workers": self.workers,
            "measured_s": self.measured_s,
            "predicted_s": self.predicted_s,
            "error": self.error,
        }


def recorded(run: Run, name: str = "forward and backward") -> Recorded:
    """Return the computing times of every rank that has a computation of this name.

    Raises:
        UsageError: no rank has.
    """
    seconds: dict[int, list[float]] = defaultdict(list)
    for event in sorted(run.trace, key=lambda event: float(event["ts"])):
        if event["name"] == name:
            seconds[event["pid"]].append(event["dur"] / 1e6)
    if not seconds:
        raise UsageError(f"{run.folder} has no computation called {name!r} in its trace: give a run of a training")
    return Recorded(tuple(tuple(seconds[rank]) for rank in sorted(seconds)))


def against(run: Run) -> Verdict:
    """Return the prediction beside the measurement.

    Raises:
        UsageError: `run` is no run of the parameter server, or its link is one that cannot be simulated.
    """
    config, summary = run.config, run.summary
    sync = named(config.get("sync", ""))
    if summary.scenario != "parameter_server" or sync not in POLICIES or not summary.staleness:
        raise UsageError(f"{run.folder} is a run of {summary.scenario}: give one of parameter_server")
    times = recorded(run)
    workers = len(times.seconds)
    enough = (config.get("enough") or max(1, workers - 1)) / workers
    choice = Choice(config["staleness"], config["least_staleness"], config["longest_wait"], enough, config["patience"])
    steps = max(1, round(sum(len(own) for own in times.seconds) / workers))
    link, nbytes = _network(run, sum(len(own) for own in times.seconds))
    setting = Setting(workers, steps, 1.0, times, nbytes, link, servers=config["servers"], seed=summary.seed)
    outcome = compared(sync, setting, choice).outcome
    counted = sum(summary.staleness.values())
    return Verdict(sync, workers, workers * summary.wall_s / counted, workers * outcome.wall_s / outcome.gradients)


def _network(run: Run, computations: int) -> tuple[Link, float]:
    """Return the run's link, and the mean length of its messages: each computation has a pull and a push.

    Raises:
        UsageError: the link's speed changes, or it carries other messages than pulls and pushes.
    """
    config = run.config
    if not config.get("link_mbps"):
        return NO_NETWORK, 0.0
    for given, option in (
        (config.get("link_change"), "--link-change"),
        (config.get("tree"), "--tree"),
        (config.get("replicas", 1) > 1, "--replicas"),
    ):
        if given:
            raise UsageError(f"{run.folder} has a slow link and {option}, which the simulator does not know together")
    link = Link(config.get("link_latency_ms", 0.0) / 1e3, 8 / (config["link_mbps"] * 1e6))
    return link, sum(run.summary.bytes_sent or [0]) / (2 * computations)
