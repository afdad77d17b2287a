"""Processes are found by their session, which they cannot write over as their environment."""

from __future__ import annotations

import subprocess

from farandole.runtime import processes


def test_a_session_is_found_after_the_end_of_its_leader() -> None:
    orphan = "sleep 300 </dev/null >/dev/null 2>&1 &"
    with subprocess.Popen(["sh", "-c", orphan], start_new_session=True) as leader:
        leader.wait(60)
    [left] = processes.of_session(leader.pid)
    assert left.name() in ("sh", "sleep"), "before or after it has become the command"
    processes.end([left])
    assert processes.of_session(leader.pid) == []
