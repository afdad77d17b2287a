"""A termination signal while the fork server is started or stopped leaves no folder behind."""

from __future__ import annotations

import atexit
import io
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from farandole.runtime import rank_starter, signals
from farandole_tools.forked_ranks import fork_server


class Process:
    """A fork server's process; the launching process gets SIGQUIT at one moment of its life."""

    def __init__(self, moment: str) -> None:
        self.moment, self.stdin, self.terminated = moment, io.BytesIO(), False
        self._strike("start")

    def terminate(self) -> None:
        self.terminated = True
        self._strike("terminate")

    def wait(self) -> None:
        self._strike("wait")

    def _strike(self, now: str) -> None:
        if now == self.moment:
            signal.raise_signal(signal.SIGQUIT)


@pytest.fixture(autouse=True)
def _signals_are_heeded() -> Iterator[None]:
    """`signals.raised` leaves them ignored, and so does a shell for what runs in the background."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in signals.ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("moment", ["start", "terminate", "wait"])
def test_a_signal_leaves_no_folder(moment: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    at_exit: list[Callable[[], Any]] = []
    for name in (fork_server.ADDRESS, rank_starter.MODULE):
        monkeypatch.setenv(name, "")  # the handler set here is restored in the end
        monkeypatch.delenv(name)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(fork_server.subprocess, "Popen", lambda *_, **__: Process(moment))
    monkeypatch.setattr(atexit, "register", at_exit.append)

    def program() -> None:
        with signals.raised():
            fork_server.start()
            assert moment != "start", "the signal has had its effect"
            [stop] = at_exit
            stop()

    with pytest.raises(signals.Terminated):
        program()
    if moment == "start":
        assert len(list(tmp_path.iterdir())) == len(at_exit) == 1, "it is known at the end"
        at_exit[0]()
    assert list(tmp_path.iterdir()) == []
