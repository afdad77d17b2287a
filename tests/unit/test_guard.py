"""Temporary folders: gone at the end of the block, and of a process that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from farandole.runtime import guard, processes, rank
from tests.children import heeds_signals

PATIENCE_S = 60
MARK = "FARANDOLE_TEST_GUARD"
USES_ONE = """
import os, subprocess, sys, threading
from farandole.runtime import guard, rank
folder, launch, where = sys.argv[1:]

def use():
    with guard.temporary_folder("used-", folder, launch) as own:
        (own / "file").touch()
        subprocess.Popen(["sh", "-c", "trap '' TERM; exec sleep 600"], env=os.environ | {rank.LAUNCH: launch})
        print("used", flush=True)
        threading.Event().wait()

if where == "thread":
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
use()
"""


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_is_removed_at_the_end_of_the_block(tmp_path: Path) -> None:
    def fails() -> None:
        with guard.temporary_folder("used-", str(tmp_path)) as folder:
            (folder / "file").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("number", "where"), [(signal.SIGKILL, "main"), (signal.SIGTERM, "thread"), (signal.SIGQUIT, "thread")]
)
def test_of_a_process_that_is_killed_nothing_is_left(number: signal.Signals, where: str, tmp_path: Path) -> None:
    launch = uuid.uuid4().hex
    command = [sys.executable, "-c", USES_ONE, str(tmp_path), launch, where]
    environment = os.environ | {MARK: launch}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=heeds_signals
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "used\n"
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        until(lambda: not list(tmp_path.iterdir()))
    assert process.returncode == -number
    assert not processes.find(rank.LAUNCH, launch), "ended before the folder went"
    until(lambda: not processes.find(MARK, launch))


def test_without_a_shell_it_does_without_a_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_shell(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "Popen", no_shell)
    with guard.temporary_folder("used-", str(tmp_path)) as folder:
        assert folder.is_dir()
    assert not folder.exists()


def test_within_a_rank_the_guard_outlives_that_ranks_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = uuid.uuid4().hex
    monkeypatch.setenv(rank.LAUNCH, outer)
    with guard.temporary_folder("used-", str(tmp_path)):
        processes.end_all(rank.LAUNCH, outer)
        assert os.environ[rank.LAUNCH] == outer
        assert processes.find(rank.LAUNCH, outer) == []
