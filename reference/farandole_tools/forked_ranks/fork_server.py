"""Ranks that need not import torch, since they are forked from a process that has.

Four ranks on two cores take four seconds to start, and more than three of them are ``import torch``. A notebook, the
tour, a comparison and the tests, which launch again and again, spare themselves these:

    warm.start()                       once: a process that imports torch, and waits
    launch(…), launch(…), %%mpi        each rank that mpirun starts asks (`asker`) it for a copy, which does its work

    mpirun         rank, as mpirun started it               warm process
      └────────────────────────┴── ask: all that makes it ──→│ fork ────────→ copy: the rank that computes
                               │←──────── its process id ────│                │
                            signals ─────────────────────────────────────────→│
                               │←────── how it has ended ────│←───────────────┘

The copy gets all that makes the rank that asks: environment, arguments, folder, standard streams, the cores it may use,
limits, and which signals it ignores. The two live and die together: a signal to the requesting rank is passed on (but
not SIGSTOP, which cannot be caught), the rank's death ends the copy, and the rank ends as the copy ended, by the same
signal if it was one. Only torch, its imports and MPI's library are shared. Each copy initialises MPI and imports the
program and this project's own modules, so edits made in between take effect. The copies also share the seed of Python's
hash(), which is otherwise drawn by each process.

A rank that finds nobody to ask (on another host, say) does its work itself; so does one in a Slurm job, for Slurm
counts, limits and ends what it has started. Linux only. Cost: a few milliseconds per rank, and the memory of one torch.
The idea is that of the fork server in Python's multiprocessing.
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

from farandole.runtime.asker import ADDRESS, LIMITS, NUMBER, PASSED_ON, STREAMS

IMPORTED = ("torch", "cyclopts.validators", "rich.console", "rich.table")  # by nearly every rank


_starting = threading.Lock()

# ---- Who launches -----------------------------------------------------------------------------------------------


def start(*modules: str) -> None:
    """From now on ranks of this process's launches are forked from one that has imported torch.

    It ends with the calling process. Nothing happens if there is one already, if it cannot listen, or if the system is
    not Linux.

    Args:
        modules: what else it imports, where nearly every rank would.
    """
    with _starting:
        if ADDRESS not in os.environ and sys.platform == "linux":
            _start(modules)


def _start(modules: Sequence[str]) -> None:
    try:
        folder = tempfile.mkdtemp(prefix="farandole-warm-")  # the warm process removes it if this one is killed
    except OSError:  # without a warm process launches start more slowly, and report the missing folder themselves
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
        [sys.executable, "-P", "-m", "farandole.runtime.warm", folder, str(listener.fileno()), *modules],
        stdin=subprocess.PIPE,  # its end tells the warm process that this one has ended
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the launcher, which ends its ranks
        pass_fds=[listener.fileno()],
    )
    listener.close()
    os.environ[ADDRESS] = f"{sys.executable}:{path}"

    def stop() -> None:
        os.environ.pop(ADDRESS, None)
        process.stdin.close()  # type: ignore[union-attr]
        process.terminate()  # it may still be importing; no launch is running any more
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)  # a terminated warm process does not remove it

    atexit.register(stop)


# ---- The warm process -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """What makes the rank that asks, and its standard streams."""

    what: dict[str, Any]
    streams: list[int]


@dataclass(frozen=True)
class Copy:
    """One that was forked: its process id, what becomes readable when it ends, and the rank that it works for."""

    pid: int
    end: int
    asker: socket.socket


class Warm:
    """Has imported torch and perhaps more, and forks a copy for each rank that asks."""

    def __init__(self, folder: str, listener: socket.socket, modules: Sequence[str] = ()) -> None:
        self.folder = folder
        for name in (*IMPORTED, *modules):
            importlib.import_module(name)
        with suppress(ImportError, OSError, RuntimeError):  # where there is no MPI
            find_spec("mpi4py.MPI")  # loads MPI's library, which is not initialised before the module is imported
        gc.freeze()  # else the first collection in each copy would write to all of torch's objects, and so copy them
        self.listener = listener
        self.copies: set[Copy] = set()
        self.events = selectors.DefaultSelector()
        self.events.register(listener, selectors.EVENT_READ, self._fork)
        self.events.register(sys.stdin, selectors.EVENT_READ, self._end)

    def serve(self) -> Request:
        """In the warm process this never returns; in a copy it does, with what it is to become."""
        while True:
            for key, _ in self.events.select():
                if request := key.data():
                    return request  # type: ignore[no-any-return]

    def _fork(self) -> Request | None:
        asker, _ = self.listener.accept()
        try:
            request = _request(asker)
        except (OSError, ValueError):  # it has died already
            asker.close()
            return None
        pid = os.fork()
        if not pid:
            asker.close()
            self._close()
            return request
        for stream in request.streams:
            os.close(stream)
        copy = Copy(pid, os.pidfd_open(pid), asker)
        self.copies.add(copy)
        self.events.register(copy.end, selectors.EVENT_READ, partial(self._ended, copy))
        self.events.register(asker, selectors.EVENT_READ, partial(self._kill, copy))  # it says no more: it has died
        with suppress(OSError):
            asker.sendall(NUMBER.pack(pid))
        return None

    def _kill(self, copy: Copy) -> None:
        if copy in self.copies:
            self.events.unregister(copy.asker)
            os.kill(copy.pid, signal.SIGKILL)

    def _ended(self, copy: Copy) -> None:
        _, status = os.waitpid(copy.pid, 0)
        with suppress(OSError):  # nobody asks any more
            copy.asker.sendall(NUMBER.pack(status))
        with suppress(KeyError):
            self.events.unregister(copy.asker)
        self.events.unregister(copy.end)
        self.copies.remove(copy)
        _close(copy)

    def _end(self) -> NoReturn:
        """Whoever has started this process has ended."""
        for copy in [*self.copies]:
            os.kill(copy.pid, signal.SIGKILL)
            self._ended(copy)
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(0)

    def _close(self) -> None:
        """In a copy: what only the warm process needs."""
        self.events.close()
        self.listener.close()
        for copy in self.copies:
            _close(copy)


def _close(copy: Copy) -> None:
    os.close(copy.end)
    copy.asker.close()


def _request(asker: socket.socket) -> Request:
    header, streams, _, _ = socket.recv_fds(asker, NUMBER.size, len(STREAMS))
    with asker.makefile("rb") as file:
        return Request(ast.literal_eval(file.read(*NUMBER.unpack(header)).decode()), streams)


def become(request: Request) -> None:
    """In a copy: take over everything that makes the rank that asks."""
    what = request.what
    for given, own in zip(request.streams, STREAMS, strict=True):
        os.dup2(given, own)
        os.close(given)
    os.environ.clear()
    os.environ.update(what["environment"])
    os.chdir(what["folder"])
    os.umask(what["umask"])
    os.sched_setaffinity(0, what["cores"])
    for limit, values in zip(LIMITS, what["limits"], strict=True):
        resource.setrlimit(limit, tuple(values))
    for number in PASSED_ON:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if int(number) in what["ignored"] else default)
    sys.argv, sys.path = what["argv"], what["path"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "farandole"]:
        del sys.modules[name]


if __name__ == "__main__":
    become(Warm(sys.argv[1], socket.socket(fileno=int(sys.argv[2])), sys.argv[3:]).serve())
    from farandole.runtime import processes, rank

    processes.end_with_parent()
    rank.main()
