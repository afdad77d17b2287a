"""Injected failures: one clear message that names rank and step, in time, and all ranks ended."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

from farandole import LaunchError, UsageError, launch
from farandole.runtime.options import RunOptions

WAIT_TIMEOUT_S = RunOptions().wait_timeout  # longer than anything here takes on a busy machine


def failing(
    tmp_path: Path, fault: str, scenario: str = "sync_sgd", ranks: int = 4, **options: object
) -> tuple[str, float]:
    """Return the message of a run with `fault`, and its delay after the last step, in seconds."""
    with pytest.raises(LaunchError) as failed:
        launch(scenario, ranks, fail=fault, steps=500, out=tmp_path, **options)
    last_loss = (tmp_path / "metrics.jsonl").stat().st_mtime
    return failed.value.message, time.time() - last_loss


def test_a_killed_rank_ends_the_job_with_one_message(tmp_path: Path) -> None:
    message, seconds = failing(tmp_path, "rank=2,step=30,how=kill")
    assert message == "rank 2 at step 30 was killed by SIGKILL (--fail rank=2,step=30,how=kill)"
    assert seconds < WAIT_TIMEOUT_S, "no rank has waited for it to answer"


def test_a_raising_rank_shows_its_traceback(tmp_path: Path) -> None:
    message, seconds = failing(tmp_path, "rank=1,step=20,how=raise")
    assert message.splitlines()[0].startswith("rank 1 at step 20 raised farandole.runtime.faults.InjectedFault")
    assert "Traceback" in message
    assert seconds < WAIT_TIMEOUT_S


def test_a_hung_rank_is_detected_and_named(tmp_path: Path) -> None:
    message, seconds = failing(tmp_path, "rank=3,step=20,how=hang", wait_timeout=5)
    assert message.startswith("rank 3 at step 20 has not answered since; rank ")
    assert "ended by --wait-timeout 5" in message
    assert seconds < WAIT_TIMEOUT_S


@pytest.mark.parametrize("scenario", ["ddp_sgd", "horovod_sgd"])
def test_a_librarys_own_error_does_not_hide_the_cause(scenario: str, tmp_path: Path) -> None:
    if scenario == "horovod_sgd" and importlib.util.find_spec("horovod") is None:
        pytest.skip("no Horovod: make setup builds it")
    # Two ranks, because ranks that wait in Horovod poll all the time.
    message, _ = failing(tmp_path / "kill", "rank=1,step=20,how=kill", scenario, ranks=2)
    assert message == "rank 1 at step 20 was killed by SIGKILL (--fail rank=1,step=20,how=kill)"
    message, _ = failing(tmp_path / "hang", "rank=1,step=20,how=hang", scenario, ranks=2, wait_timeout=5)
    assert message.startswith("rank 1 at step 20 has not answered since; rank ")


def test_a_fault_for_a_missing_rank_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no rank 4"):
        launch("sync_sgd", 4, slow="rank=4,factor=2", out=tmp_path)
