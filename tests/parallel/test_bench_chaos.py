"""`farandole bench chaos`: its result for two rates, and that ranks really die while it measures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import farandole
from farandole_tools.bench import BENCHMARKS, chaos
from farandole_tools.bench.chaos import Outcome, Plan


def test_what_a_death_costs_and_what_is_kept_at_another_rate() -> None:
    """60 s instead of 54: 6 s for 3 deaths. With one in 100 s, 2 of these are lost."""
    outcome = Outcome(calm=1000, struck=900, seconds=60, deaths=3)
    assert outcome.kept == pytest.approx(0.9)
    assert outcome.death_costs_s == pytest.approx(2)
    assert outcome.kept_at(100) == pytest.approx(0.98)


def test_without_deaths_there_is_no_cost_of_one() -> None:
    assert Outcome(calm=1000, struck=990, seconds=60, deaths=0).death_costs_s == 0


def test_each_method_trains_undisturbed_as_long_as_while_ranks_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times are planned from a first training: at 0.1 s a step, a minute has 600 steps, and half a minute 300.

    A record may count more steps than were asked for, as a parameter server's does.
    """
    launched: list[tuple[int, int, dict[str, Any]]] = []

    def launch(scenario: str, ranks: int, *, steps: int, **options: Any) -> Any:
        launched.append((ranks, steps, options))
        rate = 800 if "chaos" in options else 1000
        faults = [{}] * 4 if "chaos" in options else []
        summary = SimpleNamespace(steps=5 * steps, wall_s=0.1 * steps, samples_per_s=rate, faults=faults)
        return SimpleNamespace(summary=summary)

    monkeypatch.setattr(chaos, "launch", launch)
    outcome = chaos.measured("membership", 8, Plan(60, 10), tmp_path / "membership")
    assert [steps for _, steps, _ in launched] == [60, 300, 600, 300]
    struck = [options for _, _, options in launched if "chaos" in options]
    assert [options["chaos"] for options in struck] == [f"mtbf={chaos.RANK_LIVES_S / 80}s,seed=8"]
    assert outcome == Outcome(1000, 800, 60, 4)
    launched.clear()
    chaos.measured("membership with spares", 8, Plan(60, 10), tmp_path / "spares")
    assert [(ranks, options.get("spares", 0)) for ranks, _, options in launched] == [(8, 0), (8, 0), (14, 6), (8, 0)]


def test_ranks_really_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A death at a known step in place of random moments, at which a slow machine would lose all workers."""
    assert BENCHMARKS["chaos"] == chaos.__name__

    def launch(*what: Any, **options: Any) -> Any:
        if options.pop("chaos", None):
            options["fail"] = "rank=1,step=0"
        return farandole.launch(*what, **options)

    monkeypatch.setattr(chaos, "launch", launch)
    monkeypatch.setattr(chaos, "RECIPE", {"data": "digits", "hidden": 16, "batch": 64, "lr": 0.05})
    monkeypatch.setattr(chaos, "TRIED", 20)
    outcome = chaos.measured("membership", 3, Plan(seconds=0.5, hurry=1), tmp_path / "membership")
    assert outcome.deaths == 1
    assert min(outcome.struck, outcome.calm) > 0
