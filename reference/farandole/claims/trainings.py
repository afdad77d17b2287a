"""Short trainings that rows launch, each in a folder that is removed afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from farandole.launching import launch
from farandole.runtime import rank_starter
from farandole.runtime.record import Summary

TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Trained:
    """One finished training.

    Attributes:
        losses: of its steps, in order; a loss that is not finite is nan.
        metrics: the lines of its record.
    """

    summary: Summary
    losses: list[float]
    metrics: list[dict[str, Any]] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """Return the share of the test samples that is classified right; 0 where the training diverged."""
        return self.summary.test_accuracy or 0.0

    @property
    def bytes_sent(self) -> int:
        """Return the bytes of the rank that sent most."""
        return max(self.summary.bytes_sent or [0])


def trained(scenario: str, ranks: int, seeds: int = 1, **options: Any) -> list[Trained]:
    """Launch a scenario with seeds 0, 1, … one after the other.

    Raises:
        LaunchError: a rank failed, or the time-out passed.
    """
    rank_starter.prepare()
    found = []
    for seed in range(seeds):
        with TemporaryDirectory(prefix="farandole-claim-") as folder:
            run = launch(scenario, ranks, timeout_s=TIMEOUT_S, out=Path(folder) / "run", seed=seed, **options)
            found.append(Trained(run.summary, [float(line["loss"]) for line in run.metrics], run.metrics))
    return found


def accuracy(runs: list[Trained]) -> float:
    """Return the mean test accuracy in percent."""
    return 100 * fmean(run.accuracy for run in runs)


def final_loss(runs: list[Trained], last: int = 20) -> float:
    """Return the mean training loss of the last steps of all runs."""
    return fmean(fmean(run.losses[-last:]) for run in runs)


def curve(runs: list[Trained], points: int = 40) -> list[tuple[float, float]]:
    """Return the first run's training loss, the mean of equal parts of its steps."""
    losses = runs[0].losses
    width = max(1, len(losses) // points)
    return [(float(at + width), fmean(losses[at : at + width])) for at in range(0, len(losses) - width + 1, width)]
