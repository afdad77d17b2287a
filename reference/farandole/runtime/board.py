"""Event files for TensorBoard: the run's numbers where many engineers are used to look for them.

    farandole run sync_sgd -n 4 --tensorboard boards
    tensorboard --logdir boards

Each run has its own folder there, with what `metrics.jsonl` has: over the steps, and over the seconds since the
first one. Cost: on the rank that writes some 20 µs for each number, and a second for loading the library.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from farandole.errors import UsageError


def make_folder(folder: Path) -> None:
    """Make the folder that boards are to lie in.

    Raises:
        UsageError: it cannot be written, or TensorBoard is not installed.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise UsageError("--tensorboard needs a package that is missing: pip install tensorboard")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--tensorboard {folder} cannot be written ({error.strerror}): give another") from error


def _say_unless_the_disk_fails(otherwise: Callable[[Any], Any], failed: threading.ExceptHookArgs) -> None:
    """Report an exception of TensorBoard's thread, except a disk error: TensorBoard's next call raises that again."""
    if not isinstance(failed.exc_value, OSError):
        otherwise(failed)


class Board:
    """The event file of one run.

    Args:
        folder: it may hold those of earlier starts.
        void_from: what they say of this step and later ones does not hold; None: all of it does.
    """

    def __init__(self, folder: Path, void_from: int | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        threading.excepthook = partial(_say_unless_the_disk_fails, threading.excepthook)
        self._writer = SummaryWriter(str(folder), purge_step=void_from)

    def log(self, values: Mapping[str, float], began: float) -> None:
        """Add what was measured in a step.

        Args:
            values: of them `step` and `wall_s` say when it was.
            began: the time of day, in seconds, from which `wall_s` counts.
        """
        step, when = int(values["step"]), began + values["wall_s"]
        for name, value in values.items():
            if name not in ("step", "wall_s"):
                self._writer.add_scalar(name, value, step, when)

    def close(self, steps: int, test_metrics: Mapping[str, float | None]) -> None:
        """Add what was found at the end."""
        for name, value in test_metrics.items():
            if value is not None:
                self._writer.add_scalar(f"test_{name}", value, steps)
        self._writer.close()
