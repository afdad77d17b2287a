"""``farandole join RUN``: one more worker for a training that runs."""

from __future__ import annotations

from pathlib import Path

from farandole.runtime.numbers import Positive


def join(run: Path, *, timeout: Positive = 120.0) -> None:
    """Have one more worker join a training that runs: membership or backup.

    A spare joins at once. Where none waits a process is started, while the others go on.

    Args:
        run: the folder that the training writes its record in.
        timeout: seconds until nobody is waited for any more.
    """
    from farandole.recovery import join_request

    answer = join_request.ask(run, timeout, lambda line: print(f"join: {line}", flush=True))
    who = f"rank {answer.rank}" if answer.is_started else f"rank {answer.rank}, a spare,"
    print(f"join: {who} has joined, and has taken step {answer.step}")
