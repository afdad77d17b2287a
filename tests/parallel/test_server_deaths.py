"""A parameter server whose workers, servers and manager are killed: acknowledged pushes survive, training continues."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import LaunchError, UsageError, launch
from farandole.recovery.event_log import EventLog
from farandole.runtime.chaos import Chaos
from farandole.runtime.launcher import run_ranks
from farandole.runtime.record import Run
from tests.parallel.conftest import PROGRAMS

SOAK = os.environ.get("FARANDOLE_SOAK") == "1"  # make soak
CHAIN = {"servers": 2, "replicas": 2}
STEPS = 40
HANG_AFTER_S = 4.0  # a busy machine may keep a rank waiting for its core for a second or two
# A rank that has been seen in one step only may be still for five times as long: this worker sleeps in each step.
SEEN = {"hang_after": HANG_AFTER_S, "slow": "rank=4,factor=40"}
IN_STEP = {**CHAIN, "sync": "bsp", "steps": STEPS, "hidden": 32}


def train_with_deaths(folder: Path, ranks: int, deaths: str, **options: Any) -> Run:
    """Train with ranks that die at places of `roles_with_deaths`."""
    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    program = [str(PROGRAMS / "roles_with_deaths.py"), "parameter_server", deaths, *given, "--out", str(folder)]
    return Run(folder, str(run_ranks(program, ranks, timeout_s=100)))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return launch("parameter_server", 5, **IN_STEP, out=tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "deaths",
    [
        "1@header@30",
        "1@received@31",
        "1@forwarded@32",
        "1@handled@33",
        "2@received@40",
        "2@handled@41",
        "0@report@21",
        "0@report@22,1@late-reports@0",
    ],
)
def test_a_server_or_manager_death_leaves_synchronous_parameters_unchanged(
    tmp_path: Path, undisturbed: Run, deaths: str
) -> None:
    run = train_with_deaths(tmp_path / "run", 5, deaths, **IN_STEP)
    dead = int(deaths[0])
    summary = run.summary
    assert summary.members == [rank for rank in range(5) if rank != dead]
    assert summary.steps == STEPS
    assert set(summary.params_sha256) == set(undisturbed.summary.params_sha256), "bitwise the same parameters"
    assert [fault["rank"] for fault in summary.faults] == [dead]
    assert summary.faults[0]["steps_lost"] == 0
    assert sum(line["samples"] for line in run.metrics) == sum(line["samples"] for line in undisturbed.metrics)
    assert [line["step"] for line in run.metrics] == list(range(STEPS))


def test_the_manager_dies_while_it_sends_stop(tmp_path: Path, undisturbed: Run) -> None:
    run = train_with_deaths(tmp_path / "run", 5, "0@stop@2", **IN_STEP)
    assert set(run.summary.params_sha256) == set(undisturbed.summary.params_sha256)
    assert run.summary.members == [1, 2, 3, 4]


def test_a_rank_dies_while_the_survivors_regroup_after_the_last_step(tmp_path: Path, undisturbed: Run) -> None:
    """The survivors regroup with this rank still among them, and therefore regroup once more."""
    run = train_with_deaths(tmp_path / "run", 5, "0@regroup@1", **IN_STEP)
    assert set(run.summary.params_sha256) == set(undisturbed.summary.params_sha256)
    assert run.summary.members == [1, 2, 3, 4]
    assert [line["step"] for line in run.metrics] == list(range(STEPS))


def test_each_successor_of_the_manager_may_die_too(tmp_path: Path, undisturbed: Run) -> None:
    """The manager dies and server 1 succeeds it; server 1 dies and server 2 succeeds it."""
    run = launch("parameter_server", 5, **IN_STEP, fail=["rank=0,step=10", "rank=1,step=25"], out=tmp_path / "run")
    assert run.summary.members == [2, 3, 4]
    assert [fault["rank"] for fault in run.summary.faults] == [0, 1]
    assert set(run.summary.params_sha256) == set(undisturbed.summary.params_sha256)
    assert [line["step"] for line in run.metrics] == list(range(STEPS))


def test_replicas_stay_equal_under_a_policy_that_depends_on_time(under_mpirun: Callable[..., Any]) -> None:
    answer = under_mpirun("ps_copies.py", 5, "history")
    for first, second in answer["copies"].values():
        assert first == second
        assert first[0] >= 60
    assert answer["ticks"] > 0, "a worker was late, and not waited for"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("place", ["receive", "_forward", "handle"])
@pytest.mark.parametrize("dies_after", [1, 7])
def test_acknowledged_pushes_survive_a_servers_death(
    under_mpirun: Callable[..., Any], dies_after: int, place: str
) -> None:
    answer = under_mpirun("ps_acknowledged.py", 6, str(dies_after), place)
    assert answer["dead"] == [1]
    assert answer["pushed"] == answer["acknowledged"] == 3 * 25
    assert answer["applied"] == [3 * 25], "each push once, on every key"


def test_a_dead_worker_is_cleaned_away_and_the_remaining_ones_do_its_work(tmp_path: Path) -> None:
    run = launch("parameter_server", 5, sync="ssp", steps=40, fail="rank=3,step=20", out=tmp_path / "run")
    summary = run.summary
    assert summary.members == [0, 1, 2, 4]
    assert summary.cleaned is not None
    assert summary.cleaned["clients"] == 3
    assert 3 * 40 - 1 <= summary.steps <= 3 * 40, "at most the gradient that it was computing is missing"
    assert [(fault["rank"], fault["step"], fault["kind"]) for fault in summary.faults] == [(3, 20, "kill")]
    assert summary.faults[0]["resumed_s"] >= summary.faults[0]["detected_s"] >= 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_hung_manager_or_server_is_killed_and_succeeded(tmp_path: Path, undisturbed: Run, rank: int) -> None:
    fail = f"rank={rank},step=30,how=hang"
    run = launch("parameter_server", 5, **IN_STEP, **SEEN, fail=fail, out=tmp_path / "run")
    assert_hung(run, rank, step=30)
    assert run.summary.members == [other for other in range(5) if other != rank]
    assert set(run.summary.params_sha256) == set(undisturbed.summary.params_sha256), "bitwise the same parameters"


def test_a_server_that_hangs_between_two_messages_is_killed(tmp_path: Path) -> None:
    """Under a policy that depends on time, a server updates its parameters without having received a message, too."""
    # A long computation and a small factor: where a busy machine adds to the computation, rank 4 must not seem hung.
    slow = "rank=4,factor=4,from=3"
    options = {**CHAIN, "sync": "history", "patience": 0.1, "batch": 1437, "slow": slow, "steps": 40}
    fail = "rank=2,step=20,how=hang"
    run = launch("parameter_server", 6, **options, fail=fail, hang_after=HANG_AFTER_S, out=tmp_path / "run")
    assert_hung(run, 2, step=20)
    assert run.summary.members == [0, 1, 3, 4, 5]


def test_a_hung_worker_is_killed_and_the_remaining_ones_do_its_work(tmp_path: Path) -> None:
    fail = "rank=3,step=30,how=hang"
    run = launch("parameter_server", 5, sync="ssp", steps=STEPS, **SEEN, fail=fail, out=tmp_path / "run")
    assert_hung(run, 3, step=30)
    assert run.summary.members == [0, 1, 2, 4]
    assert 3 * STEPS - 1 <= run.summary.steps <= 3 * STEPS


def assert_hung(run: Run, rank: int, step: int) -> None:
    """The rank was declared dead after its time-out, by ranks that do not know --fail."""
    [fault] = run.summary.faults
    assert (fault["rank"], fault["step"], fault["kind"]) == (rank, step, "hang")
    assert 0.9 * HANG_AFTER_S < fault["detected_s"] < fault["resumed_s"], "by its silence, from its last sign on"
    lines = EventLog(run.folder / "logbook.jsonl").lines()
    assert {line.rank for line in lines if line.kind == "silent"} == {rank}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", [{}, {"data": "text", "lr": 30, "buckets": 4096}])
def test_workers_servers_and_manager_may_die_in_one_run(tmp_path: Path, options: dict[str, Any]) -> None:
    fail = ["rank=4,step=5", "rank=0,step=15", "rank=2,step=60"]
    run = launch("parameter_server", 6, **CHAIN, sync="ssp", steps=60, fail=fail, **options, out=tmp_path / "run")
    assert run.summary.members == [1, 3, 5]
    assert {fault["rank"] for fault in run.summary.faults} == {0, 2, 4}
    assert run.summary.test_accuracy is not None
    assert run.summary.test_accuracy > 0.4, "chance is 0.1"


def test_downpour_survives_the_death_of_a_worker_and_a_server(tmp_path: Path) -> None:
    fail = ["rank=4,step=20", "rank=1,step=30"]
    summary = launch("downpour", 6, **CHAIN, steps=150, fail=fail, out=tmp_path / "run").summary
    assert summary.members == [0, 2, 3, 5]
    assert {fault["rank"] for fault in summary.faults} == {1, 4}


def test_two_replicas_double_a_servers_bytes_and_not_a_workers(tmp_path: Path, undisturbed: Run) -> None:
    alone = launch("parameter_server", 5, **IN_STEP | {"replicas": 1}, out=tmp_path / "run").summary
    assert alone.bytes_sent is not None
    assert undisturbed.summary.bytes_sent is not None
    assert set(alone.params_sha256) == set(undisturbed.summary.params_sha256)
    for server in (1, 2):
        assert undisturbed.summary.bytes_sent[server] == pytest.approx(2 * alone.bytes_sent[server], rel=0.05)
    for worker in (3, 4):
        assert undisturbed.summary.bytes_sent[worker] == pytest.approx(alone.bytes_sent[worker], rel=0.05)


@pytest.mark.parametrize(
    ("fail", "message"),
    [
        ("rank=1,step=5", "server 1 has died, and its part of the parameters with it: --servers 2 --replicas 2"),
        ("rank=0,step=5", "the manager has died, and the record of the training with it: --servers 2 --replicas 2"),
        (["rank=2,step=5", "rank=3,step=5"], "all workers have died"),
    ],
)
def test_an_unrecoverable_death_ends_the_run_with_its_reason(tmp_path: Path, fail: Any, message: str) -> None:
    with pytest.raises(LaunchError) as failure:
        launch("parameter_server", 4, steps=50, fail=fail, out=tmp_path / "run", timeout_s=60)
    assert message in str(failure.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": 2}, "--replicas 2: there are 1 server(s); give as many with --servers"),
        ({**CHAIN, "tree": 2}, "leave out --tree"),
        ({**CHAIN, "place": "servers=1+2,aggregators=3,workers=4"}, "leave out aggregators=… in --place"),
        ({**CHAIN, "transport": "window"}, "use --transport messages"),
        ({"transport": "window", "place": "servers=1,aggregators=2,workers=3-4"}, "use --transport messages"),
    ],
)
def test_incompatible_options_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        launch("parameter_server", 5, **options, steps=2, out=tmp_path / "run")
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


# No recovery is promised where all ranks that hold the same part have died.
ALL_WHO_HAD_IT = re.compile(r"rank \d.* cannot go on: all who had .* have died, of [a-z ]+\d?: ([\d, ]+)")
ALL_WORKERS = re.compile(r"rank \d.* cannot go on: all workers have died")
ALL_RANKS = re.compile(r"all ranks have died")


def assert_it_was_stated(said: str, killed: set[int]) -> None:
    """The reason given is true: the ranks it names have been killed."""
    if who := ALL_WHO_HAD_IT.match(said):
        assert {int(rank) for rank in who[1].split(", ")} <= killed
    elif ALL_WORKERS.match(said):
        assert {3, 4, 5} <= killed
    else:
        assert ALL_RANKS.match(said), said
        assert killed == set(range(6))


LONG = {**IN_STEP, "steps": 400 if SOAK else 150}
AT_LEAST_S = 0.1  # no machine takes fewer seconds for these steps: a death that is due earlier must occur


def trained_under_chaos(scenario: str, chaos: Chaos, out: Path, **options: Any) -> Run | None:
    """Train six ranks under random kills; return the survivors' run, or None where it has ended with a valid reason."""
    ended = ""
    try:
        launch(scenario, 6, **options, chaos=chaos, out=out, timeout_s=100)
    except LaunchError as failure:
        ended = failure.message
    failures = [line for line in EventLog(out / "logbook.jsonl").lines() if line.what == "failure"]
    killed = {line.rank for line in failures if line.kind == "kill"}
    when, first = next(chaos.deaths(6))
    assert first in killed or (SOAK and when > AT_LEAST_S)
    if ended:
        assert_it_was_stated(ended, killed)
        return None
    assert {line.rank for line in failures} == killed, "no rank has died for another reason"
    run = Run(out)
    assert set(range(6)) - set(run.summary.members) == killed
    assert {fault["rank"] for fault in run.summary.faults} == killed
    return run


