"""Farandole: distributed training, learned by running it.

Every concept is a short reference implementation that runs under mpirun. Reading order of the
rooms: ``collectives`` (what is sent to whom), ``data`` (who holds what), ``data_parallel`` (the
training methods), ``recovery`` (when a rank dies), ``scenarios`` (the recipes), and ``runtime`` for how
a launch, a trace and a record come about.

    from farandole import launch
    run = launch("sync_sgd", ranks=4, steps=100)
    run.summary.test_accuracy
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from farandole.errors import LaunchError, UsageError
from farandole.runtime.launcher import launch
from farandole.runtime.record import Run

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0.dev0"
__all__ = ["LaunchError", "Run", "UsageError", "launch"]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Make ``%load_ext farandole`` bring the ``%%mpi`` cell magic, and ranks that start in a second."""
    from farandole.runtime import warm
    from farandole.runtime.magic import MpiMagics

    warm.start()
    shell.register_magics(MpiMagics)
