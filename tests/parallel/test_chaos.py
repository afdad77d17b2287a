"""Random kills: at whatever moment a process dies, training ends with a correct record, or reports why it cannot.

Fifty runs in `make soak`, each drawn from its number alone: scenario, ranks, spares, the deaths and their times. In
`make test` there are four, with early deaths and then none for a while, so they are short. That no process is left is
asserted after every test, by a fixture in tests/conftest.py.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from farandole import LaunchError, Run, launch
from farandole.data.sampler import batch_size, steps_per_epoch
from farandole.data.shares import equal_shares
from farandole.launching import supervised_launch
from farandole.recovery.event_log import EventLog
from farandole.recovery.events import Line
from farandole.runtime.chaos import Chaos
from tests.parallel.conftest import assert_same_training

STEPS = 300
AT_LEAST_S = 0.1  # no machine needs less for these steps: a death that is due earlier must occur
CLOCKS_S = 0.05  # between the two clocks that time a death
BATCH = 64  # the default
TRAINING_SET = 1437  # of the digits
WINDOW = 10  # steps between two exchanges of the losses
RESTARTS = 6
RECIPE: dict[str, Any] = {"steps": STEPS, "optimizer": "adam", "lr": 0.002}
SOAK = os.environ.get("FARANDOLE_SOAK") == "1"  # make soak

# The whole message where a method does not recover.
RANK = r"rank \d( at step \d+)?"
ALL_WORKERS_DIED = rf"{RANK} cannot go on: every worker has died.*"
ALL_RANKS_DIED = rf"(all ranks have died|mpirun ended with \d+)(, {RANK})*(; the last it said:.*)?"
WITH_ITS_BUDDY = rf"{RANK} cannot go on: no copy is left of what some worker knew alone, .* no whole checkpoint .*"
ONCE_TOO_OFTEN = rf"{RANK} was killed by SIGKILL \(--chaos mtbf=.*\)"
STATED = {
    "membership": (ALL_WORKERS_DIED, ALL_RANKS_DIED),
    "backup": (ALL_WORKERS_DIED, ALL_RANKS_DIED, WITH_ITS_BUDDY),
    "restart": (ONCE_TOO_OFTEN,),
}


@dataclass(frozen=True)
class Case:
    """One run on `ranks` processes, the last `spares` of which wait at first."""

    scenario: str
    ranks: int
    spares: int
    chaos: Chaos
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        return self.ranks - self.spares


def drawn(number: int) -> Case:
    """Return the case of that number."""
    rng = random.Random(number)
    scenario = ("membership", "backup", "membership", "backup", "restart")[number % 5]
    ranks = rng.randint(3, 5)
    # A start takes many times longer than 300 steps: a supervised run that dies too often never ends.
    mtbf_s = rng.choice([0.5, 1.0, 2.0] if scenario == "restart" else [0.1, 0.3, 1.0])
    options: dict[str, Any] = {"dropout": 0.0}
    spares = 0
    if scenario == "membership":
        spares = rng.randint(0, ranks - 2)
    if scenario == "backup":
        spares = rng.randint(1, ranks - 2)
        options = {"shard_optimizer": rng.random() < 0.5, "dropout": rng.choice([0.0, 0.1])}
    return Case(scenario, ranks, spares, Chaos(mtbf_s, number), options)


SHORT = {
    "rank 0, then another": Case("membership", 3, 0, Chaos(1.0, 6376), {"dropout": 0.0}),
    "the spare, then rank 0": Case("membership", 4, 1, Chaos(1.0, 2136), {"dropout": 0.0}),
    "rank 0, replaced": Case("backup", 4, 1, Chaos(1.0, 8837), {"shard_optimizer": True, "dropout": 0.0}),
    "started again": Case("restart", 3, 0, Chaos(1.0, 10842), {"dropout": 0.0}),
}
CASES = {str(number): drawn(number) for number in range(50)} if SOAK else SHORT


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, float], Run]:
    """Return the undisturbed run of `workers` workers; the parameters are the same for every method."""

    @cache
    def trained(workers: int, dropout: float) -> Run:
        out = tmp_path_factory.mktemp("whole") / "run"
        return launch("restart", workers, checkpoint_every=0, dropout=dropout, **RECIPE, out=out)

    return trained


def started(case: Case, out: Path) -> Run:
    options = {**RECIPE, **case.options, "chaos": case.chaos, "out": out, "timeout_s": 120.0}
    if case.scenario == "restart":
        return supervised_launch("restart", case.ranks, restarts=RESTARTS, backoff_s=0.05, announce=str, **options)
    return launch(case.scenario, case.ranks, spares=case.spares, **options)


def deaths_by_start(case: Case, lines: list[Line]) -> list[list[Line]]:
    """Return which ranks were killed in each start, and check that they agree with the draw."""
    starts = [line.when for line in lines if line.what == "start"]
    begins = starts if case.scenario == "restart" else starts[:1]
    deaths = []
    for number, (begin, end) in enumerate(pairwise([*begins, float("inf")])):
        since = begin if number else 0.0  # a spare's clock may begin, and end, before the first start is logged
        dead = [line for line in lines if line.kind == "kill" and since <= line.when < end]
        assert len({line.rank for line in dead}) == len(dead), "nobody dies twice"
        for line in dead:
            hour_s = case.chaos.death_s(line.rank, case.ranks, number)
            assert line.rank >= case.workers or line.when - begin > hour_s - CLOCKS_S, "before its time"
        deaths.append(dead)
    return deaths


def assert_complete(run: Run, case: Case) -> None:
    """Check that each step was done, with a batch in which every sample counts once per epoch, and that all agree."""
    summary = run.summary
    assert len(set(summary.params_sha256 or [])) == 1
    assert len(summary.params_sha256 or []) == len(summary.members) == summary.ranks
    assert [line["step"] for line in run.metrics] == list(range(STEPS))
    shares = equal_shares(TRAINING_SET, case.workers)
    epoch = steps_per_epoch(TRAINING_SET, BATCH)
    whole = [sum(batch_size(share, epoch, step) for share in shares) for step in range(STEPS)]
    assert [line["samples"] for line in run.metrics] == whole
    walls = [line["wall_s"] for line in run.metrics]
    assert walls == sorted(walls)


def partly_unknown(case: Case, lines: list[Line]) -> set[int]:
    """Return the steps in which a dead rank's part of the loss may be missing: those since the last exchange but one.

    None under `backup`, where they are part of what the buddies keep.
    """
    if case.scenario == "backup":
        return set()
    dead = [line.step for line in lines if line.kind == "kill"]
    return {step for last in dead for step in range(last // WINDOW * WINDOW - WINDOW, last + 1)}


def assert_faults(run: Run, case: Case, lines: list[Line]) -> None:
    """Check that the record has every death before the end of training, and no other."""
    assert {line.kind for line in lines if line.what == "failure"} <= {"kill"}
    starts = [line.when for line in lines if line.what == "start"]
    died = [line for line in lines if line.what == "failure" and line.when < starts[-1] and len(starts) > 1]
    assert [(fault["rank"], fault["step"]) for fault in run.summary.faults] == [(line.rank, line.step) for line in died]
    for fault in run.summary.faults:
        assert fault["kind"] == "kill"
        assert 0 <= fault["steps_lost"] <= max(0, fault["step"])
        assert fault["resumed_s"] is None or fault["resumed_s"] > (fault["detected_s"] or 0)
        if case.scenario == "membership":
            assert fault["steps_lost"] <= 1, "the one it was in, of which the others may not have known the result"


def assert_it_was_stated(said: str, case: Case, deaths: list[list[Line]]) -> None:
    """Check that the method reports why it cannot recover after these deaths."""
    assert any(re.fullmatch(form, said, re.DOTALL) for form in STATED[case.scenario]), said
    if case.scenario == "restart":
        assert len(deaths) == RESTARTS + 1
        assert all(deaths)
    elif re.fullmatch(ALL_RANKS_DIED, said, re.DOTALL):
        assert len(deaths[0]) == case.ranks
    else:
        assert len(deaths[0]) >= (2 if re.fullmatch(WITH_ITS_BUDDY, said, re.DOTALL) else case.workers)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_random_kills_end_with_a_complete_record_or_the_reason(
    case: Case, uninterrupted: Callable[[int, float], Run], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    said, run = "", None
    try:
        run = started(case, out)
    except LaunchError as failed:
        said = failed.message
    lines = EventLog(out / "logbook.jsonl").lines()
    deaths = deaths_by_start(case, lines)
    when, first = next(case.chaos.deaths(case.ranks))
    assert when > AT_LEAST_S or first in {line.rank for line in deaths[0]}
    if run is None:
        assert_it_was_stated(said, case, deaths)
        assert not (out / "summary.json").exists()
        return
    assert_complete(run, case)
    assert_faults(run, case, lines)
    assert not set(run.summary.members) & {line.rank for line in deaths[-1]}
    whole = uninterrupted(case.workers, case.options["dropout"])
    if run.summary.ranks == case.workers:  # every slot is filled
        assert set(run.summary.params_sha256 or []) == set(whole.summary.params_sha256 or [])
        assert run.summary.final_loss == whole.summary.final_loss
        assert run.summary.test_accuracy == whole.summary.test_accuracy
        if case.scenario == "backup":
            assert [line["loss"] for line in run.metrics] == [line["loss"] for line in whole.metrics]
    elif case.options["dropout"] == 0:  # no rank draws random numbers that another would not
        assert_same_training(run, whole, partly_unknown(case, lines))
