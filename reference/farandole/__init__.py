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

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    # ``python -m farandole…`` puts the working folder first on the path; last, no file of the user's that happens to
    # be called random.py can take a library's place.
    sys.path.append(sys.path.pop(0))

TYPE_CHECKING = False  # as mypy knows it: `typing` would be a quarter of what a rank that is forked elsewhere imports
if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from farandole.distributed_checkpoint.reader import Checkpoint
    from farandole.errors import LaunchError, UsageError
    from farandole.launching import launch, train
    from farandole.own_loop.loop import OwnLoop
    from farandole.runtime.record import Run
    from farandole.tasks import Task

__version__ = "0.1.0"
__all__ = ["Checkpoint", "LaunchError", "OwnLoop", "Run", "Task", "UsageError", "launch", "train"]
HOMES = {
    "Checkpoint": "farandole.distributed_checkpoint.reader",
    "LaunchError": "farandole.errors",
    "OwnLoop": "farandole.own_loop.loop",
    "Run": "farandole.runtime.record",
    "Task": "farandole.tasks",
    "UsageError": "farandole.errors",
    "launch": "farandole.launching",
    "train": "farandole.launching",
}


def __getattr__(name: str) -> object:
    """Import an exported name when it is first used."""
    if name not in HOMES:
        raise AttributeError(f"module 'farandole' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(HOMES[name]), name)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Make ``%load_ext farandole`` bring the ``%%mpi`` cell magic, and ranks that start in a second."""
    from farandole.runtime import rank_starter
    from farandole.runtime.magic import MpiMagics

    rank_starter.prepare()
    shell.register_magics(MpiMagics)