@pytest.fixture(scope="module")
def undisturbed_and_long(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return launch("parameter_server", 6, **LONG, out=tmp_path_factory.mktemp("long") / "run")


# In `make test` server 1 dies early, the manager soon after it, and no other rank for ten seconds.
RANDOM = [Chaos((0.3, 1.0, 3.0)[seed % 3], seed) for seed in range(25)] if SOAK else [Chaos(1.0, 134112)]


@pytest.mark.parametrize("chaos", RANDOM, ids=str)
def test_random_kills_leave_the_record_complete_or_end_with_the_reason(
    tmp_path: Path, undisturbed_and_long: Run, chaos: Chaos
) -> None:
    """The seed decides which ranks die, and when. The parameters are bitwise the same, unless a worker has died."""
    run = trained_under_chaos("parameter_server", chaos, tmp_path / "run", **LONG)
    if run is None:
        return
    summary = run.summary
    assert summary.steps == LONG["steps"]
    assert len(set(summary.params_sha256)) == 1
    lines = [line["step"] for line in run.metrics]
    assert lines == list(range(LONG["steps"])), "as many as the summary has steps"
    if {3, 4, 5} <= set(summary.members):
        assert set(summary.params_sha256) == set(undisturbed_and_long.summary.params_sha256)


# In `make test` server 1 dies early, and no other rank for twelve seconds.
REPLICAS = [Chaos((0.3, 1.0)[seed % 2], seed) for seed in range(10)] if SOAK else [Chaos(1.0, 10134)]


@pytest.mark.parametrize("chaos", REPLICAS, ids=str)
def test_downpour_continues_under_random_kills_or_ends_with_the_reason(tmp_path: Path, chaos: Chaos) -> None:
    """Downpour: the survivors continue to learn, or the run ends with the reason."""
    run = trained_under_chaos("downpour", chaos, tmp_path / "run", **CHAIN, steps=600 if SOAK else 300)
    if run is None:
        return
    summary = run.summary
    assert len(set(summary.params_sha256)) == 1
    assert summary.test_accuracy is not None
    assert summary.test_accuracy > 0.7, (
        "undisturbed above 0.9; the worker with a third of the samples may have died early"
    )
