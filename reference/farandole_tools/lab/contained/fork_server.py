"""Sandboxes whose Python need not import torch: they are forked from a process that has.

    start("torch", …)        in the grader: starts the process, which imports torch and waits for requests (`forks`)
    fork_client.fork(…)      in a rank: has it fork a process that builds a sandbox, as `start.py` does

It is not the process from which ranks are forked. Its memory, which a submission can read, has nothing of this project
but what builds sandboxes, nothing of MPI, and no environment. A sandbox ends when the rank that has requested it ends.
Linux only. Without it each sandbox imports torch itself.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from farandole.runtime import signals
from farandole_tools.forked_ranks.fork_server import listening
from farandole_tools.lab.contained import kit, sandbox
from farandole_tools.lab.contained.fork_client import ADDRESS

PROGRAM = """
import sys
own = [*sys.path]
sys.path[:0] = {paths}
from farandole_tools.lab.contained import forks
forks.main(own, *sys.argv[1:])
"""
INSIDE = (
    "farandole_tools.forked_ranks.huge_pages",
    *(f"farandole_tools.lab.contained.{name}" for name in ("forks", "start")),
)
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}

_starting = threading.Lock()


def start(*modules: str) -> None:
    """Start the process from which this grader's sandboxes are forked; it ends with the grader.

    Nothing happens if there is one already, if no socket can be bound, or if the system is not Linux.

    Args:
        modules: what it imports.
    """
    with _starting, signals.held():
        if ADDRESS not in os.environ and sys.platform == "linux":
            if path := listening(_command, modules, ENVIRONMENT, (ADDRESS,)):
                os.environ[ADDRESS] = path


def _command(folder: str) -> list[str]:
    place = Path(folder) / "kit"
    place.mkdir()
    for name in INSIDE:
        kit.put(place, name, kit.source(name).read_text(encoding="utf-8"))
    # Torch is imported from where it is, and not by a link, so that the forks find its other modules there.
    paths = [str(place), *{str(path.parent) for path in sandbox.packages(with_torch=True)}]
    return [*sandbox.python_command(), "-c", PROGRAM.format(paths=paths)]
