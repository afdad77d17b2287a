"""A supervisor: starts a training again until it is done, a limited number of times.

Each start that fails is followed by another, after a pause that doubles, so that a machine has time to come back.
Some failures would repeat and are final: bad input, and a training that has diverged. Ctrl-C and a requested stop are
final as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from farandole.errors import FlawedLaunch, LaunchError
from farandole.runtime.failure import CAN_GO_ON

Result = TypeVar("Result")

RESTARTS = 3
BACKOFF_S = 1.0
LONGEST_PAUSE_S = 60.0
NOT_AGAIN = (2, 130, CAN_GO_ON)  # exit codes: bad input, Ctrl-C, stopped as asked


def supervise(
    start: Callable[[], Result],
    *,
    restarts: int = RESTARTS,
    backoff_s: float = BACKOFF_S,
    announce: Callable[[str], None] = print,
) -> Result:
    """Return what `start` returns, called again if it raises LaunchError.

    Args:
        restarts: their largest number.
        backoff_s: the first pause; each following one is twice as long, up to a minute.
        announce: receives one line for every restart.

    Raises:
        LaunchError: the last start's, when no more are left or another would not help.
    """
    pause = min(backoff_s, LONGEST_PAUSE_S)
    for number in count(1):
        try:
            return start()
        except LaunchError as error:
            if number > restarts or error.returncode in NOT_AGAIN or isinstance(error, FlawedLaunch):
                raise
            announce(f"{error.message.splitlines()[0]}; restart {number} of at most {restarts}, in {pause:g} s")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
    raise AssertionError("count() does not end")
