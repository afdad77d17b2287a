"""``farandole join RUN``: add a worker to a running training."""

from __future__ import annotations

from pathlib import Path

from farandole.runtime.numbers import Positive


def join(run: Path, *, timeout: Positive = 120.0) -> None:
    """Add a worker to a running training (membership or backup).

    A spare joins at once. Without a spare a process is started while the others continue.

    Args:
        run: the folder of the training's record.
        timeout: seconds to wait for the worker.
    """
    from farandole.recovery import join_request

    answer = join_request.ask(run, timeout, lambda line: print(f"join: {line}", flush=True))
    who = f"rank {answer.rank}" if answer.is_started else f"rank {answer.rank}, a spare,"
    print(f"join: {who} has joined, and has taken step {answer.step}")
