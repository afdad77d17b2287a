"""Child processes that react to signals, however the tests themselves were started."""

from __future__ import annotations

import signal


def heeds_signals() -> None:
    """As `preexec_fn`: undo what a shell does to a background job (SIGINT, SIGQUIT), and ``nohup`` to any (SIGHUP).

    Both ignore signals, which is inherited; a test that sends a signal sets this for the receiving process.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
