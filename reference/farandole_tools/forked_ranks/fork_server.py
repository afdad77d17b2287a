"""Ranks that need not import torch, since they are forked from a process that has.

Four ranks on two cores take four seconds to start, and more than three of them are ``import torch``. A notebook, the
tour, a comparison and the tests launch many times and save this time:

    fork_server.start()                once: starts a process that imports torch and waits for requests
    launch(…), launch(…), %%mpi        each rank that mpirun starts (`fork_client`) requests a fork, which does its work

    mpirun         rank, as mpirun started it               fork server
      └────────────────────────┴── its environment … ───────→│ fork ────────→ fork: the rank that computes
                               │←──────── process id ────────│                │
                            signals ─────────────────────────────────────────→│
                               │←─────── exit status ────────│←───────────────┘

The fork receives what distinguishes the requesting rank: environment, arguments, working folder, standard streams, CPU
affinity, resource limits, umask and ignored signals. The two live and die together: a signal to the requesting rank is
forwarded (but not SIGSTOP, which cannot be caught), its death ends the fork, and it ends with the fork's exit status or
by the same signal. Only torch, its imports and MPI's library are shared. Each fork initialises MPI and imports the
program and this project's own modules, so edits made in between take effect. The forks also share the seed of Python's
hash(), which is otherwise drawn by each process.

A rank that reaches no fork server (on another host, for instance) does its work itself. So does a rank in a Slurm job,
since Slurm counts, limits and ends the processes that it has started. Linux only. Cost: a few milliseconds per rank,
and the memory of one torch. The idea is that of the fork server in Python's multiprocessing.
"""

from __future__ import annotations

import ast
import atexit
import gc
import importlib
import os
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, NoReturn

from farandole.runtime import rank_starter, signals
from farandole_tools.forked_ranks import fork_client
from farandole_tools.forked_ranks.fork_client import ADDRESS, FORWARDED, LIMITS, NUMBER, STREAMS

IMPORTED = ("torch", "cyclopts.validators", "rich.console", "rich.table")  # by nearly every rank

_starting = threading.Lock()

# ---- The launching process --------------------------------------------------------------------------------------


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
    try:
        folder = tempfile.mkdtemp(prefix="farandole-warm-")  # the fork server removes it if this process is killed
    except OSError:  # without a fork server launches start more slowly, and report the missing folder themselves
        return
    path = f"{folder}/socket"
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
    except OSError:  # a socket's path is limited to 107 bytes, and TMPDIR may be longer
        listener.close()
        shutil.rmtree(folder)
        return
    listener.listen(128)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, folder, str(listener.fileno()), *modules],
        stdin=subprocess.PIPE,  # its end tells the fork server that this process has ended
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the launcher, which ends its ranks
        pass_fds=[listener.fileno()],
    )
    listener.close()
    os.environ[ADDRESS] = f"{sys.executable}:{path}"
    os.environ[rank_starter.MODULE] = fork_client.__name__

    def stop() -> None:
        with signals.held():  # a terminated fork server does not remove its folder, so this process has to
            os.environ.pop(ADDRESS, None)
            os.environ.pop(rank_starter.MODULE, None)
            process.stdin.close()  # type: ignore[union-attr]
            process.terminate()  # it may still be importing; no launch is running any more
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)


# ---- The fork server -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """What distinguishes the requesting rank (`fork_client.process_state`), and its standard streams."""

    state: dict[str, Any]
    streams: list[int]


@dataclass(frozen=True)
class Fork:
    """A forked process: its process id, a descriptor that becomes readable when it ends, and the rank it works for."""

    pid: int
    end: int
    client: socket.socket


class ForkServer:
    """Imports torch and `modules`, and forks a process for each rank that requests one."""

    def __init__(self, folder: str, listener: socket.socket, modules: Sequence[str] = ()) -> None:
        self.folder = folder
        for name in (*IMPORTED, *modules):
            importlib.import_module(name)
        with suppress(ImportError, OSError, RuntimeError):  # where there is no MPI
            find_spec("mpi4py.MPI")  # loads MPI's library, which is not initialised before the module is imported
        gc.freeze()  # else the first collection in each fork would write to all of torch's objects, and so copy them
        self.listener = listener
        self.forks: set[Fork] = set()
        self.events = selectors.DefaultSelector()
        self.events.register(listener, selectors.EVENT_READ, self._fork)
        self.events.register(sys.stdin, selectors.EVENT_READ, self._end)

    def serve(self) -> Request:
        """Serve requests for ever; in a fork, return the request that it is to do."""
        while True:
            for key, _ in self.events.select():
                if request := key.data():
                    return request  # type: ignore[no-any-return]

    def _fork(self) -> Request | None:
        client, _ = self.listener.accept()
        try:
            request = _request(client)
        except (OSError, ValueError):  # it has died already
            client.close()
            return None
        pid = os.fork()
        if not pid:
            client.close()
            self._close()
            return request
        for stream in request.streams:
            os.close(stream)
        fork = Fork(pid, os.pidfd_open(pid), client)
        self.forks.add(fork)
        self.events.register(fork.end, selectors.EVENT_READ, partial(self._ended, fork))
        self.events.register(client, selectors.EVENT_READ, partial(self._kill, fork))  # closed: the rank has died
        with suppress(OSError):
            client.sendall(NUMBER.pack(pid))
        return None

    def _kill(self, fork: Fork) -> None:
        if fork in self.forks:
            self.events.unregister(fork.client)
            os.kill(fork.pid, signal.SIGKILL)

    def _ended(self, fork: Fork) -> None:
        _, status = os.waitpid(fork.pid, 0)
        with suppress(OSError):  # the rank has died
            fork.client.sendall(NUMBER.pack(status))
        with suppress(KeyError):
            self.events.unregister(fork.client)
        self.events.unregister(fork.end)
        self.forks.remove(fork)
        _close(fork)

    def _end(self) -> NoReturn:
        """End: the process that has started this one has ended."""
        for fork in [*self.forks]:
            os.kill(fork.pid, signal.SIGKILL)
            self._ended(fork)
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(0)

    def _close(self) -> None:
        """In a fork: close what only the server needs."""
        self.events.close()
        self.listener.close()
        for fork in self.forks:
            _close(fork)


def _close(fork: Fork) -> None:
    os.close(fork.end)
    fork.client.close()


def _request(client: socket.socket) -> Request:
    header, streams, _, _ = socket.recv_fds(client, NUMBER.size, len(STREAMS))
    with client.makefile("rb") as file:
        return Request(ast.literal_eval(file.read(*NUMBER.unpack(header)).decode()), streams)


def become(request: Request) -> None:
    """In a fork: take over the requesting rank's state and streams."""
    state = request.state
    for given, own in zip(request.streams, STREAMS, strict=True):
        os.dup2(given, own)
        os.close(given)
    os.environ.clear()
    os.environ.update(state["environment"])
    os.chdir(state["folder"])
    os.umask(state["umask"])
    os.sched_setaffinity(0, state["cores"])
    for limit, values in zip(LIMITS, state["limits"], strict=True):
        resource.setrlimit(limit, tuple(values))
    for number in FORWARDED:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if int(number) in state["ignored"] else default)
    sys.argv, sys.path = state["argv"], state["path"]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("farandole", "farandole_tools")]:
        del sys.modules[name]


if __name__ == "__main__":
    become(ForkServer(sys.argv[1], socket.socket(fileno=int(sys.argv[2])), sys.argv[3:]).serve())
    from farandole.runtime import processes, rank

    processes.end_with_parent()
    rank.main()
