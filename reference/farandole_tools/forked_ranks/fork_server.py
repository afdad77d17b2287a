"""Ranks that need not import torch and this package, since they are forked from a process that has.

Most of a rank's start is ``import torch``. A launch of several ranks on this host imports it once for all of them. A
notebook, the tour, a comparison and the tests launch many times, and import it once for all launches:

    fork_server.start()                once: starts a process that imports torch and waits for requests (`forks`)
    launch(…), launch(…), %%mpi        each rank that mpirun starts (`fork_client`) requests a fork, which does its work

    mpirun         rank, as mpirun started it               fork server
      └────────────────────────┴── its environment … ───────→│ fork ────────→ fork: the rank that computes
                               │←──────── process id ────────│                │
                            signals ─────────────────────────────────────────→│
                               │←─────── exit status ────────│←───────────────┘

The fork receives what distinguishes the requesting rank: environment, arguments, working folder, standard streams, CPU
affinity, resource limits, umask and ignored signals. The two live and die together: a signal to the requesting rank is
forwarded (but not SIGSTOP, which cannot be caught), its death ends the fork, and it ends with the fork's exit status or
by the same signal. Only imported modules are shared: torch, MPI's library, this package, and what a fork has had to
import of this package, scipy, sklearn and torch's compiler. Once a file of the package has been edited, or if it is
another one on the rank's path, each fork imports the package anew. Each fork initialises MPI, and seeds the random
numbers of Python, numpy and torch anew. The forks also share the seed of Python's hash(), which is otherwise drawn by
each process.

What a fork does not have: a Python of its own, to which a debugger or profiler was given by mpirun's command line. For
these, and whenever a fork is suspected, FARANDOLE_WARM=0 in the environment has each rank import torch itself. CUDA
cannot be used in a fork of a process that has initialised it: the fork server never does (`forks.LATER`,
PYTORCH_NVML_BASED_CUDA_CHECK), and each fork initialises it anew.

A rank that reaches no fork server (on another host, for instance) does its work itself. So does a rank in a Slurm job,
since Slurm counts, limits and ends the processes that it has started. Linux only. Cost: a few milliseconds per rank,
and the memory of one torch. The idea is that of the fork server in Python's multiprocessing.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence

from farandole.runtime import rank_starter, signals
from farandole_tools.forked_ranks import fork_client
from farandole_tools.forked_ranks.fork_client import ADDRESS

FORKS = "farandole_tools.forked_ranks.forks"  # the fork server's program

_starting = threading.Lock()


def start(*modules: str) -> None:
    """Start a fork server for the ranks of this process's launches; it ends with the calling process.

    Nothing happens if there is one already, if no socket can be bound, or if the system is not Linux.

    Args:
        modules: further modules that it imports, because nearly every rank would.
    """
    with _starting, signals.held():  # a signal in between would leave the folder, or the process for a while
        if ADDRESS not in os.environ and sys.platform == "linux":
            _start(modules)


def _start(modules: Sequence[str]) -> None:
    variables = (ADDRESS, rank_starter.MODULE)
    if path := listening(lambda folder: [sys.executable, "-P", "-m", FORKS], modules, os.environ, variables):
        os.environ[ADDRESS] = f"{sys.executable}:{path}"
        os.environ[rank_starter.MODULE] = fork_client.__name__


def listening(
    command: Callable[[str], list[str]],
    modules: Sequence[str],
    environment: Mapping[str, str],
    variables: Sequence[str],
) -> str:
    """Start a process that listens on a socket until this process ends; return the socket's path, "" if there is none.

    Args:
        command: makes its command from the folder of the socket, to which the folder, the listener's number and the
            names of `modules` are added.
        environment: its variables, besides those for torch.
        variables: removed from this process's own environment when it ends.
    """
    try:
        folder = tempfile.mkdtemp(prefix="farandole-warm-")  # the fork server removes it if this process is killed
    except OSError:  # without a fork server launches start more slowly, and report the missing folder themselves
        return ""
    path = f"{folder}/socket"
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
    except OSError:  # a socket's path is limited to 107 bytes, and TMPDIR may be longer
        listener.close()
        shutil.rmtree(folder)
        return ""
    listener.listen(128)
    process = subprocess.Popen(
        [*command(folder), folder, str(listener.fileno()), *modules],
        stdin=subprocess.PIPE,  # its end tells the fork server that this process has ended
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # torch's compiler makes its cache when it is imported: here it is removed with the folder. Without the second
        # variable each fork would restart numpy's threads, which spin at first. `World` sets each rank's own number.
        # With the third, a module that counts cards when it is imported leaves them to the forks.
        env={"TORCHINDUCTOR_CACHE_DIR": f"{folder}/torchinductor"}
        | dict(environment)
        | {"OPENBLAS_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
        start_new_session=True,  # Ctrl-C is for the launcher, which ends its ranks
        pass_fds=[listener.fileno()],
    )
    listener.close()

    def stop() -> None:
        with signals.held():  # a terminated fork server does not remove its folder, so this process has to
            for variable in variables:
                os.environ.pop(variable, None)
            process.stdin.close()  # type: ignore[union-attr]
            process.terminate()  # it may still be importing; no launch is running any more
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    return path
