"""`farandole bench recovery`: it measures real kills, and each is in the right row."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from farandole import LaunchError, Run
from farandole.runtime.launcher import Output, run_ranks
from farandole_tools.bench import recovery
from farandole_tools.bench.recovery import LARGE, USUAL

PROGRAM = str(Path(__file__).parent / "programs" / "joined_training.py")


def test_each_kill_is_a_measurement(tmp_path: Path) -> None:
    with_spare = recovery.with_spares("backup", 2, tmp_path, replace(USUAL, kills=2))
    [restarted] = recovery.by_restart(2, tmp_path, replace(USUAL, kills=1))
    assert len(with_spare) == 2
    assert 0 < min(with_spare) <= max(with_spare) < restarted, "a spare does not have to start"


def launch_that_waits(scenario: str, ranks: int, *, spawn: int, fail: str, out: Path, **_: Any) -> Run:
    """The workers wait for the process that they have requested; otherwise they train on and may end before."""
    words = [scenario, "none", "--steps", "60", "--spawn", str(spawn), "--fail", fail, "--out", str(out)]
    run_ranks([PROGRAM, *words], ranks)
    return Run(out)


def test_a_spawned_process_delays_recovery_more_than_survivors_or_a_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [alone] = recovery.without_spares("membership", 3, tmp_path, replace(USUAL, kills=1))
    [spare] = recovery.with_spares("membership", 2, tmp_path, replace(USUAL, kills=1))
    monkeypatch.setattr(recovery, "launch", launch_that_waits)
    [newcomer] = recovery.with_joining_processes("membership", 2, tmp_path, replace(USUAL, kills=1))
    assert 0 < max(alone, spare) < newcomer, "which has to be started"


@pytest.mark.soak  # of a peer, which no other test needs
def test_torchrun_completes_its_restarts(tmp_path: Path) -> None:
    """A restart's ranks must not find the addresses of the previous start, or they fail and another start follows."""
    [seconds] = recovery.torchrun(2, tmp_path, replace(USUAL, kills=1))
    assert seconds > 0


@pytest.mark.soak  # the same; test_elastic_horovod.py has Elastic Horovod's recovery
@pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="no Horovod: make setup builds it")
def test_elastic_horovod_is_a_peer(tmp_path: Path) -> None:
    [seconds] = recovery.without_spares(
        "elastic_horovod", 2, tmp_path, replace(USUAL, kills=1), gloo_timeout=recovery.GLOO_TIMEOUT_S
    )
    assert seconds > 0


def test_rows_have_our_time_and_the_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> list[float]:
        raise LaunchError("it was ended\nand said more")

    methods = {"spare, backup": lambda: [0.1, 0.2, 0.3], "restart": lambda: [4.0, 2.0, 6.0]}
    peers = {"Elastic Horovod": fails, "torchrun elastic": lambda: [8.0]}
    monkeypatch.setattr(recovery, "methods", lambda ranks, folder, plan: methods)
    monkeypatch.setattr(recovery, "peers", lambda ranks, folder, plan: peers)
    monkeypatch.setattr(recovery, "protection", lambda ranks, folder, plan: [])
    spare, restart = recovery.rows(3)
    assert (spare["name"], spare["ranks"], spare["median_s"]) == ("spare, backup", 3, 0.2)
    assert spare["peers"]["restart"] == {"median_s": 4.0, "ratio": pytest.approx(20)}
    assert spare["peers"]["torchrun elastic"] == {"median_s": 8.0, "ratio": pytest.approx(40)}
    assert restart["peers"] == {
        "Elastic Horovod": {"error": "it was ended"},
        "torchrun elastic": {"median_s": 8.0, "ratio": pytest.approx(2)},
    }, "not beside itself"


def test_the_large_state_has_a_gibibyte() -> None:
    assert recovery.state_bytes(LARGE.recipe, LARGE.inputs) == pytest.approx(1 << 30, rel=0.01)


def test_the_cost_of_protection_is_relative_to_no_protection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = tmp_path / "short.py"
    short.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from farandole_tools.bench import recovery_rounds\n"
        "recovery_rounds.STEPS, recovery_rounds.CHECKPOINTS = 20, 1  # not 40 steps a round with two checkpoints\n"
        "recovery_rounds.main(Path(sys.argv[1]), int(sys.argv[2]), recovery_rounds.USUAL)\n"
    )

    def run_short(words: list[str], ranks: int, **limits: Any) -> Output:
        assert words[:2] == ["-m", recovery.ROUNDS_PROGRAM]
        return run_ranks([str(short), *words[2:]], ranks, **limits)

    monkeypatch.setattr(recovery, "run_ranks", run_short)
    rows = recovery.protection(2, tmp_path, replace(USUAL, rounds=2))
    assert [row["name"] for row in rows] == [
        "a backup every step",
        "a backup every 5 steps",
        "a checkpoint every 20 steps",
    ]
    for row in rows:
        none = row["peers"]["none"]
        assert row["ranks"] == 2
        assert row["size"] == recovery.state_bytes({"hidden": 256}, inputs=784)
        assert min(none["median_s"], none["ratio"]) > 0


def test_protection_that_changes_the_training_is_not_timed(tmp_path: Path) -> None:
    program = tmp_path / "lazy.py"
    program.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from farandole_tools.bench import recovery_rounds\n"
        "class Lazy(recovery_rounds.Trial):\n"
        "    def with_checkpoints(self):\n"
        "        for step in range(self.steps - 1):\n"
        "            self._step(step)\n"
        "recovery_rounds.STEPS, recovery_rounds.Trial, recovery_rounds.slowest_s = 4, Lazy, None\n"
        "recovery_rounds.main(Path(sys.argv[1]), 1, recovery_rounds.USUAL)\n"
    )
    with pytest.raises(LaunchError, match="after 4 steps a checkpoint every 2 steps has other parameters than"):
        run_ranks([str(program), str(tmp_path)], 2)


@pytest.mark.parametrize("faults", [[], [{"resumed_s": 0.1}, {"resumed_s": None}]])
def test_a_record_without_a_resume_time_is_refused(faults: list[dict[str, Any]]) -> None:
    run = cast(Run, SimpleNamespace(summary=SimpleNamespace(faults=faults, scenario="restart")))
    with pytest.raises(LaunchError, match="the record of restart does not say when it went on"):
        recovery.resumed(run)
